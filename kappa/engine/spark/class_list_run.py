"""A program that records class lists: the classes that the JVMs of a real job load.

With these lists, Kappa makes class archives, with which a JVM starts faster. The program folds a
few records. `make classes` starts this program after a change of the jars or of a job's work:

    python -m kappa.engine.spark.class_list_run
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.java.class_archive import put_class_list
from kappa.base.java.jars import Use, ensure_jars
from kappa.base.java.java import find_java
from kappa.base.settings import load_settings
from kappa.declare.topic import Topic
from kappa.engine.spark.jvm import Profile
from kappa.engine.spark.session import Machine, boot
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

if TYPE_CHECKING:
    import pyarrow as pa

_TOPIC = Topic("recording", event="id string, n bigint, at timestamp", partitions=2, key="id")


def main() -> None:
    """Starts a broker and a session, folds a few records like a job, and stops both.

    Then stores the class lists that the broker's JVM and the session's JVM have written.
    """
    java = find_java()
    settings = load_settings(Path.cwd()).jars
    jars = ensure_jars(java, cache=settings.cache, repository=settings.repository)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        uses: tuple[Use, ...] = ("broker", "spark")
        written = {use: scratch / f"{use}.classes" for use in uses}
        broker = Broker.start(scratch, jars, java, list_classes=written["broker"])
        try:
            _produce(Log(broker.bootstrap_servers))
            machine = boot(
                profile=Profile.TAIL,
                name="recording",
                memory="1g",
                jars=jars,
                local_dir=scratch / "local",
                list_classes=written["spark"],
            )
            spark = machine.session()
            _bounded(spark, broker.bootstrap_servers, scratch)
            _tail(spark, broker.bootstrap_servers, scratch)
            spark.stop()
            _end(machine)
        finally:
            broker.stop()
        for use, path in written.items():
            put_class_list(use, path.read_bytes())


def _produce(log: Log) -> None:
    log.create(_TOPIC)
    log.produce(
        (
            ProducedRecord(
                f'{{"id": "{n}", "n": {n}, "at": "2024-01-01T00:00:00Z"}}'.encode(),
                key=str(n).encode(),
            )
            for n in range(100)
        ),
        _TOPIC.name,
    )


def _bounded(spark: SparkSession, servers: str, folder: Path) -> None:
    read = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": _TOPIC.name,
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
    )
    _fold(read.load(), folder / "bounded")


def _tail(spark: SparkSession, servers: str, folder: Path) -> None:
    read = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": _TOPIC.name,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }
    )
    write = (
        read.load()
        .writeStream.foreachBatch(lambda rows, _number: _fold(rows, folder / "tail"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = write.trigger(availableNow=True).start()
    query.awaitTermination()


def _fold(rows: DataFrame, table: Path) -> None:
    typed = rows.select(
        F.from_json(F.col("value").cast("string"), "id string, n bigint, at timestamp").alias(
            "event"
        ),
        "partition",
        "offset",
        "timestamp",
        "headers",
    ).select("event.*", "partition", "offset")
    typed = typed.mapInArrow(_unchanged, typed.schema).persist()
    folded = (
        typed.withColumn("day", F.date_trunc("day", "at"))
        .groupBy("day")
        .agg(F.count("*").alias("hits"), F.sum("n").alias("total"), F.max("offset").alias("last"))
    )
    folded.toArrow()
    folded.write.format("delta").mode("append").option("txnAppId", "recording").option(
        "txnVersion", 0
    ).save(str(table))
    into = DeltaTable.forPath(rows.sparkSession, str(table)).alias("t")
    added = {"hits": F.col("t.hits") + F.col("s.hits")}
    merging = into.merge(folded.alias("s"), "t.day <=> s.day")
    # Delta's stubs want an invariant dict.
    matched = merging.whenMatchedUpdate(set=added)  # type: ignore[arg-type]
    matched.whenNotMatchedInsertAll().execute()
    rows.sparkSession.read.format("delta").load(str(table)).toArrow()
    typed.unpersist()


def _unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _end(machine: Machine) -> None:
    """Closes the JVM's input, and waits until the JVM exits.

    The JVM adds the lambdas to the class list when it exits.
    """
    stdin = machine.process.stdin
    assert stdin is not None, "it is tied to this process by it"
    stdin.close()
    machine.process.wait()


if __name__ == "__main__":
    main()
