"""Rows that a file holds, as the leaf of a plan: whenever the plan is run, it reads what the file holds then.

Spark plans an action anew for every DataFrame, which for a small slice costs many times what the rows cost. A plan over
such leaves is made once and run for every slice. A plan remembers how long its files are, and a Parquet file is read from
its end: so the file always has the same length, with a gap before its footer. Read next: engine/function/prepared.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from kappa.engine.fold.fold import spark_ddl
from kappa.values.arrow import arrow_schema

_FIRST_BYTES = 1 << 20
# The footer ends with its length, in four bytes, and four letters. (https://parquet.apache.org/docs/file-format/)
_TRAILER = 8


def session_of_leaves(spark: SparkSession) -> SparkSession:
    """A session for plans over leaves: adaptive execution keeps the stages it has run, and is the tables' writers' to have."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "false")
    return session


class Leaf:
    """One input of a plan, on a file of its own."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, str]]) -> None:
        """`columns` are (name, Spark's type); the leaf has no rows yet."""
        self._path = path
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._bytes = _FIRST_BYTES
        self.put(None)

    def frame(self, spark: SparkSession) -> DataFrame:
        """A frame of the rows that were put last when an action runs; for as long as `put` says that it still fits."""
        return spark.read.schema(spark_ddl(self._columns)).parquet(str(self._path))

    def put(self, rows: pa.Table | None) -> bool:
        """Makes these the leaf's rows (None: it has none), and answers whether frames made before can read them. No action may be running."""
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
        with self._path.open("wb") as file:
            file.write(written[:-footer])
            file.seek(self._bytes - footer)
            file.write(written[-footer:])
        return fits
