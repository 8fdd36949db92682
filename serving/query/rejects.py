"""Reads rejects: records that a build could not accept.

A reject contains the raw bytes of the record, its position in the topic's log, and the reason.
Every invalid record becomes a reject. Each function reads the rejects at a single snapshot, either
of the serving builds or of one given build.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kappa.base.clock import moment_text
from kappa.base.errors import UsageError, near_or_all
from kappa.base.sql import text
from kappa.declare.options import REJECTS
from kappa.records.redrive import Original, Position
from kappa.serving.query.pin.catalog import pin_build, pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.reader.reader import open_reader
from kappa.state.build import Birth, is_born, table_path
from kappa.state.file_sums import ensure_whole
from kappa.state.frontier import Frontier
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.versions import files
from kappa.tables.views.served_rows_sql import stored_sql


@dataclass(frozen=True, slots=True)
class Reject:
    """A record that a build of a pipeline has rejected.

    A user can correct a reject, and send the corrected record again: such a record is redriven.
    `original` is the record that a redriven record replaces: this record itself, or the record for
    which this record was redriven. `redriven_at` is the offset of the redriven record that was
    folded, or None. `timestamp` is text if Python cannot represent the time.
    """

    pipeline: str
    build: str
    at: Position
    timestamp: datetime | str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    reason: str
    detail: str
    original: Original
    redriven_at: int | None

    @property
    def time_text(self) -> str:
        """Returns the record's time in ISO 8601, in UTC, to the millisecond."""
        return moment_text(self.timestamp_ms)


@dataclass(frozen=True, slots=True)
class RejectFilter:
    """A filter for rejects. A field that is None leaves no rejects out.

    `pipeline` selects a serving pipeline, and `build` selects a build, even if the build does not
    serve. The filter also selects by reason, by position in the log, or by topics.
    """

    pipeline: str | None = None
    build: str | None = None
    reason: str | None = None
    at: Position | None = None
    topics: Collection[str] | None = None


def newest_rejects(
    store: Store, wanted: RejectFilter, *, limit: int | None, lease_seconds: float = 60.0
) -> tuple[Reject, ...]:
    """Returns the newest rejects that the filter `wanted` selects, newest first.

    At most `limit` rejects are returned, or all rejects if `limit` is None. Raises UsageError if
    the wanted pipeline is not served, or if the wanted build does not exist.
    """
    found = _read_rejects(
        store,
        wanted,
        '"timestamp" desc, "topic", "partition", "offset" desc '
        f"{'' if limit is None else f'limit {limit}'}",
        lease_seconds,
    )
    return tuple(
        sorted(
            found,
            key=lambda each: (
                -each.timestamp_ms,
                each.at.topic,
                each.at.partition,
                -each.at.offset,
                each.pipeline,
            ),
        )[:limit]
    )


def rejects_in_order(
    store: Store, wanted: RejectFilter, *, lease_seconds: float = 60.0
) -> tuple[Reject, ...]:
    """Returns all rejects that the filter `wanted` selects, by topic, partition and offset.

    Raises UsageError if the wanted pipeline is not served, or if the wanted build does not exist.
    """
    return tuple(
        sorted(
            _read_rejects(store, wanted, '"topic", "partition", "offset"', lease_seconds),
            key=lambda each: (each.at, each.pipeline),
        )
    )


@dataclass(frozen=True, slots=True)
class RejectCount:
    """The number of rejects, and the number of rejects that need a correction.

    `left` counts the rejects for which no corrected record was folded.
    """

    all: int
    left: int


# By build and version of its table of rejects: the rejects by reason.
KnownCounts = dict[tuple[str, int], Mapping[str, RejectCount]]


def count_rejects(
    store: Store, *, lease_seconds: float = 60.0, known: KnownCounts | None = None
) -> dict[tuple[str, str], RejectCount]:
    """Counts the rejects of the serving builds, by pipeline and reason.

    `known` contains the counts of an earlier call, and is updated to the present counts. If the
    version of a build's table of rejects has not changed, the function reuses the counts in
    `known`.
    """
    before = {} if known is None else dict(known)
    counted: KnownCounts = {}
    found: dict[tuple[str, str], RejectCount] = {}
    with pin_served(store, lease_seconds=lease_seconds) as pinned:
        snapshot = pinned.snapshot
        for pipeline, build in sorted(snapshot.serving.items()):
            birth, frontier = snapshot.births[build], snapshot.frontiers[build]
            key = build, frontier.versions[REJECTS]
            counts = before[key] if key in before else _counts_of(store, birth, frontier)
            counted[key] = counts
            found |= {(pipeline, reason): count for reason, count in counts.items()}
        pinned.confirm_kept()
    if known is not None:
        known.clear()
        known |= counted
    return found


def _counts_of(store: Store, birth: Birth, frontier: Frontier) -> Mapping[str, RejectCount]:
    rows = _stored_rows(
        store,
        birth,
        frontier,
        "select reason, count(*), count(*) - count(redriven_at) "
        f"from ({_rejects_sql(RejectFilter())}) group by reason order by reason",
    )
    return {str(reason): RejectCount(int(count), int(left)) for reason, count, left in rows}


