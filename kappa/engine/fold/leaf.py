"""A file of rows as the leaf of a plan.

Each run of the plan reads the file's present rows. Spark plans an action again for every DataFrame.
For a small slice, this costs many times as much as the slice's rows. A plan over leaves is made
once and run for every slice. A plan remembers the length of its files, and a Parquet file is read
from the end. So the file always has the same length, with a gap before the footer.
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
    """Returns a session for plans over leaves.

    The session has no adaptive execution, which would keep the stages that have run. Only the
    sessions that write tables have adaptive execution. A leaf is read by one task, whatever the
    length of its gap.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    session.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 40))
    return session


class Leaf:
    """An input of a plan, on a file of its own."""

    def __init__(self, address: str, columns: Sequence[tuple[str, str]]) -> None:
        """Makes a leaf without rows at a path or URL.

        `columns` are (name, Spark's type).
        """
        self._address = address
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._bytes = _FIRST_BYTES if is_bucket(address) else _FIRST_BYTES_ON_DISK
        self.put(None)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Returns a frame of the leaf's rows.

        An action over the frame reads the rows that were put last. The frame is valid for as long
        as `put` returns True.
        """
        return spark.read.schema(spark_ddl(self._columns)).parquet(spark_address(self._address))

    def put(self, rows: pa.Table | None) -> bool:
        """Puts the leaf's rows; None means no rows.

        Returns True if earlier frames can read the rows. No action may be running.
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
