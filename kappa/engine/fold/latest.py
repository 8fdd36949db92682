"""The rows of a latest table: the newest decoded record per key, and truncations.

The records are in this process or in files. A tombstone leaves a hidden row, so that an older
record that arrives later does not replace the tombstone. A change that deletes a row also leaves a
hidden row; the values of the deleted row are not stored. A change that truncates the source's table
leaves a hidden row for every key that was in the table before. Such a change must be in a topic of
one partition. kappa/tables/shape.py defines the table's columns, and kappa/tables/merge.py defines
the condition of the merge.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kappa.base.errors import Broken
from kappa.base.sql import quoted
from kappa.declare.folds.order import ORDER_COLUMNS
from kappa.declare.options import DELETED
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.function.decoded_rows import newest_truncation
from kappa.engine.function.refused_records import REFUSED_COLUMNS, raw_records, refused_of
from kappa.records.decode.outcome import Fate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.declare.pipeline import Pipeline
    from kappa.declare.topic import Topic
    from kappa.engine.read.source import LogSource
    from kappa.engine.slice_rows import LatestRows, SliceRows
    from kappa.engine.write.commit import TableWriter
    from kappa.state.mark import Mark
    from kappa.state.offsets import Offsets
    from kappa.state.table import TableBirth

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
# Both columns name one record of a topic.
_PLACE = ("_partition", "_offset")
# The fates of records that become latest rows.
_KEPT = frozenset({Fate.DECODED, Fate.TOMBSTONE, Fate.DELETION})
_DELETES = frozenset({Fate.TOMBSTONE, Fate.DELETION})


def latest_table(decoded: pa.Table, table: TableBirth) -> pa.Table:
    """Returns the latest rows of a decoded topic: the newest record per key, computed with Arrow.

    A key whose newest record deletes the row gets a hidden row.
    """
    columns = [decoded.column(name).to_pylist() for name in (table.keys[0], *_ORDER, "_fate")]
    newest: dict[object, tuple[tuple[int, int, int], int]] = {}
    for place, (key, log_time, partition, offset, fate) in enumerate(zip(*columns, strict=True)):
        order = (log_time, partition, offset)
        # A tombstone without a key deletes nothing (kappa/records/record.py).
        if fate in _KEPT and key is not None and (key not in newest or newest[key][0] < order):
            newest[key] = order, place
    kept = decoded.take(pa.array([place for _, place in newest.values()], pa.int64()))
    deleted = pa.array([fate in _DELETES for fate in kept.column("_fate").to_pylist()], pa.bool_())
    for place, field in enumerate(kept.schema):
        if field.name not in {table.keys[0], *_ORDER}:
            left = pc.if_else(deleted, pa.scalar(None, field.type), kept.column(place))
            kept = kept.set_column(place, field, left)
    return kept.append_column(DELETED, deleted).select([name for name, _ in table.columns])


def latest_sql(table: TableBirth, decoded: str) -> str:
    """Returns the DuckDB query for the newest decoded record per key.

    `decoded` is a query for the decoded records of one topic. The returned query first finds the
    place of the newest record per key, and then finds the record at that place. So the other
    columns are read once, and only for the newest record.
    """
    key, deleted = quoted(table.keys[0]), quoted(DELETED)
    kept = f"from ({decoded}) where _fate in ({_listed(_KEPT)}) and {key} is not null"
    is_deleted = f"_fate in ({_listed(_DELETES)})"
    columns = ", ".join(
        f"{is_deleted} as {deleted}"
        if name == DELETED
        else quoted(name)
        if name in {table.keys[0], *_ORDER}
        else f"case when {is_deleted} then null else {quoted(name)} end as {quoted(name)}"
        for name, _ in table.columns
    )
    newest = f"select max(struct_pack({', '.join(_ORDER)})) as _newest {kept} group by {key}"
    return (
        f"select {columns} from (select * {kept}) semi join (select unnest(_newest) from"
        f" ({newest})) using ({', '.join(_PLACE)})"
    )


def emptied_sql(
    table: TableBirth, latest: str, stored: str, truncated: tuple[int, int, int]
) -> str:
    """Returns a query for the latest rows of a slice in which the source's table was truncated.

    `latest` is the query for the latest rows without the truncation. `stored` is the query for the
    keys in the table. `truncated` contains the log time, the partition and the offset of the
    truncation.
    """
    key, place = quoted(table.keys[0]), ", ".join(map(str, truncated))
    later = f"row({', '.join(_ORDER)}) > row({place})"
    gone = ", ".join(
        key
        if name == table.keys[0]
        else "true"
        if name == DELETED
        else str(truncated[_ORDER.index(name)])
        if name in _ORDER
        else "null"
        for name, _ in table.columns
    )
    return (
        f"with _latest as ({latest}), _kept as (select * from _latest where {later})"
        f" select * from _kept union all select {gone} from (select {key} from ({stored}) union"
        f" select {key} from _latest) anti join _kept using ({key})"
    )


def _listed(fates: Iterable[Fate]) -> str:
    return ", ".join(str(int(fate)) for fate in sorted(fates))


def latest_input(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Returns the columns, with their types, that the query of `latest_sql` reads."""
    of_events = (column for column in table.columns if column[0] != DELETED)
    return *of_events, ("_fate", "tinyint")


def refuse_truncations(
    records: SliceRows, pipeline: Pipeline, end: Offsets, source: LogSource
) -> None:
    """Turns truncations that cannot be applied to a table of latest rows into rejects.

    These are the truncations in a topic of several partitions: Kappa cannot know which changes in
    the other partitions were made before the truncation. `end` is the end of the slice.
    """
    latest = {t.latest.name: t.latest for t in pipeline.latest_tables if t.latest is not None}
    for topic in latest.values():
        partitions = _count_partitions(topic, end)
        if partitions == 1:
            continue
        found = records.truncations(topic)
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
        records.reject(refused_of(places, Reason.UNORDERED, raw_records(places, source)))


def latest_rows(
    records: SliceRows, topic: Topic, writer: TableWriter, mark: Mark, spark: SparkSession
) -> LatestRows | None:
    """Returns a slice's latest rows of a topic, as contributions to the table of `writer`.

    Returns None if the slice has no offsets of the topic. A truncation hides each key that is in
    the table before the slice, and each key that the slice writes before the truncation. These keys
    may be many, so DuckDB reads them from files. Raises Broken if a truncation is in a topic of
    several partitions, since then the order of the changes and the truncation is unknown.
    """
    rows = records.latest(topic, writer.birth)
    truncated = newest_truncation(records.truncations(topic))
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
    assert rows is not None, "a truncation is a record of the slice"
    query, stored = rows.as_query(spark), writer.stored_sql(writer.birth.keys)
    return query.changed_to(emptied_sql(writer.birth, query.sql, stored, truncated))


def _count_partitions(topic: Topic, end: Offsets) -> int:
    return max(topic.partitions, len(end.next.get(topic.name, {})))
