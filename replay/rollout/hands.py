"""The hands of a collection: a dry run looks, a collection deletes."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kappa.base.errors import Conflict
from kappa.base.failpoint import failpoint
from kappa.replay.rollout.garbage import Garbage
from kappa.state.build import folder
from kappa.state.file_sums import join_sums
from kappa.state.files.address import delete_files, deleted_at_once
from kappa.state.kept_frontiers import ensure_past_gone
from kappa.state.lease import put_floor
from kappa.state.lock import is_held
from kappa.state.root import lock_of
from kappa.state.store import Store


class Hands(Protocol):
    """The effects that differ between a dry run and a collection."""

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Returns a context in which no job of the build runs. Raises Conflict if one does."""

    def let_go(self, build: str, newest: int) -> None:
        """Lets go of frontiers before the newest, and of what is kept no longer.

        This is done before the leases are listed.
        """

    def delete(self, find: Garbage) -> None:
        """Deletes garbage."""


class Looking:
    """Hands that change nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Raises Conflict if a job of the build runs; holds nothing."""
        if is_held(self._store.local.path(f"{folder(build)}/lock")):
            raise Conflict(f"the job of build {build} runs")
        return contextlib.nullcontext()

    def let_go(self, build: str, newest: int) -> None:
        """Changes nothing."""

    def delete(self, find: Garbage) -> None:
        """Deletes nothing."""


class Deleting:
    """Hands that delete."""

    def __init__(self, store: Store, keep_seconds: float, now: float) -> None:
        self._store = store
        self._keep_seconds = keep_seconds
        self._now = now

    def hold(self, build: str) -> AbstractContextManager[object]:
        """Returns the lock of the build."""
        return lock_of(self._store, f"{folder(build)}/lock", what=f"build {build}")

    def let_go(self, build: str, newest: int) -> None:
        """Puts the floor, then lets go of what is kept no longer; joins the sums of frontiers."""
        join_sums(self._store, build)
        put_floor(self._store, build, newest)
        ensure_past_gone(self._store, build, self._now, self._keep_seconds)

    def delete(self, find: Garbage) -> None:
        """Deletes files, then the folders that are empty by then."""
        for part in deleted_at_once(find.files):
            failpoint("gc.before_delete")
            delete_files(part)
            failpoint("gc.after_delete")
        for folder_on_disk in find.folders:
            # A file may have been put into it since.
            failpoint("gc.before_rmdir")
            with contextlib.suppress(OSError):
                Path(folder_on_disk).rmdir()
            failpoint("gc.after_rmdir")
