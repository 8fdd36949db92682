"""Leases: the versions that readers have pinned. Floors: the limit of collection (law 11).

The files that only frontiers below a build's floor need may be deleted. Each side writes first and
reads second. A reader stores a lease, and then reads the floors. Collection stores a floor, and
then lists the leases. So in any order of these steps, at least one side sees the other. If a reader
has pinned a frontier below the floor, it gives the pin up. All other leases are respected by
collection.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from kappa.base.failpoint import failpoint
from kappa.state.build import folded_by, folder_of_build
from kappa.state.documents import Documents, NumberedRecords, NumberTaken
from kappa.state.files.address import ask_side_by_side
from kappa.state.frontier import Frontier
from kappa.state.store import Store

# How much longer collection keeps a lease: a renewal may be under way, two clocks may differ.
GRACE_SECONDS = 10.0
# The folder of all leases.
LEASES = "leases"


class Pin(Struct, frozen=True):
    """The pin of a build: the number of a frontier, and the Delta versions of its tables."""

    frontier: int
    versions: Mapping[str, int]


class Lease(Struct, frozen=True):
    """The lease of a reader on pinned versions.

    It is valid until `expires_at` (seconds since 1970), unless it is renewed. `frontier` is
    included for readers that come back later (serving/outlets/changes/table_snapshot.py), because
    maintenance deletes the records of old frontiers.
    """

    pid: int
    by: str
    expires_at: float
    pins: Mapping[str, Pin]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    frontier: Frontier | None = None
    format: int = 1


class Floor(Struct, frozen=True):
    """The floor of a build: files that only frontiers before `frontier` need may be deleted."""

    frontier: int
    format: int = 1


_LEASE = Documents(Lease, derived=True, synced=False)
_FLOOR = Documents(Floor)


def ensure_lease(store: Store, lease: Lease) -> None:
    """Stores a lease. If the lease exists and ends earlier, this renews it."""
    failpoint("lease.before_put")
    _LEASE.put(store, lease_name(lease.id), lease)
    failpoint("lease.after_put")


def ensure_released(store: Store, lease_id: str) -> None:
    """Deletes a lease. Does nothing if the lease does not exist."""
    failpoint("lease.before_release")
    store.delete(lease_name(lease_id))
    failpoint("lease.after_release")


def ensure_renewed(store: Store, lease_id: str, *, now: float, seconds: float) -> bool:
    """Extends a lease if a third of its time has passed. Returns False if the lease has ended.

    `now` is in seconds since 1970, and `seconds` is the duration from now. A lease that has ended
    is not extended, since its versions may already be deleted.
    """
    lease = read_lease(store, lease_id)
    if lease is None or now >= lease.expires_at:
        return False
    if lease.expires_at - now < seconds * 2 / 3:
        ensure_lease(store, replace(lease, expires_at=now + seconds))
    return True


def read_lease(store: Store, lease_id: str) -> Lease | None:
    """Returns a lease, or None if it does not exist."""
    return _LEASE.get(store, lease_name(lease_id), f"lease {lease_id}")


def is_put(store: Store, lease_id: str) -> bool:
    """Returns True if a lease exists, even if it has ended."""
    if store.is_on_disk:
        # Each answer of a query asks: this takes a tenth of the time of an object.
        return store.path(lease_name(lease_id)).exists()
    return read_lease(store, lease_id) is not None


def live_leases(store: Store, now: float) -> tuple[Lease, ...]:
    """Returns the leases that collection must respect at `now`, in seconds since 1970.

    Deletes the leases that have ended. The reader of such a lease notices this before it gives out
    an answer, and starts over.
    """
    live, ended = sorted_leases(store, now)
    for lease in ended:
        ensure_released(store, lease.id)
    return live


def sorted_leases(store: Store, now: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Returns the leases that collection must respect at `now`, and those that have ended."""
    ids = (name.rsplit("/", 1)[-1].removesuffix(".json") for name in store.names(LEASES))
    found = ask_side_by_side(store.url, lambda each: read_lease(store, each), ids)
    there = [lease for lease in found if lease is not None]
    live = tuple(lease for lease in there if now < lease.expires_at + GRACE_SECONDS)
    return live, tuple(lease for lease in there if lease not in live)


def lease_name(lease_id: str) -> str:
    """Returns the name of a lease, relative to the root."""
    return f"{LEASES}/{lease_id}.json"


def read_floor(store: Store, build: str) -> int:
    """Returns the lowest frontier of a build whose versions are kept without a lease.

    Returns 0 if there is no floor yet.
    """
    last = floor_records(store, folded_by(store, build)).last()
    return 0 if last is None else last[1].frontier


def put_floor(store: Store, build: str, frontier: int) -> None:
    """Moves the floor of a build up to `frontier`. Call it before the leases are listed.

    A floor never falls: if the present floor is as high or higher, it stays. Raises NumberTaken if
    another process stored a floor at the same time, since a build has one writer.
    """
    floors = floor_records(store, build)
    last = floors.last()
    number = 0 if last is None else last[0]
    if last is None or last[1].frontier < frontier:
        number += 1
        _put_floor(floors, build, number, Floor(frontier))
    # Also for a floor that is put already: the process that put it may have died before this.
    failpoint("floor.before_delete")
    floors.delete_below(number)
    failpoint("floor.after_delete")


def _put_floor(floors: NumberedRecords[Floor], build: str, number: int, let_go: Floor) -> None:
    failpoint("floor.before_put")
    put = floors.put(number, let_go)
    failpoint("floor.after_put")
    if not put:
        raise NumberTaken(f"floor {number} of build {build}")


def floor_records(store: Store, build: str) -> NumberedRecords[Floor]:
    """Returns the stored records of a build's floors."""
    return NumberedRecords(
        store, f"{folder_of_build(build)}/floor", _FLOOR, f"floor {{}} of build {build}"
    )
