"""Leases, by which readers pin versions, and floors, which limit garbage collection.

The floor of a build is a frontier. Garbage collection may delete files that only older frontiers
need. Readers and garbage collection both write first and read second: a reader stores a lease, and
then reads the floors; garbage collection stores a floor, and then lists the leases. So in any order
of these steps, at least one of the two notices the other. A reader that has pinned a frontier below
the floor gives up its lease. Garbage collection deletes no file that any other lease needs.
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
    """The state of a build that a lease pins: a frontier's number and its table versions."""

    frontier: int
    versions: Mapping[str, int]


class Lease(Struct, frozen=True):
    """A reader's lease, which pins states of builds (`pins`) until `expires_at`.

    `expires_at` is in seconds since 1970; renewing the lease increases it. `pins` maps each build
    to its pinned state. `frontier` is the pinned frontier itself, which a reader that returns later
    needs, because maintenance deletes the records of old frontiers.
    """

    pid: int
    by: str
    expires_at: float
    pins: Mapping[str, Pin]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    frontier: Frontier | None = None
    format: int = 1


class Floor(Struct, frozen=True):
    """The floor of a build: files that only frontiers before `frontier` need may be deleted.

    `frontier` is the number of a frontier.
    """

    frontier: int
    format: int = 1


_LEASE = Documents(Lease, derived=True, synced=False)
_FLOOR = Documents(Floor)


def ensure_lease(store: Store, lease: Lease) -> None:
    """Stores a lease. An existing lease with the same id is replaced, and so renewed."""
    failpoint("lease.before_put")
    _LEASE.put(store, lease_name(lease.id), lease)
    failpoint("lease.after_put")


def ensure_released(store: Store, lease_id: str) -> None:
    """Deletes a lease. Does nothing if the lease does not exist."""
    failpoint("lease.before_release")
    store.delete(lease_name(lease_id))
    failpoint("lease.after_release")


def ensure_renewed(store: Store, lease_id: str, *, now: float, seconds: float) -> bool:
    """Renews a lease if a third of its time has passed. Returns False if the lease has ended.

    `now` is in seconds since 1970. A renewed lease ends `seconds` after `now`. A lease that has
    ended is not renewed, since the files of the pinned versions may already be deleted.
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
    """Returns the leases that garbage collection must respect at `now`, in seconds since 1970.

    Deletes the leases that have ended. A reader whose lease has ended notices this before it
    returns an answer, and starts again.
    """
    live, ended = sorted_leases(store, now)
    for lease in ended:
        ensure_released(store, lease.id)
    return live


def sorted_leases(store: Store, now: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Returns the leases that garbage collection must respect, and the leases that have ended.

    `now` is in seconds since 1970.
    """
    ids = (name.rsplit("/", 1)[-1].removesuffix(".json") for name in store.names(LEASES))
    found = ask_side_by_side(store.url, lambda each: read_lease(store, each), ids)
    there = [lease for lease in found if lease is not None]
    live = tuple(lease for lease in there if now < lease.expires_at + GRACE_SECONDS)
    return live, tuple(lease for lease in there if lease not in live)


def lease_name(lease_id: str) -> str:
    """Returns the name of a lease, relative to the root."""
    return f"{LEASES}/{lease_id}.json"


def read_floor(store: Store, build: str) -> int:
    """Returns the number of the frontier that is a build's floor.

    Returns 0 if the build has no floor yet. Garbage collection keeps the table versions of the
    floor and of later frontiers even without a lease.
    """
    last = floor_records(store, folded_by(store, build)).last()
    return 0 if last is None else last[1].frontier


def put_floor(store: Store, build: str, frontier: int) -> None:
    """Raises the floor of a build to the frontier number `frontier`.

    Garbage collection calls this function before it lists the leases. If the present floor is as
    high or higher, it does not change. Raises NumberTaken if another process stored a floor at the
    same time, since a build has one writer.
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
