"""Rows that a slice contributes to a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

HERE = "_here"


@dataclass(frozen=True, slots=True)
class RowsInFiles:
    """Rows that DuckDB's query `sql` finds in this machine's files.

    `spark` is for the rows that DuckDB cannot fold into their table. `here` are rows of this
    process, which the query finds under the name HERE.
    """

    sql: str
    spark: SparkSession
    here: pa.Table | None = None


# Rows to append, or one row per key: here in Arrow, at Spark, in files, or none.
Rows: TypeAlias = pa.Table | DataFrame | RowsInFiles | None
