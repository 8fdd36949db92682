"""A follower of a served table: its snapshot, then one net change set after the other.

Each step pins what is served, computes the difference from the last point, and keeps the new point
by its cursor's lease. So nothing is between two change sets, and none comes twice. A step that
fails, or whose change set was not used to the end, is taken again from the same point.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kappa.base.errors import KappaError
from kappa.journal.events import Served, SwitchAsked
from kappa.journal.view import JournalView
from kappa.state.frontier import Frontiers
from kappa.state.store import Store
from kappa.sums.whole import ensure_whole
from kappa.tables.parquet import parquet_sql
from kappa.tables.versions import FileLists
from serving.changes.change_set import CHANGES, ChangeSet, Head, Kind
from serving.changes.cursor import Cursor
from serving.changes.filter import Filter, ensure_filter
from serving.changes.net import TOUCHED, Net, between, is_same, paths_of, whole
from serving.changes.point import (
    Clock,
    Point,
    ensure_point_kept,
    not_served,
    point_at,
    point_of,
)
from serving.pin.catalog import pin
from serving.reader.opened import open_reader
from serving.reader.reader import Limits, Reader

# Seconds between two looks for something new.
_LOOK_SECONDS = 0.02
# A cursor that is so old is replaced though no row has changed.
_STALE_SECONDS = 10.0
_files = functools.lru_cache(maxsize=256)(FileLists().at)


class Follower:
    """The changes of one served table, for one reader. Used by one thread at a time."""

    def __init__(
        self,
        store: Store,
        table: str,
        *,
        since: Cursor | None = None,
        chosen: Filter | None = None,
        lease_seconds: float = 60.0,
        keep_seconds: float = 60.0,
        limits: Limits | None = None,
        clock: Clock = time.time,
    ) -> None:
        """Begins at the cursor `since`, or with a snapshot.

        Cursors are kept for `keep_seconds` after they were given out. A change set of a slice is
        computed in memory; `limits` are those of a snapshot and of a switch, which spill. Raises
        UsageError if no such table is served, or `chosen` does not fit it.
        """
        self._store = store
        self._table = table
        self._since = since
        self._lease_seconds = lease_seconds
        self._keep_seconds = keep_seconds
        self._limits = limits
        self._clock = clock
        self._point: Point | None = None
        self._given_at = 0.0
        # The generation and the frontier's number at the last look.
        self._looked = -1, -1
        self.chosen = chosen
        # Returns False while no pipeline serves the table (any more).
        self.is_served = True
        with pin(store, lease_seconds=lease_seconds) as pinned:
            point = point_of(pinned.snapshot, table)
            if point is None:
                raise not_served(pinned.snapshot, table)
            self.pipeline = point.birth.pipeline
        if chosen is not None:
            self.ensure_filter(point, chosen)

    @property
    def cursor(self) -> Cursor | None:
        """Returns the cursor of the last change set that was used, or None if none was."""
        return self._since if self._point is None else self._point.cursor

    def ensure_filter(self, point: Point, chosen: Filter) -> None:
        """Raises UsageError if a reader wants what the table does not have."""
        served = point.table.served
        with open_reader(None, served=True) as reader:
            ensure_filter(chosen, served, reader.tree, self._table)
            if chosen.where is not None:
                reader.described(
                    f"select 1 from ({parquet_sql(served, ())}) where (\n{chosen.where}\n)"
                )

    def start_now(self) -> Point:
        """Begins with what is served now, in place of a snapshot of it. Returns that point.

        Raises UsageError if the table is not served any more.
        """
        with pin(self._store, lease_seconds=self._lease_seconds) as pinned:
            point = point_of(pinned.snapshot, self._table)
            if point is None:
                raise not_served(pinned.snapshot, self._table)
            self._keep(point, is_pinned=True)
            pinned.confirm()
        self._moved_to(point)
        return point

    @contextmanager
    def next(self) -> Iterator[ChangeSet | None]:
        """Opens the next change set; None if nothing has changed.

        The follower moves on when the block has ended without an error.
        """
        before = self._before()
        with pin(self._store, lease_seconds=self._lease_seconds) as pinned:
            after = point_of(pinned.snapshot, self._table)
            self.is_served = after is not None
            self._looked = (
                pinned.snapshot.generation,
                -1 if after is None else after.frontier.number,
            )
            kind = None if after is None else self._kind(before, after)
            if after is None or kind is None:
                self._keep(before)
                found = None
            else:
                limits = None if kind is Kind.SLICE else self._limits
                found = open_change_set(self._store, kind, before, after, limits)
                if kind is Kind.SLICE and self._is_fresh() and found[0].is_empty():
                    found[1].close()
                    found = None
            try:
                if found is not None and after is not None:
                    pinned.confirm()
                    self._ensure_kept(before)
                    self._keep(after, is_pinned=True)
            except BaseException:
                if found is not None:
                    found[1].close()
                raise
        if found is None or after is None:
            yield None
            return
        change_set, reader = found
        with reader:
            yield change_set
            _clear(reader)
        self._moved_to(after)

    def _moved_to(self, point: Point) -> None:
        self._point, self._since, self._given_at = point, None, self._clock()
        self._looked = point.generation, point.frontier.number

    def wait(self, seconds: float) -> bool:
        """Waits until there may be another change set. Returns False if the time has passed."""
        deadline = time.monotonic() + seconds
        while not self._may_differ():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def _may_differ(self) -> bool:
        point = self._point
        if point is None:
            return True
        _, record = JournalView(self._store).last_served()
        generation = getattr(record and record.event, "generation", 0)
        if generation != self._looked[0]:
            return True
        if not self.is_served:
            return False
        frontiers = Frontiers(self._store, point.birth.build)
        if frontiers.get(self._looked[1] + 1) is not None:
            return True
        return self._clock() - self._given_at > self._keep_seconds / 3

    def _before(self) -> Point | None:
        """Returns the point that the next change set leads from, if it is still kept."""
        before = self._point
        if before is None and self._since is not None:
            before = point_at(self._store, self._since, self._table, self._clock())
        return before if before is not None and self._keep(before) else None

    def _kind(self, before: Point | None, after: Point) -> Kind | None:
        """Returns the kind of the change set between two points; None: there is none to give."""
        if before is None:
            is_first = self._since is None and self._point is None
            return Kind.SNAPSHOT if is_first else Kind.RESET
        if before.birth.build != after.birth.build:
            return _switch_kind(self._store, after)
        if before.frontier.number > after.frontier.number:
            return Kind.RESET
        if before.cursor == after.cursor:
            return None
        return None if is_same(self._store, before, after) and self._is_fresh() else Kind.SLICE

    def _is_fresh(self) -> bool:
        """Returns True if the last cursor need not be replaced yet though no row has changed."""
        return self._clock() - self._given_at <= min(_STALE_SECONDS, self._keep_seconds / 3)

    def _keep(self, point: Point | None, *, is_pinned: bool = False) -> bool:
        return point is not None and ensure_point_kept(
            self._store,
            point,
            now=self._clock(),
            seconds=self._keep_seconds,
            is_pinned=is_pinned,
        )

    def _ensure_kept(self, point: Point | None) -> None:
        if point is not None and not self._keep(point):
            raise KappaError(
                f"the files of cursor {point.cursor} were deleted while they were read",
                hint="ask again: a snapshot follows",
            )


@contextmanager
def changes_until(
    store: Store, before: Point | None, after: Point, *, is_first: bool, limits: Limits | None
) -> Iterator[ChangeSet]:
    """Opens the change set that leads from one point, or from nothing, to a certain other one.

    Both must be kept meanwhile. `is_first`: nothing was asked for before, so it is no reset.
    """
    kind = (
        (Kind.SNAPSHOT if is_first else Kind.RESET)
        if before is None
        else Kind.SLICE
        if before.birth.build == after.birth.build
        else _switch_kind(store, after)
    )
    change_set, reader = open_change_set(store, kind, before, after, limits)
    with reader:
        yield change_set
        _clear(reader)


def open_change_set(
    store: Store, kind: Kind, before: Point | None, after: Point, limits: Limits | None
) -> tuple[ChangeSet, Reader]:
    """Computes a change set, and returns it with its reader, which the caller closes."""
    earlier = None if kind is Kind.RESET else before
    net = whole(store, after, _files) if earlier is None else between(store, earlier, after, _files)
    for point in (after,) if earlier is None else (earlier, after):
        ensure_whole(store, point.birth.build, paths_of(store, point, _files))
    reader = open_reader(limits, served=True)
    try:
        _put(reader, net)
    except BaseException:
        reader.close()
        raise
    head = Head(
        kind,
        after.table.name,
        after.birth.pipeline,
        None if earlier is None else earlier.cursor,
        after.cursor,
        after.frontier.offsets,
        after.table.keys,
        after.table.served,
    )
    return ChangeSet(head, after, reader, (earlier or after).table.served), reader


def _clear(reader: Reader) -> None:
    """Drops the relations: the connection may be another reader's next."""
    reader.command(f"drop table {CHANGES}; drop table if exists {TOUCHED}")


def _put(reader: Reader, net: Net) -> None:
    """Makes the relation of all changes in a reader."""
    if net.touched is not None:
        reader.command(f"create or replace temp table {TOUCHED} as {net.touched}")
    reader.command(f"create or replace temp table {CHANGES} as {net.difference}")


def _switch_kind(store: Store, after: Point) -> Kind:
    """Returns the kind of the switch that made a point's build serve, as the journal has it."""
    records = JournalView(store).records()
    for record in reversed(records):
        event = record.event
        if not isinstance(event, Served) or event.generation > after.generation:
            continue
        for switched in event.switched:
            begun = records[switched.rollout - 1].event
            if getattr(begun, "pipeline", None) == after.birth.pipeline:
                return Kind.UNDO if isinstance(begun, SwitchAsked) else Kind.PROMOTE
    return Kind.PROMOTE
