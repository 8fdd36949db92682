"""The rows of a slice for tables that topics fill: latest rows, and rejects."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import Broken
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.fold.latest import emptied_sql
from kappa.engine.function.decoded import Decoded
from kappa.engine.function.decoded_rows import newest_truncation
from kappa.engine.function.refused import REFUSED_COLUMNS, raw_records, refused_of
from kappa.engine.read.rows import HERE, Rows, RowsInFiles
from kappa.engine.read.source import LogSource
from kappa.engine.write.commit import TableWriter
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets


def rows_of_topics(
    decoded: Decoded,
    pipeline: Pipeline,
    writers: Mapping[str, TableWriter],
    mark: Mark,
    spark: SparkSession,
) -> Mapping[str, Rows]:
    """Returns the rows of the tables that topics fill, by name.

    Only tables in `writers` are included. `mark` is the slice's mark. Raises Broken as
    `_latest_rows` does.
    """
    rows = {
        table.name: _latest_rows(decoded, table.latest, writers[table.name], mark, spark)
        for table in pipeline.latest_tables
        if table.name in writers and table.latest is not None
    }
    if REJECTS in writers:
        rows[REJECTS] = decoded.rejects(writers[REJECTS].birth)
    return rows


def refuse_truncations(
    decoded: Decoded, pipeline: Pipeline, end: Offsets, source: LogSource
) -> None:
    """Rejects truncations that a table of latest rows cannot follow.

    A truncation in a topic of several partitions cannot be followed: nobody knows which changes in
    the other partitions were made before it. `end` is the end of the slice.
    """
    latest = {t.latest.name: t.latest for t in pipeline.latest_tables if t.latest is not None}
    for topic in latest.values():
        partitions = _count_partitions(topic, end)
        if partitions == 1:
            continue
        found = decoded.truncations(topic)
        if found.num_rows == 0:
            continue
        why = (
            f"it truncates its source's table, and the topic has {partitions} partitions: "
            "the order of changes in several is not known"
        )
        count = found.num_rows
        places = pa.table(
            [
                pa.repeat(topic.name, count),
                found.column("_partition"),
                found.column("_offset"),
                pa.repeat(why, count),
            ],
            schema=arrow_schema(REFUSED_COLUMNS),
        ).sort_by([("partition", "ascending"), ("offset", "ascending")])
        decoded.reject(refused_of(places, Reason.UNORDERED, raw_records(places, source)))


def with_more_rejects(rows: Rows, more: pa.Table, spark: SparkSession) -> Rows:
    """Adds rows of this process to the rows of the rejects table."""
    if isinstance(rows, DataFrame):
        return rows.unionAll(spark.createDataFrame(more))
    assert not isinstance(rows, RowsInFiles), "rejects are found by Arrow or by Spark"
    return more if rows is None else pa.concat_tables([rows, more])


def _latest_rows(
    decoded: Decoded, topic: Topic, writer: TableWriter, mark: Mark, spark: SparkSession
) -> Rows:
    """Returns a slice's contributions to the table of a topic's latest rows.

    A truncation hides each key that the table has before the slice, and each key that the slice has
    before the truncation. The hidden keys may be many, so DuckDB finds the keys in files. Raises
    Broken if nobody knows which changes were made before the truncation.
    """
    rows = decoded.latest(topic, writer.birth)
    truncated = newest_truncation(decoded.truncations(topic))
    if truncated is None:
        return rows
    _, partition, offset = truncated
    partitions = _count_partitions(topic, mark.end)
    if partitions > 1:
        raise Broken(
            f"record {topic.name}:{partition}:{offset} truncates its source's table, and the topic "
            f"has {partitions} partitions: nobody knows which changes of the others were made "
            f"before, so table {writer.birth.name} cannot follow",
            hint="send the table's changes into a new topic of one partition "
            "(topic.creation.default.partitions=1), and declare that one",
        )
    assert not isinstance(rows, DataFrame), "latest rows are found by Arrow or by DuckDB"
    stored = writer.stored_sql(writer.birth.keys)
    found, here = (rows.sql, None) if isinstance(rows, RowsInFiles) else (f"from {HERE}", rows)
    return RowsInFiles(emptied_sql(writer.birth, found, stored, truncated), spark, here)


def _count_partitions(topic: Topic, end: Offsets) -> int:
    return max(topic.partitions, len(end.next.get(topic.name, {})))
