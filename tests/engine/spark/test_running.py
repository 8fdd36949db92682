"""The progress of Spark's tasks changes while a task advances, and not while a task hangs."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("spark_here")]
PATIENCE_SECONDS = 120.0
# Spark gives its workers so many rows at once in a session of Kappa's.
ROWS = 1_000_000


def running(spark: SparkSession, work: Callable[..., Iterator[pa.RecordBatch]]) -> threading.Thread:
    """Starts one task that passes all rows to a function."""
    frame = spark.range(0, ROWS, 1, 1).mapInArrow(work, "id bigint")
    thread = threading.Thread(target=frame.count)
    thread.start()
    return thread


def test_a_task_that_gets_its_rows_is_seen_to_move(spark: SparkSession) -> None:
    from kappa.base.process import bytes_moved
    from kappa.engine.spark.spark_settings import WORKERS

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.05)
            yield batch

    # It is one task, and Spark counts none of its rows before its end.
    task, seen = running(spark, slowly), set[int]()
    while task.is_alive():
        seen.add(sum(bytes_moved(WORKERS).values()))
        task.join(0.1)

    assert len(seen) > 3


def test_a_function_that_never_returns_shows_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """A hanging function shows no progress, so its slice is ended and folded in parts."""
    from kappa.engine.spark.session_control import progress_of_tasks

    begun, may_end = tmp_path / "begun", tmp_path / "may-end"

    def never(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number == 0:
                begun.touch()
                while not may_end.exists():
                    pass
            yield batch

    task, deadline = running(spark, never), time.monotonic() + PATIENCE_SECONDS
    try:
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # What the JVM began before is over some time.
        before, since = progress_of_tasks(spark), time.monotonic()
        while time.monotonic() < since + 3.0:
            assert time.monotonic() < deadline, "the signs never stood still"
            time.sleep(0.1)
            if (now := progress_of_tasks(spark)) != before:
                before, since = now, time.monotonic()
    finally:
        may_end.touch()
        task.join()

    assert progress_of_tasks(spark) != before
