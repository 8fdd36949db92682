"""A file of rows that is an input (a leaf) of a Spark plan.

Spark plans every action on a new DataFrame again. For a small slice, planning costs many times as
much as processing the rows. A plan over leaves is made once and run for every slice; each run reads
the current rows of the leaves' files. A plan stores the length of each file, and the footer of a
Parquet file is at the end of the file. So a leaf's file always has the same length, with a gap
before the footer.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from kappa.base.sql import spark_ddl
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.spark.s3a import spark_address
from kappa.state.files.address import writing_file
from kappa.state.files.bucket import is_bucket

# Longer rows have the plan made once more. On this machine's disk the gap takes no space.
_FIRST_BYTES, _FIRST_BYTES_ON_DISK = 1 << 20, 64 << 20
# The footer ends with its length, in four bytes, and four letters. (https://parquet.apache.org/docs/file-format/)
_TRAILER = 8


def session_of_leaves(spark: SparkSession) -> SparkSession:
    """Returns a new Spark session for plans whose inputs are `Leaf` objects.

    Adaptive execution is off in the session, since it would reuse the results of stages that have
    run. A single task reads a leaf, however long the gap in the leaf's file is. Sessions that write
    tables still use adaptive execution.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    session.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 40))
    return session


class Leaf:
    """An input of a Spark plan: a Parquet file whose rows are replaced before each run."""

    def __init__(self, address: str, columns: Sequence[tuple[str, str]]) -> None:
        """Creates a leaf without rows at a path or URL.

        `columns` contains pairs of a name and a Spark type.
        """
        self._address = address
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._bytes = _FIRST_BYTES if is_bucket(address) else _FIRST_BYTES_ON_DISK
        self.put(None)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Returns a frame of the leaf's rows.

        An action on the frame reads the rows from the last call of `put`. The frame is valid until
        a call of `put` returns False.
        """
        return spark.read.schema(spark_ddl(self._columns)).parquet(spark_address(self._address))

    def put(self, rows: pa.Table | None) -> bool:
        """Replaces the leaf's rows with `rows`, or with no rows if `rows` is None.

        Returns True if the frames from earlier calls of `frame` can read the new rows. No action
        may be running during the call.
        """
        sink = pa.BufferOutputStream()
        pq.write_table(
            self._schema.empty_table() if rows is None else rows,
            sink,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
        )
        written = memoryview(sink.getvalue())
        footer = int.from_bytes(written[-_TRAILER : 4 - _TRAILER], "little") + _TRAILER
        fits = len(written) <= self._bytes
        while len(written) > self._bytes:
            self._bytes *= 2
        with writing_file(self._address) as path, path.open("wb") as file:
            file.write(written[:-footer])
            file.seek(self._bytes - footer)
            file.write(written[-footer:])
        return fits
