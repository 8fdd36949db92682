"""The warm-up of a spare, which runs the same code as tasks do.

So the JVM has already compiled this code when the first task runs. The warm-up defines a small
pipeline, folds a few records with it, runs a Spark stream over a few rows, and describes the
pipeline as `kappa.engine.children.describe` does. All steps use a session and a folder of the
warm-up, and no task sees the results.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.declare.folds.count import count
from kappa.declare.folds.sum import sum_
from kappa.declare.pipeline import pipeline
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.values.columns import parse_type
from kappa.engine.children.call_guard import Watch
from kappa.engine.children.describe import describe
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal

_RECORDS = 20
# The columns that the function returns, as in the result of `describe`.
_OUTPUTS = {
    "by_kind": {"kind": "string", "n": "bigint", "day": "date"},
    "kept": {"id": "string", "kind": "string", "n": "bigint"},
}
_EVENTS = Topic("warm_up", key="id", event="id string not null, kind string not null, n bigint")


@pipeline(
    reads={"events": _EVENTS},
    writes=[
        Table("by_kind", keys=("kind", "day"), fold={"events": count(), "n": sum_("n")}),
        Table("kept"),
    ],
)
def warm_up(events: DataFrame) -> dict[str, DataFrame]:
    """Counts events by key, and stores single events, as most pipelines do."""
    known = events.where(F.col("n").isNotNull())
    return {
        "by_kind": known.withColumn("day", F.to_date(F.col("_timestamp"))),
        "kept": known.select("id", F.upper("kind").alias("kind"), (F.col("n") * 2).alias("n")),
    }


def steps(spark: SparkSession, folder: Path) -> Iterator[Callable[[], object]]:
    """Yields the steps of the warm-up, in the order in which they should run.

    The steps are short, since a task that arrives meanwhile waits until the current step has ended.
    The steps that jobs need come first, because a job usually starts after a command took the last
    spare.
    """
    yield partial(_fold, spark, folder / "warm-up")
    yield partial(_stream, spark, folder / "warm-up")
    yield partial(describe, spark, warm_up, Watch(Path(__file__).parent))
    yield partial(shutil.rmtree, folder / "warm-up", ignore_errors=True)


def _fold(spark: SparkSession, folder: Path) -> None:
    log = MemoryLog()
    for number in range(_RECORDS):
        event = {"id": str(number), "kind": "ab"[number % 2], "n": number}
        log.add(_EVENTS.name, 0, json.dumps(event).encode(), key=str(number).encode())
    outputs = {
        table: {name: parse_type(kind) for name, kind in columns.items()}
        for table, columns in _OUTPUTS.items()
    }
    local = LocalPipeline(warm_up, spark, outputs)
    rehearsal = Rehearsal(folder / "here", local, log, driver_rows=_RECORDS)
    try:
        rehearsal.fold(log.end)
    finally:
        rehearsal.close()


def _stream(spark: SparkSession, folder: Path) -> None:
    """Runs a Spark stream over a few rows, so that the code of micro-batches is compiled."""
    query = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", "1")
        .load()
        .writeStream.foreachBatch(lambda _rows, _batch: None)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(once=True)
        .start()
    )
    query.awaitTermination()