def _read_rejects(
    store: Store, wanted: RejectFilter, order: str, lease_seconds: float
) -> Iterator[Reject]:
    with _pin_for(store, wanted.build, lease_seconds) as pinned:
        found = list(_rejects_in(store, pinned.snapshot, wanted, order))
        pinned.confirm_kept()
    yield from found


def _pin_for(
    store: Store, build: str | None, lease_seconds: float
) -> AbstractContextManager[PinnedSnapshot]:
    if build is not None and not is_born(store, build):
        raise UsageError(
            f"there is no build {build[:80]!r}",
            hint="kappa status and kappa history name the builds",
        )
    return (
        pin_served(store, lease_seconds=lease_seconds)
        if build is None
        else pin_build(store, build, lease_seconds=lease_seconds)
    )


def _rejects_in(
    store: Store, snapshot: Snapshot, wanted: RejectFilter, order: str
) -> Iterator[Reject]:
    if wanted.pipeline is not None and wanted.pipeline not in snapshot.serving:
        raise UsageError(
            f"no pipeline {wanted.pipeline} is served",
            hint=near_or_all(
                wanted.pipeline,
                sorted(snapshot.serving),
                none="nothing is served yet: kappa deploy",
            ),
        )
    for pipeline, build in snapshot.serving.items():
        if wanted.pipeline in {None, pipeline}:
            yield from _rejects_of_build(
                store,
                snapshot.births[build],
                snapshot.frontiers[build],
                wanted,
                order,
            )


def _rejects_of_build(
    store: Store, birth: Birth, frontier: Frontier, wanted: RejectFilter, order: str
) -> Iterator[Reject]:
    rows = _stored_rows(store, birth, frontier, f"{_rejects_sql(wanted)} order by {order}")
    for topic, partition, offset, *rest in rows:
        (
            timestamp,
            ms,
            key,
            value,
            headers,
            reason,
            detail,
            original,
            original_ms,
            redriven_at,
        ) = rest
        yield Reject(
            pipeline=birth.pipeline,
            build=birth.build,
            at=Position(topic, partition, offset),
            timestamp=timestamp,
            timestamp_ms=ms,
            key=key,
            value=value,
            headers=tuple((header["key"], header["value"]) for header in headers or ()),
            reason=reason,
            detail=detail,
            original=Original(Position(topic, partition, original), original_ms),
            redriven_at=redriven_at,
        )


def _stored_rows(
    store: Store, birth: Birth, frontier: Frontier, query: str
) -> Iterable[tuple[Any, ...]]:
    """Runs a query over a build's stored rejects, and returns the rows of the result.

    The query names the relation `stored`, which contains the rejects.
    """
    table = birth.table(REJECTS)
    paths = files(
        table_path(store, birth.build, REJECTS),
        frontier.versions[REJECTS],
        frontier.file_lists.get(REJECTS),
    )
    if not paths:
        # Most builds have rejected nothing.
        return ()
    ensure_whole(store, birth.build, paths)
    stored = _widened_sql(stored_sql(table, paths), table)
    with open_reader(None, served=True) as reader:
        return reader.rows(f"with stored as ({stored}) {query}").rows


def _widened_sql(stored: str, table: TableBirth) -> str:
    """Returns a query for a build's rejects with all columns that Kappa reads.

    `stored` is the query for the rejects in the build's `table`. If an older build's table lacks a
    column, the value of this column is null.
    """
    lacking = "".join(
        f', null as "{name}"'
        for name, _ in REJECTS_BIRTH.columns
        if name not in dict(table.columns)
    )
    return f"select *{lacking} from ({stored})"


def _rejects_sql(wanted: RejectFilter) -> str:
    """Returns the query that reads the wanted rejects from the relation `stored`.

    If a reject is itself a redriven (corrected and sent again) record, its row also contains the
    original reject. Each row also contains the offset of the redriven record that was folded for
    this reject or for its original.
    """
    conditions = ["r._deleted is not true"]
    if wanted.reason is not None:
        conditions.append(f"r.reason = {text(wanted.reason)}")
    if wanted.topics is not None:
        conditions.append(f"r.topic in ({', '.join(map(text, wanted.topics)) or 'null'})")
    if wanted.at is not None:
        conditions.append(
            f'r.topic = {text(wanted.at.topic)} and r."partition" = {wanted.at.partition} '
            f'and r."offset" = {wanted.at.offset}'
        )
    same = 'o.topic = r.topic and o."partition" = r."partition"'
    return (
        f"""
        select r.topic, r."partition", r."offset", r."timestamp", epoch_ms(r."timestamp"), """
        f"""r.key, r.value, r.headers, r.reason, r.detail,
            coalesce(first."offset", r."offset"), """
        f"""epoch_ms(coalesce(first."timestamp", r."timestamp")), """
        f"""coalesce(own."offset", firsts."offset") as redriven_at
        from stored r
        left join stored first on {same.replace("o.", "first.")} """
        f"""and first."offset" = r._redrives and first._deleted is not true
        left join stored own on {same.replace("o.", "own.")} """
        f"""and own._redrives = r."offset" and own._deleted
        left join stored firsts on {same.replace("o.", "firsts.")} """
        f"""and firsts._redrives = r._redrives and firsts._deleted
        where {" and ".join(conditions)}"""
    )
