"""The decoded records of one slice, for what is made of them: contributions, latest rows, rejects and the count of all.

A small slice is decoded in the job itself and is Arrow; a large one in Spark's workers, kept by Spark while the slice is
folded. Both answer the same questions with the same rows, each in its own form. Each topic is decoded once. Read next: engine/decode.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.arrow import arrow_schema
from kappa.build import TableBirth
from kappa.engine.commit import Rows
from kappa.engine.contribution import latest_frame
from kappa.engine.decode import Clock, Fate, decode_frame, decode_table, event_columns
from kappa.engine.fold import latest_table, spark_quote
from kappa.shape import REJECTS_BIRTH
from kappa.topic import Topic

# A reject's row: where each column of the rejects table comes from.
_REJECT = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_raw_key",
    "value": "_raw_value",
    "reason": "_reason",
    "detail": "_detail",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one partition in a slice: how many records of each fate, and the log time after the last of them."""

    decoded: int
    tombstone: int
    rejected: int
    log_time: int


SeenOf = Mapping[str, Mapping[int, Seen]]


class DecodedHere:
    """A small slice, decoded in this process."""

    def __init__(self, raw: pa.Table, topics: Iterable[Topic], clocks: Mapping[str, Clock]) -> None:
        """`raw` holds the records of all these topics."""
        self._tables = {topic.name: decode_table(_of_topic(raw, topic.name), topic, clocks.get(topic.name, {})) for topic in topics}

    def seen(self) -> SeenOf:
        """What was seen, per topic and partition; a partition without records is not named."""
        seen: dict[str, dict[int, Seen]] = {}
        for name, table in self._tables.items():
            partitions = table.column("_partition").to_pylist()
            counts = Counter(zip(partitions, table.column("_fate").to_pylist(), strict=True))
            # Within a partition the log time only rises, so its last one is its greatest.
            clock = dict(zip(partitions, table.column("_log_time").to_pylist(), strict=True))
            seen[name] = {p: Seen(counts[p, Fate.DECODED], counts[p, Fate.TOMBSTONE], counts[p, Fate.REJECTED], clock[p]) for p in clock}
        return seen

    def accepted(self, topic: Topic) -> pa.Table:
        """The valid records of a topic as a pipeline's function gets them."""
        columns = event_columns(topic)
        table = self._tables.get(topic.name)
        return arrow_schema(columns).empty_table() if table is None else _with_fate(table, Fate.DECODED).select([name for name, _ in columns])

    def latest(self, topic: Topic, table: TableBirth) -> Rows:
        """The newest record per key of a topic."""
        decoded = self._tables.get(topic.name)
        return None if decoded is None else latest_table(decoded, table)

    def rejects(self) -> Rows:
        """The records that are not valid, as rows of the rejects table."""
        rejected = [_with_fate(table, Fate.REJECTED).select(list(_REJECT.values())) for table in self._tables.values()]
        rows = pa.concat_tables([arrow_schema([(source, dict(REJECTS_BIRTH.columns)[name]) for name, source in _REJECT.items()]).empty_table(), *rejected])
        return rows.rename_columns(list(_REJECT))

    def close(self) -> None:
        """Lets go of what was kept."""
        self._tables = {}


class DecodedAtSpark:
    """A large slice, decoded by Spark's workers and kept by Spark."""

    def __init__(self, spark: SparkSession, raw: DataFrame, topics: Iterable[Topic], clocks: Mapping[str, Clock]) -> None:
        """`raw` holds the records of all these topics."""
        topics = tuple(topics)
        self._spark = spark
        # Kafka would be read once for each topic.
        self._raw = raw.persist(StorageLevel.MEMORY_AND_DISK) if len(topics) > 1 else raw
        self._frames = {
            topic.name: decode_frame(self._raw.where(F.col("topic") == topic.name), topic, clocks.get(topic.name, {})).persist(StorageLevel.MEMORY_AND_DISK) for topic in topics
        }
        self._seen = {name: _seen_at_spark(frame) for name, frame in self._frames.items()}

    def seen(self) -> SeenOf:
        """As DecodedHere."""
        return self._seen

    def accepted(self, topic: Topic) -> DataFrame:
        """As DecodedHere."""
        names = [name for name, _ in event_columns(topic)]
        frame = self._frames.get(topic.name)
        if frame is None:
            return self._spark.createDataFrame(arrow_schema(event_columns(topic)).empty_table())
        return frame.where(f"_fate = {int(Fate.DECODED)}").select(*(spark_quote(name) for name in names))

    def latest(self, topic: Topic, table: TableBirth) -> Rows:
        """As DecodedHere."""
        frame = self._frames.get(topic.name)
        return None if frame is None else latest_frame(frame, table)

    def rejects(self) -> Rows:
        """As DecodedHere."""
        rows: DataFrame | None = None
        for name, frame in self._frames.items():
            if any(seen.rejected for seen in self._seen[name].values()):
                rejected = frame.where(f"_fate = {int(Fate.REJECTED)}").select(*(F.col(source).alias(column) for column, source in _REJECT.items()))
                rows = rejected if rows is None else rows.unionAll(rejected)
        return rows

    def close(self) -> None:
        """As DecodedHere."""
        for frame in self._frames.values():
            frame.unpersist()
        self._raw.unpersist()


def _seen_at_spark(decoded: DataFrame) -> dict[int, Seen]:
    counts = [f"count_if(_fate = {int(fate)}) as {fate.name}" for fate in (Fate.DECODED, Fate.TOMBSTONE, Fate.REJECTED)]
    found = decoded.groupBy("_partition").agg(*(F.expr(count) for count in counts), F.max("_log_time").alias("log_time")).collect()
    return {int(row["_partition"]): Seen(int(row["DECODED"]), int(row["TOMBSTONE"]), int(row["REJECTED"]), int(row["log_time"])) for row in found}


def _of_topic(raw: pa.Table, name: str) -> pa.Table:
    return raw.filter(pc.equal(raw.column("topic"), name))


def _with_fate(table: pa.Table, fate: Fate) -> pa.Table:
    return table.filter(pc.equal(table.column("_fate"), int(fate)))
