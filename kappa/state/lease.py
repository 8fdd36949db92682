"""A lease: a reader's pinned versions. A floor: how far collection has let go (law 11).

Each side writes first and looks second. A reader puts a lease, then reads the floors. Collection
puts a floor, then lists the leases. So at least one side sees the other, whatever the order. The
reader gives up a pinned frontier below the floor; collection keeps any other.
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
    """The pin of a build: a frontier's number, and the Delta versions of the tables there."""

    frontier: int
    versions: Mapping[str, int]


class Lease(Struct, frozen=True):
    """A reader's claim on pinned versions.

    The lease is good until `expires_at` (seconds since 1970) unless renewed. `frontier` is included
    for readers that come back (serving/outlets/changes/point.py), since upkeep deletes the records
    of old frontiers.
    """

    pid: int
    by: str
    expires_at: float
    pins: Mapping[str, Pin]
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    frontier: Frontier | None = None
    format: int = 1


class Floor(Struct, frozen=True):
    """The floor of a build: collection has let go of all frontiers before `frontier`."""

    frontier: int
    format: int = 1


_LEASE = Documents(Lease, derived=True, synced=False)
_FLOOR = Documents(Floor)


def ensure_lease(store: Store, lease: Lease) -> None:
    """Puts a lease; a second put with a later end renews the lease."""
    failpoint("lease.before_put")
    _LEASE.put(store, lease_name(lease.id), lease)
    failpoint("lease.after_put")


def ensure_released(store: Store, lease_id: str) -> None:
    """Gives a lease up; a missing lease is given up already."""
    failpoint("lease.before_release")
    store.delete(lease_name(lease_id))
    failpoint("lease.after_release")


def ensure_renewed(store: Store, lease_id: str, *, now: float, seconds: float) -> bool:
    """Extends a lease if a third of the time has passed. Returns False if the lease has ended.

    Only a living lease is extended: the pins of an ended lease may have been collected already.
    """
    lease = read_lease(store, lease_id)
    if lease is None or now >= lease.expires_at:
        return False
    if lease.expires_at - now < seconds * 2 / 3:
        ensure_lease(store, replace(lease, expires_at=now + seconds))
    return True


def read_lease(store: Store, lease_id: str) -> Lease | None:
    """Returns a lease, or None if the lease does not exist (any more)."""
    return _LEASE.get(store, lease_name(lease_id), f"lease {lease_id}")


def is_put(store: Store, lease_id: str) -> bool:
    """Returns True if a lease exists, whether ended or not."""
    if store.is_on_disk:
        # Each answer of a query asks: this takes a tenth of the time of an object.
        return store.path(lease_name(lease_id)).exists()
    return read_lease(store, lease_id) is not None


def live_leases(store: Store, now: float) -> tuple[Lease, ...]:
    """Returns the leases that collection must respect at `now`, in seconds since 1970.

    Ended leases are deleted. The reader of an ended lease notices the end before giving an answer
    out, and starts over.
    """
    live, ended = sorted_leases(store, now)
    for lease in ended:
        ensure_released(store, lease.id)
    return live


def sorted_leases(store: Store, now: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Returns the leases that collection must respect at `now`, and the ended leases."""
    ids = (name.rsplit("/", 1)[-1].removesuffix(".json") for name in store.names(LEASES))
    found = ask_side_by_side(store.url, lambda each: read_lease(store, each), ids)
    there = [lease for lease in found if lease is not None]
    live = tuple(lease for lease in there if now < lease.expires_at + GRACE_SECONDS)
    return live, tuple(lease for lease in there if lease not in live)


def lease_name(lease_id: str) -> str:
    """Returns the name of a lease below the root."""
    return f"{LEASES}/{lease_id}.json"


def read_floor(store: Store, build: str) -> int:
    """Returns the number of a build's least frontier whose versions are kept without a lease.

    Returns 0 if nothing was let go yet.
    """
    last = floor_records(store, folded_by(store, build)).last()
    return 0 if last is None else last[1].frontier


def put_floor(store: Store, build: str, frontier: int) -> None:
    """Lets go of a build's frontiers before `frontier`; call it before the leases are listed.

    A floor never falls: a floor that is not above the last counts as put. Raises Taken if another
    process put a floor at the same time: a build has one writer.
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
