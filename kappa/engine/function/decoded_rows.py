"""Functions that select decoded records, and turn records into rejects.

Both ways of decoding a slice, in this process and in Spark, use these functions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.folds.order import ORDER_COLUMNS
from kappa.declare.options import DELETED
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.function.refused_records import Refused
from kappa.engine.slice_rows import CountsOf
from kappa.records.decode.outcome import VALID, Counts, Fate
from kappa.records.redrive import Attempt, Position
from kappa.state.table import TableBirth

# The column of a decoded record behind each column of the rejects table. The table of an older
# build has fewer columns.
REJECT_COLUMNS = {
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
    "key": "_raw_key",
    "value": "_raw_value",
    "headers": "_raw_headers",
    "reason": "_reason",
    "detail": "_detail",
    "_redrives": "_redrives",
}
PLACE_AND_FATE = ("_partition", "_offset", "_fate", "_redrives")
ORDER_AND_FATE = ("_fate", *(name for name, _ in ORDER_COLUMNS))
NO_TRUNCATIONS = arrow_schema([("_fate", "tinyint"), *ORDER_COLUMNS]).empty_table()


def with_fate(table: pa.Table, *fates: Fate) -> pa.Table:
    """Returns the records of `table` that decoding has classified as one of `fates`."""
    wanted = pa.array(sorted(map(int, fates)), pa.int8())
    return table.filter(pc.is_in(table.column("_fate"), value_set=wanted))


def newest_truncation(truncations: pa.Table) -> tuple[int, int, int] | None:
    """Returns the log time, partition and offset of the newest truncation.

    Returns None if there are no truncations.
    """
    places = (truncations.column(name).to_pylist() for name, _ in ORDER_COLUMNS)
    return max(zip(*places, strict=True), default=None)


def without_places(rows: pa.Table, topic: str, places: Collection[Position]) -> pa.Table:
    """Returns `rows`, which are rows of `topic`, without the rows of the records at `places`."""
    if not places:
        return rows
    records = zip(
        rows.column("_partition").to_pylist(), rows.column("_offset").to_pylist(), strict=True
    )
    return rows.filter(
        pa.array([Position(topic, *record) not in places for record in records], pa.bool_())
    )


def topics_of(places: Iterable[Position]) -> set[str]:
    """Returns the names of the topics in which these places are."""
    return {place.topic for place in places}


def topics_with_attempts(seen: CountsOf) -> Iterable[str]:
    """Yields the names of the topics that have redriven records in the slice.

    `seen` contains the counts of the slice's records, per topic and partition.
    """
    return (name for name, parts in seen.items() if any(one.redriven for one in parts.values()))


def attempts_in(topic: str, rows: pa.Table) -> Iterable[Attempt]:
    """Yields an Attempt for each redriven record of a topic.

    An Attempt contains the record's place, the offset of the record that it redrives, and whether
    it is valid. `rows` contains only redriven records, with the columns PLACE_AND_FATE.
    """
    return (
        Attempt(
            Position(topic, row["_partition"], row["_offset"]),
            row["_redrives"],
            row["_fate"] in VALID,
        )
        for row in rows.to_pylist()
    )


def rejects_at(
    topic: str, rows: pa.Table, places: Collection[Position]
) -> Iterable[tuple[Position, int | None]]:
    """Yields pairs (place, offset or None) for the topic's rejects that are among `places`.

    The first value is the reject's place. The second value is the offset of the record that the
    reject redrives, or None if the reject is not a redriven record.
    """
    for row in rows.filter(pc.field("_fate") == int(Fate.REJECTED)).to_pylist():
        place = Position(topic, row["_partition"], row["_offset"])
        if place in places:
            yield place, row["_redrives"]


def hidden_rows(table: TableBirth, folded: Mapping[Position, int]) -> pa.Table:
    """Returns a hidden row of the rejects table for each redriven record that is folded.

    `folded` maps the place of such a record to the offset of the record that it redrives. Later
    slices read the hidden rows to find out which rejects have been redriven.
    """
    rows = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": at.offset,
            "_redrives": of,
            DELETED: True,
        }
        for at, of in folded.items()
    ]
    return pa.Table.from_pylist(rows, schema=arrow_schema(table.columns))


def with_rejects_counted(seen: CountsOf, refused: Refused) -> CountsOf:
    """Returns the counts `seen`, changed for the records in `refused`.

    These records are counted as rejected instead of decoded.
    """
    moved = Counter({part: rows.num_rows for part, rows in refused.items()})
    return _recounted(
        seen,
        lambda one, part: replace(
            one, decoded=one.decoded - moved[part], rejected=one.rejected + moved[part]
        ),
    )


def with_duplicates_counted(seen: CountsOf, duplicates: Iterable[Position]) -> CountsOf:
    """Returns the counts `seen`, changed for the records at the places `duplicates`.

    These records are counted as duplicate instead of decoded.
    """
    moved = Counter((place.topic, place.partition) for place in duplicates)
    return _recounted(
        seen,
        lambda one, part: replace(
            one, decoded=one.decoded - moved[part], duplicate=one.duplicate + moved[part]
        ),
    )


def _recounted(seen: CountsOf, change: Callable[[Counts, tuple[str, int]], Counts]) -> CountsOf:
    return {
        topic: {partition: change(one, (topic, partition)) for partition, one in parts.items()}
        for topic, parts in seen.items()
    }
