"""Retiring: the deletion of builds that nothing needs any more.

First a record retires the build. Then its job is gone, and then its data are deleted, as soon as no
lease is on them. A reader who pins it later finds a newer Served in the journal and starts over
(law 11). Its birth certificate is kept: the history refers to it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kappa.base.disk import delete_file, not_deleted
from kappa.base.errors import Conflict
from kappa.base.failpoint import failpoint
from kappa.state.build import folder
from kappa.state.lease import live_leases
from kappa.state.lock import Lock
from kappa.state.store import Store
from replay.rollout.current import current_state

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
    with Lock(store.local.path(f"{folder(build)}/lock"), what=f"build {build}"):
        for path in data_of(store, build):
            _delete(path)
    return True


def ensure_orphans_deleted(store: Store, staged: frozenset[str], *, now: float) -> tuple[str, ...]:
    """Deletes the folders of builds that were never staged; returns their names.

    Nothing in such a folder is younger than an hour.
    """
    deleted = []
    for path in orphans(store, staged, now=now):
        with (
            suppress(Conflict),
            Lock(store.local.path(f"{folder(path.name)}/lock"), what=path.name),
        ):
            if was_never_staged(store, path.name):
                _delete(path)
                deleted.append(path.name)
    return tuple(deleted)


def orphans(store: Store, staged: frozenset[str], *, now: float) -> tuple[Path, ...]:
    """Returns the folders of builds that were never staged.

    Nothing in such a folder is younger than an hour. Clocks jump: who stages a build has its lock
    until the record is there, so look again with the lock (`was_never_staged`) before you delete.
    """
    return tuple(
        path
        for path in _entries(store.path("builds"))
        if path.is_dir() and path.name not in staged and now - _newest(path) > _ORPHAN_SECONDS
    )


def was_never_staged(store: Store, build: str) -> bool:
    """Returns True if no record names a build at this moment."""
    return build not in current_state(store).versions


def data_of(store: Store, build: str) -> Iterator[Path]:
    """Yields what of a build is deleted when it is retired."""
    return (path for path in _entries(store.path(folder(build))) if path.name not in _KEPT)


def _entries(path: Path) -> tuple[Path, ...]:
    return tuple(sorted(path.iterdir())) if path.is_dir() else ()


def _newest(path: Path) -> float:
    # Only the folder and its direct entries: stage writes there last.
    return max(
        (each.stat().st_mtime for each in (path, *_entries(path)) if each.exists()),
        default=time.time(),
    )


def _delete(path: Path) -> None:
    failpoint("retire.before_delete")
    if path.is_dir():
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise not_deleted(path, error) from error
    else:
        delete_file(path)
    failpoint("retire.after_delete")
