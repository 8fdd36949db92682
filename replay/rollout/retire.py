"""Retiring: the deletion of builds that nothing needs any more.

First a record retires the build. Then its job is gone, and then its data are deleted, as soon as no
lease is on them. A reader who pins it later finds a newer Served in the journal and starts over
(law 11). Its birth certificate is kept: the history refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kappa.base.disk import not_deleted
from kappa.base.errors import Conflict
from kappa.base.failpoint import failpoint
from kappa.replay.rollout.current import current_state
from kappa.replay.rollout.garbage import What, garbage_of
from kappa.state.build import folder
from kappa.state.files.address import (
    Entry,
    delete_files,
    deleted_at_once,
    entries_at,
    folders_in,
)
from kappa.state.lease import live_leases
from kappa.state.root import lock_of
from kappa.state.store import Store

_KEPT = frozenset({"birth.json", "lock"})
# Staging writes the folder and, seconds later, its record: after an hour nobody writes it.
_ORPHAN_SECONDS = 3600.0


def ensure_data_deleted(store: Store, build: str, *, now: float) -> bool:
    """Deletes the data of a retired build; returns False if a reader has them pinned at `now`.

    Raises Conflict if its job is alive after all.
    """
    if not any(data_of(store, build)):
        return True
    if any(build in lease.pins for lease in live_leases(store, now)):
        return False
    with lock_of(store, f"{folder(build)}/lock", what=f"build {build}"):
        _delete(data_of(store, build))
    return True


def ensure_orphans_deleted(store: Store, staged: frozenset[str], *, now: float) -> tuple[str, ...]:
    """Deletes the folders of builds that were never staged; returns their names.

    Nothing in such a folder is younger than an hour.
    """
    deleted = []
    for build in orphans(store, staged, now=now):
        with suppress(Conflict), lock_of(store, f"{folder(build)}/lock", what=build):
            if was_never_staged(store, build):
                _delete(entries_of(store, build))
                deleted.append(build)
    return tuple(deleted)


def orphans(store: Store, staged: frozenset[str], *, now: float) -> tuple[str, ...]:
    """Returns the builds, in the root or on this host, that were never staged.

    Nothing in such a folder is younger than an hour. Clocks jump: who stages a build has its lock
    until the record is there, so look again with the lock (`was_never_staged`) before you delete.
    """
    builds = {
        build for each in (store.local, store) for build in folders_in(each.address("builds"))
    }
    return tuple(
        build
        for build in sorted(builds)
        if build not in staged and now - _newest(store, build, otherwise=now) > _ORPHAN_SECONDS
    )


def was_never_staged(store: Store, build: str) -> bool:
    """Returns True if no record names a build at this moment."""
    return build not in current_state(store).versions


def entries_of(store: Store, build: str) -> Iterator[Entry]:
    """Yields all that there is of a build: first what is on this host, then what is in the root.

    So a build whose deletion was cut short is found again.
    """
    for place in _places(store, build):
        yield from entries_at(place)


def data_of(store: Store, build: str) -> Iterator[Entry]:
    """Yields what of a build is deleted when it is retired."""
    for place in _places(store, build):
        for each in entries_at(place):
            below = each.address.removeprefix(place).split("/")
            if len(below) > 1 and below[1] not in _KEPT:
                yield each


def _places(store: Store, build: str) -> tuple[str, ...]:
    """Returns the folders of a build; of a root on the disk they are one."""
    return tuple(dict.fromkeys(each.address(folder(build)) for each in (store.local, store)))


def _newest(store: Store, build: str, *, otherwise: float) -> float:
    return max((each.changed_at for each in entries_of(store, build)), default=otherwise)


def _delete(entries: Iterable[Entry]) -> None:
    found = garbage_of(None, What.RETIRED, entries)
    for part in deleted_at_once(found.files):
        failpoint("retire.before_delete")
        delete_files(part)
        failpoint("retire.after_delete")
    for each in found.folders:
        try:
            Path(each).rmdir()
        except OSError as error:
            raise not_deleted(Path(each), error) from error
