"""Follows a served table: yields a snapshot, and then one net change set after the other.

Each step pins the serving snapshot, computes the difference from the last frontier, and writes a
lease that keeps the files of the new frontier. So no change is lost between two change sets, and no
change occurs twice. If a step fails, or if its change set was not used to the end, the step is
repeated from the same frontier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kappa.base.errors import KappaError
from kappa.serving.outlets.changes.change_set import ChangeKind, ChangeSet
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.difference import (
    drop_changes,
    has_same_rows,
    open_change_set,
    switch_kind,
)
from kappa.serving.outlets.changes.filter import Filter, ensure_fits
from kappa.serving.outlets.changes.table_snapshot import (
    Clock,
    Point,
    ensure_point_kept,
    not_served,
    point_at,
    point_of,
    put_point_lease,
)
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.reader.reader import Limits
from kappa.state.frontier import Frontiers
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store

# Seconds between two looks for something new.
_LOOK_SECONDS = 0.02
# A cursor that is so old is replaced though no row has changed.
_STALE_SECONDS = 10.0


class Follower:
    """Reads the changes of a served table, one change set after the other, for one reader.

    A follower may be used by one thread at a time.
    """

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
        """Begins at the cursor `since`, or with a snapshot if `since` is None.

        The files of a cursor are kept for `keep_seconds` after the cursor was returned. If a lease
        with the id `holder` exists, the files of the lease's cursor are kept while the lease lasts.
        If `starts_empty` is True, snapshots and resets contain no rows. A small change set is
        computed in memory. All other change sets are computed within `limits`, and can spill to
        disk. Raises UsageError if the table is not served, or if the filter `chosen` does not fit
        the table.
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
        # The generation and the frontier's number at the last look.
        self._looked = -1, -1
        self.chosen = chosen
        # Returns False while no pipeline serves the table (any more).
        self.is_served = True
        with pin_served(store, lease_seconds=lease_seconds) as pinned:
            point = point_of(pinned.snapshot, table)
            if point is None:
                raise not_served(pinned.snapshot, table)
        if chosen is not None:
            ensure_fits(chosen, point.table)

    @property
    def cursor(self) -> Cursor | None:
        """Returns the cursor of the last change set that was used to its end, or None."""
        return self._since if self._point is None else self._point.cursor

    def start_now(self) -> Point:
        """Begins at the present state of the table, without a snapshot, and returns this state.

        Raises UsageError if the table is no longer served.
        """
        with pin_served(self._store, lease_seconds=self._lease_seconds) as pinned:
            point = point_of(pinned.snapshot, self._table)
            if point is None:
                raise not_served(pinned.snapshot, self._table)
            self._keep_point(point, is_pinned=True)
            pinned.confirm_kept()
        self._move_to(point)
        return point

    @contextmanager
    def next_change_set(self) -> Iterator[ChangeSet | None]:
        """Opens and yields the next change set, or yields None if nothing has changed.

        When the block ends without an error, the follower moves to the cursor of this change set.
        """
        before = self._point_before()
        with pin_served(self._store, lease_seconds=self._lease_seconds) as pinned:
            after = point_of(pinned.snapshot, self._table)
            self.is_served = after is not None
            self._looked = (
                pinned.snapshot.generation,
                -1 if after is None else after.frontier.number,
            )
            kind = None if after is None else self._kind_between(before, after)
            if after is None or kind is None:
                if self._keep_point(before) and after is not None and self.cursor == after.cursor:
                    # As good as given out now.
                    self._given_at = self._clock()
                found = None
            else:
                found = open_change_set(
                    self._store,
                    kind,
                    before,
                    after,
                    self._limits,
                    starts_empty=self._starts_empty,
                    unlimited_if_small=True,
                )
                if self._is_needless(before, after, kind) and found[0].is_empty():
                    found[1].close()
                    found = None
            try:
                if found is not None and after is not None:
                    pinned.confirm_kept()
                    self._ensure_kept(before)
                    self._keep_point(after, is_pinned=True)
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
            drop_changes(reader)
        self._move_to(after)

    def _move_to(self, point: Point) -> None:
        self._point, self._since, self._given_at = point, None, self._clock()
        self._looked = point.generation, point.frontier.number

    def hold_cursor(self, seconds: float) -> None:
        """Writes a lease that keeps the files of the present cursor for `seconds`.

        The lease has the id `holder`, and replaces the lease with this id on an earlier cursor.
        """
        assert self._point is not None, "no change set was used"
        assert self._holder is not None, "nobody holds it"
        put_point_lease(self._store, self._point, self._holder, self._clock() + seconds)

    def wait_for_change(self, seconds: float) -> bool:
        """Waits until there may be another change set.

        Returns False if there is none after `seconds`.
        """
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

    def _point_before(self) -> Point | None:
        """Returns the state of the table at which the next change set begins.

        Returns None if there is no such state, or if the files of the state are no longer kept.
        """
        before = self._point
        if before is None and self._since is not None:
            before = point_at(
                self._store, self._since, self._table, self._clock(), holder=self._holder
            )
        return before if before is not None and self._keep_point(before) else None

    def _kind_between(self, before: Point | None, after: Point) -> ChangeKind | None:
        """Returns the kind of the change set between two states of the table.

        Returns None if no change set is needed.
        """
        if before is None:
            is_first = self._since is None and self._point is None
            return ChangeKind.SNAPSHOT if is_first else ChangeKind.RESET
        if before.birth.build != after.birth.build:
            return switch_kind(self._store, after)
        if before.frontier.number > after.frontier.number:
            return ChangeKind.RESET
        if before.cursor == after.cursor:
            return None
        if self._is_needless(before, after, ChangeKind.SLICE) and has_same_rows(
            self._store, before, after
        ):
            return None
        return ChangeKind.SLICE

    def _is_needless(self, before: Point | None, after: Point, kind: ChangeKind) -> bool:
        """Returns True if the change set between two states may be skipped when it has no rows.

        The first change set of a new generation is never skipped: otherwise, a reader could stay at
        an older cursor than another reader.
        """
        if before is None or kind is not ChangeKind.SLICE:
            return False
        return before.generation == after.generation and self._is_fresh()

    def _is_fresh(self) -> bool:
        """Returns True if the last cursor is so new that a change set without rows can be skipped.

        An older cursor is replaced even if no row has changed.
        """
        return self._clock() - self._given_at <= min(_STALE_SECONDS, self._keep_seconds / 3)

    def _keep_point(self, point: Point | None, *, is_pinned: bool = False) -> bool:
        return point is not None and ensure_point_kept(
            self._store,
            point,
            now=self._clock(),
            seconds=self._keep_seconds,
            is_pinned=is_pinned,
            holder=self._holder,
        )

    def _ensure_kept(self, point: Point | None) -> None:
        if point is not None and not self._keep_point(point):
            raise KappaError(
                f"the files of cursor {point.cursor} were deleted while they were read",
                hint="ask again: a snapshot follows",
            )
