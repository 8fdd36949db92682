"""What a spare runs once, so that its first task meets code that has run before.

It describes a pipeline of its own, folds a few records of it and streams a few rows. All of that
has the warm-up's own session and folder, and no task sees any of it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.declare.pipeline import Pipeline, pipeline
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.engine.children.describe import describe
from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal
from kappa.engine.children.watch import Watch
from kappa.folds.kinds.count import count
from kappa.folds.kinds.sum import sum_
from kappa.values.columns import parse_type

_RECORDS = 20
_EVENTS = Topic("warm_up", key="id", event="id string not null, kind string not null, n bigint")


@pipeline(
    reads={"events": _EVENTS},
    writes=[
        Table("by_kind", keys=("kind", "day"), fold={"events": count(), "n": sum_("n")}),
        Table("kept"),
    ],
)
def warm_up(events: DataFrame) -> dict[str, DataFrame]:
    """Has rows counted by key, and others kept: what most pipelines do."""
    known = events.where(F.col("n").isNotNull())
    return {
        "by_kind": known.withColumn("day", F.to_date(F.col("_timestamp"))),
        "kept": known.select("id", F.upper("kind").alias("kind"), (F.col("n") * 2).alias("n")),
    }


def steps(spark: SparkSession, folder: Path) -> Iterator[Callable[[], object]]:
    """Yields what is to be run, in short steps: a task that comes meanwhile waits for one."""
    local: list[LocalPipeline] = []
    yield lambda: local.append(_described(spark, warm_up))
    yield partial(_fold, local, folder / "warm-up")
    yield partial(_stream, spark, folder / "warm-up")
    yield partial(shutil.rmtree, folder / "warm-up", ignore_errors=True)


def _described(spark: SparkSession, example: Pipeline) -> LocalPipeline:
    found = describe(spark, example, Watch(Path(__file__).parent))
    tables = {
        table: {name: parse_type(kind) for name, kind in columns}
        for table, columns in found.tables.items()
    }
    return LocalPipeline(example, spark, tables)


def _fold(local: list[LocalPipeline], folder: Path) -> None:
    log = MemoryLog()
    for number in range(_RECORDS):
        event = {"id": str(number), "kind": "ab"[number % 2], "n": number}
        log.add(_EVENTS.name, 0, json.dumps(event).encode(), key=str(number).encode())
    rehearsal = Rehearsal(folder / "here", local[0], log, driver_rows=_RECORDS)
    try:
        rehearsal.fold(log.end)
    finally:
        rehearsal.close()


def _stream(spark: SparkSession, folder: Path) -> None:
    """Streams a few rows, as the tail does: Spark's own planning of micro-batches."""
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
