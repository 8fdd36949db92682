"""The warm-up of a spare: runs the same code as tasks do.

So the first task meets warm code. The warm-up folds a few records of a separate pipeline, streams a
few rows and describes the pipeline. All steps use the warm-up's own session and folder, and no task
sees any result.
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
from kappa.engine.children.describe import describe
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal
from kappa.engine.children.watch import Watch

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
    """Counts rows by key, and keeps other rows, as most pipelines do."""
    known = events.where(F.col("n").isNotNull())
    return {
        "by_kind": known.withColumn("day", F.to_date(F.col("_timestamp"))),
        "kept": known.select("id", F.upper("kind").alias("kind"), (F.col("n") * 2).alias("n")),
    }


def steps(spark: SparkSession, folder: Path) -> Iterator[Callable[[], object]]:
    """Yields the steps of the warm-up.

    The steps are short, since a task that comes meanwhile waits for the step to end. The steps that
    jobs need come first: a command that took the last spare is followed by a job.
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
    """Streams a few rows as the tail does, for Spark's own planning of micro-batches."""
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
