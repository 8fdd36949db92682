"""The plain Spark script, as the documentation of Spark and Delta recommends it.

    python spark_script.py BOOTSTRAP TOPIC FOLDER JARS MEMORY BATCH TASK TABLE [tail]

Uses readStream, from_json, and foreachBatch with a MERGE or an append; a transaction id ensures
that each batch is written exactly once. BATCH is `maxOffsetsPerTrigger`; 0 means one batch for all
records. Writes `FOLDER/TABLE` (Delta) and `FOLDER/warm.json`. As a `tail`, runs until it is killed,
and writes a line of JSON per batch to `FOLDER/answers.jsonl`: the time, and the offsets that the
table contains then.
https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html
https://docs.delta.io/latest/delta-streaming.html#idempotent-table-writes-in-foreachbatch
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

bootstrap, topic, folder, jars, memory, batch, task, name = sys.argv[1:9]
is_tail = sys.argv[9:] == ["tail"]
cores = len(os.sched_getaffinity(0))
builder = (
    SparkSession.builder.appName(task)
    .master(f"local[{cores}]")
    .config("spark.driver.memory", memory)
    .config("spark.jars", jars)
)
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
    "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
)
# Every tuning guide begins so: 200 shuffle partitions are for a cluster, and so are the 50 in
# which Delta reads a table's log.
builder = builder.config("spark.sql.shuffle.partitions", str(cores)).config(
    "spark.databricks.delta.snapshotPartitions", "1"
)
# This machine only.
builder = (
    builder.config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.local.dir", f"{folder}/local")
)
builder = (
    builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
)
spark = builder.getOrCreate()

SCHEMA = (
    "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime bigint, "
    "extra string"
)
TABLE = f"{folder}/{name}"
COLUMNS = {
    "totals": "bidder bigint, bids bigint, total bigint, lowest bigint, highest bigint",
    "projection": "auction bigint, bidder bigint, euros bigint, ms bigint",
    "windows": "bidder bigint, began bigint, bids bigint, total bigint",
    "latest": SCHEMA,
}
KEYS = {"totals": ["bidder"], "windows": ["bidder", "began"], "latest": ["bidder"]}
FOLDED = {
    "bids": "t.bids + s.bids",
    "total": "t.total + s.total",
    "lowest": "least(t.lowest, s.lowest)",
    "highest": "greatest(t.highest, s.highest)",
}
ended: list[float] = []
table = DeltaTable.createIfNotExists(spark).location(TABLE)
for column in COLUMNS[task].split(", "):
    table = table.addColumn(*column.split())
table.execute()


def folded(rows: DataFrame) -> DataFrame:
    """Returns the rows that a batch adds to the table or merges into it."""
    match task:
        case "projection":
            return rows.selectExpr(
                "auction", "bidder", "price * 908 div 1000 as euros", "dateTime as ms"
            )
        case "windows":
            by_window = rows.selectExpr(
                "bidder", "dateTime - dateTime % 600000 as began", "price"
            ).groupBy("bidder", "began")
            return by_window.agg(F.count("*").alias("bids"), F.sum("price").alias("total"))
        case "latest":
            whole = F.struct(*(column.split()[0] for column in SCHEMA.split(", ")))
            return (
                rows.groupBy("bidder")
                .agg(F.max_by(whole, "offset").alias("newest"))
                .select("newest.*")
            )
        case _:
            return rows.groupBy("bidder").agg(
                F.count("*").alias("bids"),
                F.sum("price").alias("total"),
                F.min("price").alias("lowest"),
                F.max("price").alias("highest"),
            )


def offsets_of(batch: Path) -> dict[str, int]:
    """Returns the end offset of a batch per partition, from the batch's file in the checkpoint."""
    ends: dict[str, int] = json.loads(batch.read_text(encoding="utf-8").splitlines()[-1])[topic]
    return ends


def commit(rows: DataFrame, number: int) -> None:
    write(rows, number)
    if is_tail:
        ends = {topic: offsets_of(Path(folder, "checkpoint", "offsets", str(number)))}
        with Path(folder, "answers.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"at": time.monotonic(), "offsets": ends}) + "\n")


def write(rows: DataFrame, number: int) -> None:
    session, made = rows.sparkSession, folded(rows)
    if task not in KEYS:
        made.write.format("delta").mode("append").option("txnAppId", task).option(
            "txnVersion", number
        ).save(TABLE)
        ended.append(time.monotonic())
        return
    # "Merge reads the input data multiple times": Delta's docs say to cache it.
    made.persist()
    session.conf.set("spark.databricks.delta.write.txnAppId", task)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(number))
    into = (
        DeltaTable.forPath(session, TABLE)
        .alias("t")
        .merge(made.alias("s"), " and ".join(f"t.{key} = s.{key}" for key in KEYS[task]))
    )
    # The batches of a partition come in order, and a key's events lie in one.
    updating = (
        into.whenMatchedUpdateAll()
        if task == "latest"
        else into.whenMatchedUpdate(
            set={column: FOLDED[column] for column in made.columns if column in FOLDED}
        )
    )
    updating.whenNotMatchedInsertAll().execute()
    made.unpersist()
    ended.append(time.monotonic())


reader = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
)
reader = reader.option("maxOffsetsPerTrigger", batch) if int(batch) else reader
events = (
    reader.load()
    .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("bid"), "offset")
    .select("bid.*", "offset")
)
writer = events.writeStream.foreachBatch(commit).option(
    "checkpointLocation", f"{folder}/checkpoint"
)
# A tail begins a batch as soon as the one before has ended: that is the default.
query = (writer if is_tail else writer.trigger(availableNow=True)).start()
query.awaitTermination()
# How far each batch went, by the checkpoint: a progress counts rows as often as they are read.
offsets = sorted(
    Path(folder, "checkpoint", "offsets").glob("[0-9]*"), key=lambda file: int(file.name)
)
ends = [sum(offsets_of(file).values()) for file in offsets]
if len(ends) > 1:
    Path(folder, "warm.json").write_text(
        json.dumps({"events": ends[-1] - ends[0], "seconds": ended[-1] - ended[0]}),
        encoding="utf-8",
    )
spark.stop()
