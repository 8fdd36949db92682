"""The decision for each redriven record: the record is folded, or is a duplicate.

A redriven record is the corrected copy of a reject. kappa/records/redrive.py contains the rules.
The rejects table contains the results of earlier slices: the rejects, and a hidden row for each
redriven record that was folded. Only rows with offsets before the slice are used. So if a slice is
folded again after a crash, the decisions are the same, even if the table contains later rows by
then. A build from before the introduction of redriven records cannot store which records were
redriven. Such a build folds redriven records like any other records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from kappa.declare.options import DELETED
from kappa.declare.values.reason import FOLDED_REASONS
from kappa.records.redrive import Attempt, Position, settle
from kappa.state.build import Birth
from kappa.state.slices import Slice
from kappa.state.table import TableBirth
from kappa.tables.parquet import parquet_dataset

if TYPE_CHECKING:
    from kappa.engine.slice_rows import SliceRows

_COLUMNS = ("topic", "partition", "offset", "_redrives", DELETED)


def settle_redriven(
    records: SliceRows,
    piece: Slice,
    birth: Birth,
    rejects: TableBirth,
    files_now: Callable[[], Sequence[str]],
) -> None:
    """Decides for each redriven record of a decoded slice whether it is folded or is a duplicate.

    The decisions are passed to `records.settle`. `files_now` returns the files of the rejects
    table, and is called only if the slice has redriven records.
    """
    if not remembers(rejects):
        return
    attempts = records.attempts()
    if not attempts:
        return
    files = files_now()
    parts = sorted({(attempt.at.topic, attempt.at.partition) for attempt in attempts})
    folded = {
        Position(topic, partition, row["_redrives"])
        for topic, partition in parts
        for row in _before(files, piece, topic, partition, pc.field(DELETED) == True)  # noqa: E712  # an expression of Arrow's
    }
    records.settle(
        settle(
            attempts,
            _rejected(records, attempts, piece, files),
            folded,
            {part: birth.origin_offsets.at(*part) for part in parts},
        )
    )


def remembers(rejects: TableBirth) -> bool:
    """Returns True if the build's rejects table can store which records were redriven."""
    return "_redrives" in dict(rejects.columns)


def _rejected(
    records: SliceRows,
    attempts: Collection[Attempt],
    piece: Slice,
    files: Sequence[str],
) -> dict[Position, int | None]:
    """Finds the rejects that the redriven records name, and the rejects that those rejects name.

    Returns, for each reject, its place and the offset of the record that the reject redrives, or
    None. A reject may itself be a redriven record that names another reject, so there are chains.
    Two reads are enough, however long a chain is. The first read finds all rejects that are
    redriven records, which are few, and the rejects that `attempts` name. The second read finds the
    beginnings of the chains.
    """
    named = {Position(attempt.at.topic, attempt.at.partition, attempt.of) for attempt in attempts}
    links = pc.field("_redrives").is_valid()
    found = _rejects_at(records, named, piece, files, or_if=links)
    failed = {attempt.at: attempt.of for attempt in attempts if not attempt.valid}
    beginnings = _followed(named, {**found, **failed}) - named - found.keys()
    return found | _rejects_at(records, beginnings, piece, files) if beginnings else found


def _followed(
    named: Collection[Position], rejected: Mapping[Position, int | None]
) -> set[Position]:
    """Returns the places in `named`, and all places that can be reached from them.

    `rejected` maps the place of each reject to the offset of the record that the reject redrives,
    or to None. That record's place is reached from the reject's place.
    """
    reached: set[Position] = set()
    left = list(named)
    while left:
        place = left.pop()
        if place not in reached:
            reached.add(place)
            of = rejected.get(place)
            left += [] if of is None else [Position(place.topic, place.partition, of)]
    return reached


def _rejects_at(
    records: SliceRows,
    places: Collection[Position],
    piece: Slice,
    files: Sequence[str],
    *,
    or_if: pc.Expression | None = None,
) -> dict[Position, int | None]:
    """Returns the rejects at `places`, and earlier rejects that meet the condition `or_if`.

    The place of each reject is mapped to the offset of the record that the reject redrives, or to
    None. Rejects of this slice are found in `records`, and rejects of earlier slices in `files`.
    The condition `or_if` is applied only to rejects of earlier slices.
    """
    found = records.rejected(places)
    for topic, partition in {(place.topic, place.partition) for place in places}:
        offsets = [
            place.offset for place in places if (place.topic, place.partition) == (topic, partition)
        ]
        there = pc.field("offset").isin(offsets)
        wanted = (there if or_if is None else there | or_if) & pc.field(DELETED).is_null()
        reason = pc.field("reason")
        wanted &= reason.is_null() | ~reason.isin([*map(str, sorted(FOLDED_REASONS))])
        rows = _before(files, piece, topic, partition, wanted)
        found |= {Position(topic, partition, row["offset"]): row["_redrives"] for row in rows}
    return found


def _before(
    files: Sequence[str], piece: Slice, topic: str, partition: int, where: pc.Expression
) -> list[dict[str, int]]:
    """Reads the rows of the rejects table for a partition, with offsets before the slice.

    `files` are the files of the rejects table. Only rows that meet the condition `where` are
    returned.
    """
    if not files:
        return []
    of_part = (
        (pc.field("topic") == topic)
        & (pc.field("partition") == partition)
        & (pc.field("offset") < piece.start.at(topic, partition))
    )
    rows: list[dict[str, int]] = (
        parquet_dataset(files).to_table(columns=list(_COLUMNS), filter=of_part & where).to_pylist()
    )
    return rows
