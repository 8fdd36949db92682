"""A point: a served table at one frontier, and the lease that keeps its files for a cursor.

A cursor's lease has the cursor's name, so that every follower at that place renews the same one. It
has the frontier itself too: upkeep deletes the records of old frontiers, and only leases keep their
files then.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from kappa.base.errors import Damaged, UsageError, did_you_mean
from kappa.declare.options import REJECTS
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.query.pin.look import is_collected
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.state.build import Birth, is_born, read_birth, recent_names, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import whoami
from kappa.state.kept_frontiers import read_kept
from kappa.state.lease import Lease, Pin, ensure_lease, ensure_released, read_lease
from kappa.state.log_clock import log_clock
from kappa.state.store import Store
from kappa.state.table import TableBirth

# Gives seconds since 1970, as leases have them.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Point:
    """A table of a build at one frontier, as readers of one generation see it."""

    generation: int
    birth: Birth
    frontier: Frontier
    table: TableBirth

    @property
    def cursor(self) -> Cursor:
        """Returns its place in the sequence of changes."""
        return Cursor(self.generation, self.birth.build, self.frontier.number)

    @property
    def clock(self) -> int | None:
        """Returns the log's clock there, by which rows are gone."""
        return log_clock(self.birth, self.frontier.log_time)

    def versions(self, store: Store) -> dict[str, int]:
        """Returns the versions of its table and of that table's recent ones, by their paths."""
        names = (self.table.name, *recent_names(self.table.name))
        return {
            table_path(store, self.birth.build, name): self.frontier.versions[name]
            for name in names
            if name in self.frontier.versions
        }


def vouched_by(store: Store, *points: Point) -> dict[tuple[str, int], str]:
    """Returns the sums by which frontiers vouch for the file lists of these points."""
    return {
        (table_path(store, each.birth.build, name), version): each.frontier.file_lists[name]
        for each in points
        for name, version in each.frontier.versions.items()
        if name in each.frontier.file_lists
    }


def point_of(snapshot: Snapshot, name: str) -> Point | None:
    """Returns a served table in a snapshot, or None if no pipeline in it serves that table.

    Raises UsageError if the name is that of a view without rows of its own.
    """
    for build in snapshot.serving.values():
        birth = snapshot.births[build]
        for table in birth.tables:
            if table.name == name and name != REJECTS:
                return Point(snapshot.generation, birth, snapshot.frontiers[build], table)
        if name in birth.views:
            raise UsageError(
                f"{name} is a view that is computed when it is read, so it has no changes",
                hint=f'let it be maintained: View("{name}", ..., keys=[...]), then kappa deploy',
            )
    return None


class NotServed(UsageError):
    """A table that no pipeline serves."""

    status = 404


def not_served(snapshot: Snapshot, name: str) -> NotServed:
    """Returns the error of a table that no pipeline serves."""
    there = sorted(
        table.name
        for build in snapshot.serving.values()
        for table in snapshot.births[build].tables
        if table.name != REJECTS
    )
    return NotServed(
        f"no pipeline serves a table {name}",
        hint=did_you_mean(name, there)
        or (f"there are {', '.join(there)}" if there else "nothing is served yet: kappa deploy"),
    )


def point_at(
    store: Store, cursor: Cursor, name: str, now: float, *, holder: str | None = None
) -> Point | None:
    """Returns a table at a cursor, or None if what the cursor needs is not kept any more.

    It is to be kept next (`ensure_point_kept`).
    """
    if not is_born(store, cursor.build):
        return None
    try:
        birth = read_birth(store, cursor.build)
    except Damaged:
        # Its build may be deleted at this moment.
        return None
    table = next((each for each in birth.tables if each.name == name), None)
    ids = (lease_id(birth, cursor.frontier), *(() if holder is None else (holder,)))
    leased = (_held(store, id_, birth.folded_by, cursor.frontier, now) for id_ in ids)
    frontier = next((each for each in leased if each is not None), None)
    if frontier is None:
        frontier = Frontiers(store, cursor.build).get(cursor.frontier)
    if frontier is None:
        kept = read_kept(store, birth.folded_by, cursor.frontier)
        frontier = None if kept is None else kept.frontier
    if table is None or frontier is None:
        return None
    return Point(cursor.generation, birth, frontier, table)


def ensure_point_kept(
    store: Store,
    point: Point,
    *,
    now: float,
    seconds: float,
    is_pinned: bool = False,
    holder: str | None = None,
) -> bool:
    """Leases what a point needs for so many seconds. Returns False if it is not kept any more.

    A living lease is only ever made longer. A new one is put while another lease keeps the point:
    that of a snapshot that `is_pinned`, that of its `holder`, or one that is put here, before the
    look whether the point was collected (law 11). So the lease that cursors share is never one on
    files that may be gone.
    """
    id_, number = lease_id(point.birth, point.frontier.number), point.frontier.number
    there = read_lease(store, id_)
    if there is not None and now < there.expires_at:
        if there.expires_at - now < seconds * 2 / 3:
            ensure_lease(store, replace(there, expires_at=now + seconds))
        return True
    is_held = holder is not None and _held(store, holder, point.frontier.build, number, now)
    if is_pinned or is_held:
        put_lease(store, point, id_, now + seconds)
        return True
    own = f"{id_}-{secrets.token_hex(4)}"
    put_lease(store, point, own, now + seconds)
    try:
        if is_collected(store, point.frontier):
            return False
        put_lease(store, point, id_, now + seconds)
    finally:
        ensure_released(store, own)
    return True


def put_lease(store: Store, point: Point, id_: str, expires_at: float) -> None:
    """Puts a lease of what a point needs, with the frontier itself."""
    pins = {point.frontier.build: Pin(point.frontier.number, point.frontier.versions)}
    frontier = replace(point.frontier, sums={})
    ensure_lease(store, Lease(os.getpid(), whoami(), expires_at, pins, id=id_, frontier=frontier))


def _held(store: Store, id_: str, build: str, number: int, now: float) -> Frontier | None:
    """Returns the frontier of that number that a living lease has, or None if it has another."""
    lease = read_lease(store, id_)
    if lease is None or lease.frontier is None or now >= lease.expires_at:
        return None
    is_it = lease.frontier.build == build and lease.frontier.number == number
    return lease.frontier if is_it else None


def lease_id(birth: Birth, frontier: int) -> str:
    """Returns the id of the lease that cursors at a frontier share."""
    return f"changes-{birth.folded_by}-{frontier}"
