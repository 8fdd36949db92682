"""The rows that a slice contributes to one table."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame

# Rows to append, or one row per key: here in Arrow, at Spark, or none.
Rows: TypeAlias = pa.Table | DataFrame | None
