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
from dataclasses import replace

from kappa.base.errors import KappaError
from kappa.journal.events import Served, SwitchAsked
from kappa.journal.view import JournalView
from kappa.state.frontier import Frontiers
from kappa.state.store import Store
from kappa.sums.whole import ensure_whole
from kappa.tables.versions import FileLists
from serving.changes.change_set import CHANGES, ChangeSet, Head, Kind
from serving.changes.cursor import Cursor
from serving.changes.filter import Filter, ensure_fits
from serving.changes.net import TOUCHED, Net, between, is_same, paths_of, whole
from serving.changes.point import (
    Clock,
    Point,
    ensure_point_kept,
    not_served,
    point_at,
    point_of,
    put_lease,
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
        holder: str | None = None,
        starts_empty: bool = False,
        limits: Limits | None = None,
        clock: Clock = time.time,
    ) -> None:
        """Begins at the cursor `since`, or with a snapshot.

        Cursors are kept for `keep_seconds` after they were given out, and the one that a `holder`
        holds by a lease of its own for as long as that lasts. If the reader `starts_empty`,
        snapshots and resets come without rows. A change set of a slice is computed in memory;
        `limits` are those of a snapshot and of a switch, which spill. Raises UsageError if no such
        table is served, or `chosen` does not fit it.
        """
        self._store = store
        self._table = table
        self._since = since
        self._lease_seconds = lease_seconds
        self._keep_seconds = keep_seconds
        self._holder = holder
        self._starts_empty = starts_empty
        self._limits = limits
        self._clock = clock
        self._point: Point | None = None
        self._given_at = 0.0
        self.chosen = chosen
        # Returns False while no pipeline serves the table (any more).
        self.is_served = True
        with pin(store, lease_seconds=lease_seconds) as pinned:
            point = point_of(pinned.snapshot, table)
            if point is None:
                raise not_served(pinned.snapshot, table)
            self.pipeline = point.birth.pipeline
        if chosen is not None:
            ensure_fits(chosen, point.table)

    @property
    def cursor(self) -> Cursor | None:
        """Returns the cursor of the last change set that was used, or None if none was."""
        return self._since if self._point is None else self._point.cursor

    @contextmanager
    def next(self) -> Iterator[ChangeSet | None]:
        """Opens the next change set; None if nothing has changed.

        The follower moves on when the block has ended without an error.
        """
        before = self._before()
        with pin(self._store, lease_seconds=self._lease_seconds) as pinned:
            after = point_of(pinned.snapshot, self._table)
            self.is_served = after is not None
            kind = None if after is None else self._kind(before, after)
            if after is None or kind is None:
                self._keep(before)
                found = None
            else:
                found = self._opened(kind, before, after)
            try:
                if found is not None and after is not None:
                    pinned.confirm()
                    self._ensure_kept(before)
                    self._keep(after)
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
            # The connection may be another reader's next.
            reader.command(f"drop table {CHANGES}; drop table if exists {TOUCHED}")
        self._point, self._since, self._given_at = after, None, self._clock()

    def hold(self, seconds: float) -> None:
        """Holds the cursor by the holder's own lease, in place of the one that it held before."""
        assert self._point is not None, "no change set was used"
        assert self._holder is not None, "nobody holds it"
        put_lease(self._store, self._point, self._holder, self._clock() + seconds)

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
        if generation != point.generation or not self.is_served:
            return True
        frontiers = Frontiers(self._store, point.birth.build)
        if frontiers.get(point.frontier.number + 1) is not None:
            return True
        return self._clock() - self._given_at > self._keep_seconds / 3

    def _before(self) -> Point | None:
        """Returns the point that the next change set leads from, if it is still kept."""
        before = self._point
        if before is None and self._since is not None:
            before = point_at(
                self._store, self._since, self._table, self._clock(), holder=self._holder
            )
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
        is_fresh = self._clock() - self._given_at <= min(_STALE_SECONDS, self._keep_seconds / 3)
        if is_same(self._store, before, after) and (is_fresh or before.cursor == after.cursor):
            return None
        return Kind.SLICE

    def _opened(self, kind: Kind, before: Point | None, after: Point) -> tuple[ChangeSet, Reader]:
        starts_over = before is None or kind is Kind.RESET
        net = (
            whole(self._store, after, _files)
            if before is None or starts_over
            else between(self._store, before, after, _files)
        )
        if starts_over and self._starts_empty:
            net = replace(net, difference=f"{net.difference} limit 0")
        for point in (after,) if before is None else (before, after):
            paths = paths_of(self._store, point, _files)
            ensure_whole(self._store, point.birth.build, paths)
        reader = open_reader(self._limits if kind is not Kind.SLICE else None, served=True)
        try:
            _put(reader, net)
        except BaseException:
            reader.close()
            raise
        head = Head(
            kind,
            self._table,
            after.birth.pipeline,
            None if starts_over or before is None else before.cursor,
            after.cursor,
            after.frontier.offsets,
            after.table.keys,
            after.table.served,
        )
        earlier = after if before is None else before
        return ChangeSet(head, reader, earlier.table.served), reader

    def _keep(self, point: Point | None) -> bool:
        return point is not None and ensure_point_kept(
            self._store,
            point,
            now=self._clock(),
            seconds=self._keep_seconds,
            holder=self._holder,
        )

    def _ensure_kept(self, point: Point | None) -> None:
        if point is not None and not self._keep(point):
            raise KappaError(
                f"the files of cursor {point.cursor} were deleted while they were read",
                hint="ask again: a snapshot follows",
            )


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
