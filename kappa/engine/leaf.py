"""Rows that a file holds, as the leaf of a plan: whenever the plan is run, it reads what the file holds then.

Spark plans an action anew for every DataFrame, which for a small slice costs many times what the rows cost. A plan over
such leaves is made once and run for every slice. Workers import this, so it imports little. Read next: engine/prepared.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def leaf(spark: SparkSession, path: Path, columns: Iterable[tuple[str, str]]) -> DataFrame:
    """A frame, in one partition, of the rows that `put_rows` has put last when an action runs."""
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    return spark.range(0, 1, 1, 1).mapInArrow(partial(_rows, path=str(path)), schema)


def put_rows(path: Path, rows: pa.Table) -> None:
    """Makes these the rows of a leaf. No action may be running on it."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as file:
        file.write_table(rows)


def _rows(batches: Iterable[pa.RecordBatch], path: str) -> Iterator[pa.RecordBatch]:
    # A worker that has not read its input to the end is thrown away, and a new one costs half a second.
    for _ in batches:
        pass
    with pa.OSFile(path, "rb") as source:
        file = pa.ipc.open_file(source)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)
