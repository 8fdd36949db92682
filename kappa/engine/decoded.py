"""The decoded records of one slice, for what is made of them: contributions, latest rows, rejects and the count of all.

A small slice is decoded in the job itself and is Arrow; a large one in Spark's workers, kept in files while the slice is
folded. Both answer the same questions with the same rows, each in its own form. Each topic is decoded once. Read next: engine/decode.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.arrow import arrow_schema
from kappa.build import TableBirth
from kappa.engine.commit import Rows
from kappa.engine.contribution import latest_frame
from kappa.engine.decode import Clock, Fate, Seen, decode_table, decode_to_files, decoded_columns, seen_in
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


SeenOf = Mapping[str, Mapping[int, Seen]]
# Names and Spark's types.
Columns = Sequence[tuple[str, str]]


class DecodedHere:
    """A small slice, decoded in this process."""

    def __init__(self, raw: pa.Table, topics: Iterable[Topic], clocks: Mapping[str, Clock]) -> None:
        """`raw` holds the records of all these topics."""
        self._tables = {topic.name: decode_table(_of_topic(raw, topic.name), topic, clocks.get(topic.name, {})) for topic in topics}

    def seen(self) -> SeenOf:
        """What was seen, per topic and partition; a partition without records is not named."""
        return {name: seen_in(table) for name, table in self._tables.items()}

    def accepted(self, topic: Topic, columns: Columns) -> pa.Table:
        """The valid records of a topic, these columns of them."""
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
    """A large slice, decoded by Spark's workers into files that Spark reads again while the slice is folded."""

    def __init__(self, spark: SparkSession, topics: Iterable[Topic], raw: Callable[[str], DataFrame], clocks: Mapping[str, Clock], folder: Path) -> None:
        """`raw` gives the records of one topic by its name; `folder` is made for the files."""
        self._spark = spark
        self._folder = folder
        self._frames: dict[str, DataFrame] = {}
        self._seen: dict[str, Mapping[int, Seen]] = {}
        # A crash has left some.
        self.close()
        for number, topic in enumerate(topics):
            path = folder / str(number)
            path.mkdir(parents=True)
            found = decode_to_files(raw(topic.name), topic, clocks.get(topic.name, {}), path).collect()
            self._seen[topic.name] = {row.partition: Seen(row.decoded, row.tombstone, row.rejected, row.log_time) for row in found}
            columns = ", ".join(f"{spark_quote(name)} {kind}" for name, kind in decoded_columns(topic))
            self._frames[topic.name] = spark.read.schema(columns).parquet(str(path))

    def seen(self) -> SeenOf:
        """As DecodedHere."""
        return self._seen

    def accepted(self, topic: Topic, columns: Columns) -> DataFrame:
        """As DecodedHere."""
        frame = self._frames.get(topic.name)
        if frame is None:
            return self._spark.createDataFrame(arrow_schema(columns).empty_table())
        return frame.where(f"_fate = {int(Fate.DECODED)}").select(*(spark_quote(name) for name, _ in columns))

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
        shutil.rmtree(self._folder, ignore_errors=True)


def _of_topic(raw: pa.Table, name: str) -> pa.Table:
    return raw.filter(pc.equal(raw.column("topic"), name))


def _with_fate(table: pa.Table, fate: Fate) -> pa.Table:
    return table.filter(pc.equal(table.column("_fate"), int(fate)))
