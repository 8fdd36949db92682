"""A point: the state of a served table at a frontier.

A lease keeps the files of a point for a cursor. The id of the lease is derived from the cursor, so
all followers at the same cursor renew the same lease. The lease also contains the frontier itself,
because Kappa deletes the records of old frontiers while leases still keep the frontiers' files.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from kappa.base.errors import Damaged, UsageError, near_or_all
from kappa.declare.options import REJECTS
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.pin.snapshot_reads import is_collected
from kappa.state.build import Birth, is_born, read_birth, recent_names, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.journal import process_user
from kappa.state.kept_frontiers import read_kept_frontier
from kappa.state.lease import Lease, Pin, ensure_lease, ensure_released, read_lease
from kappa.state.log_clock import log_clock
from kappa.state.store import Store
from kappa.state.table import TableBirth

# Gives seconds since 1970, as leases have them.
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Point:
    """The state of a served table at a frontier of its build.

    `generation` is the generation in which readers see this state.
    """

    generation: int
    birth: Birth
    frontier: Frontier
    table: TableBirth

    @property
    def cursor(self) -> Cursor:
        """Returns the cursor of this state in the sequence of changes."""
        return Cursor(self.generation, self.birth.build, self.frontier.number)

    @property
    def log_clock(self) -> int | None:
        """Returns the log's clock in this state of the table.

        The clock decides which rows have expired.
        """
        return log_clock(self.birth, self.frontier.log_time)

    def table_versions(self, store: Store) -> dict[str, int]:
        """Returns the Delta versions of the table and of its tables of recent rows, by path."""
        names = (self.table.name, *recent_names(self.table.name))
        return {
            table_path(store, self.birth.build, name): self.frontier.versions[name]
            for name in names
            if name in self.frontier.versions
        }


def file_list_sums(store: Store, *points: Point) -> dict[tuple[str, int], str]:
    """Returns the checksums of the file lists of some tables, by table path and version.

    `points` are the states of the tables. A file list contains the data files of a table's version.
    The frontiers of the states contain the checksums.
    """
    return {
        (table_path(store, each.birth.build, name), version): each.frontier.file_lists[name]
        for each in points
        for name, version in each.frontier.versions.items()
        if name in each.frontier.file_lists
    }


def point_of(snapshot: Snapshot, name: str) -> Point | None:
    """Returns the state of a served table in a snapshot.

    Returns None if no pipeline in the snapshot serves the table. Raises UsageError if the name
    belongs to a view that is not maintained, because such a view has no stored rows.
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
    """The error for a table that no pipeline serves."""

    status = 404


def not_served(snapshot: Snapshot, name: str) -> NotServed:
    """Creates the error for a table that no pipeline serves."""
    there = sorted(
        table.name
        for build in snapshot.serving.values()
        for table in snapshot.births[build].tables
        if table.name != REJECTS
    )
    return NotServed(
        f"no pipeline serves a table {name}",
        hint=near_or_all(name, there, none="nothing is served yet: kappa deploy"),
    )


def point_at(
    store: Store, cursor: Cursor, name: str, now: float, *, holder: str | None = None
) -> Point | None:
    """Returns the state of a table at a cursor.

    Returns None if the frontier of the cursor is no longer known, or if the build does not have the
    table. The caller must next call `ensure_point_kept`, which finds out whether the files still
    exist.
    """
    if not is_born(store, cursor.build):
        return None
    try:
        birth = read_birth(store, cursor.build)
    except Damaged:
        # The build may be deleted at this moment.
        return None
    table = next((each for each in birth.tables if each.name == name), None)
    ids = (cursor_lease_id(birth, cursor.frontier), *(() if holder is None else (holder,)))
    leased = (_leased_frontier(store, id_, birth.folded_by, cursor.frontier, now) for id_ in ids)
    frontier = next((each for each in leased if each is not None), None)
    if frontier is None:
        frontier = Frontiers(store, cursor.build).get(cursor.frontier)
    if frontier is None:
        kept = read_kept_frontier(store, birth.folded_by, cursor.frontier)
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
    """Writes a lease that keeps the files of a table's state until `seconds` after `now`.

    Returns False if the files are no longer kept. A valid lease is never shortened. All followers
    at the same cursor share this lease, so it must not refer to files that may have been deleted.
    Therefore, a new lease is written only while another lease keeps the files: the lease of a
    pinned snapshot (`is_pinned`), the lease with the id `holder`, or a temporary lease. The
    temporary lease is written before the function checks whether garbage collection has passed the
    frontier.
    """
    id_, number = cursor_lease_id(point.birth, point.frontier.number), point.frontier.number
    there = read_lease(store, id_)
    if there is not None and now < there.expires_at:
        if there.expires_at - now < seconds * 2 / 3:
            ensure_lease(store, replace(there, expires_at=now + seconds))
        return True
    is_held = holder is not None and _leased_frontier(
        store, holder, point.frontier.build, number, now
    )
    if is_pinned or is_held:
        put_point_lease(store, point, id_, now + seconds)
        return True
    own = f"{id_}-{secrets.token_hex(4)}"
    put_point_lease(store, point, own, now + seconds)
    try:
        if is_collected(store, point.frontier):
            return False
        put_point_lease(store, point, id_, now + seconds)
    finally:
        ensure_released(store, own)
    return True


def put_point_lease(store: Store, point: Point, id_: str, expires_at: float) -> None:
    """Writes a lease with the given id on the files of a table's state.

    The lease also contains the frontier itself. `expires_at` is in seconds since 1970.
    """
    pins = {point.frontier.build: Pin(point.frontier.number, point.frontier.versions)}
    frontier = replace(point.frontier, sums={})
    ensure_lease(
        store, Lease(os.getpid(), process_user(), expires_at, pins, id=id_, frontier=frontier)
    )


def _leased_frontier(
    store: Store, id_: str, build: str, number: int, now: float
) -> Frontier | None:
    """Returns the frontier that the lease with the given id contains.

    Returns None if there is no valid lease at the time `now`, or if the lease's frontier has
    another build or number.
    """
    lease = read_lease(store, id_)
    if lease is None or lease.frontier is None or now >= lease.expires_at:
        return None
    is_it = lease.frontier.build == build and lease.frontier.number == number
    return lease.frontier if is_it else None


def cursor_lease_id(birth: Birth, frontier: int) -> str:
    """Returns the id of the lease that all followers at a cursor share.

    `frontier` is the number of the cursor's frontier.
    """
    return f"changes-{birth.folded_by}-{frontier}"
