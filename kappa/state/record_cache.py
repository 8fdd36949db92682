"""A cache of records, for a process that reads the same records again and again.

A record is read again only if the inode, time or size of its file has changed. Only records of a
root on a disk are cached. The cache is for displays. A process that makes decisions reads all
records each time, so that it notices damage.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kappa.state.build import Birth, birth_name, folder_of_build, read_birth, tables_folder
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.store import Store

_Record = TypeVar("_Record")
# Inode, time of the last change in ns, and size; () for a missing file.
_Stamp = tuple[int, ...]
# Two changes within a tick of the kernel's clock have one time.
_TICK_NS = 50_000_000


class ReadMemory:
    """A cache of the records that this process has read below a root, for displays.

    Several threads may share a cache.
    """

    def __init__(self, store: Store) -> None:
        """Creates an empty cache for the records below the root of `store`."""
        self._store = store
        self._folder = str(store.folder) if store.is_on_disk else ""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[_Stamp, Any]] = {}

    def birth(self, build: str) -> Birth:
        """Returns the birth certificate of a build. Raises Damaged as `read_birth` does."""
        return self.recalled(birth_name(build), "birth", lambda: read_birth(self._store, build))

    def beside_build(self, build: str, what: str, read: Callable[[], _Record]) -> _Record:
        """Returns the result of `read`, from the cache if the build's folder has not changed.

        `read` is a function that reads documents in the folder of the build. `what` is the key of
        the result in the cache. A document is written under a temporary name and then renamed. So
        each write changes the folder's modification time, and the cache notices a changed document.
        """
        return self.recalled(folder_of_build(build), what, read)

    def newest_frontier(self, build: str) -> Frontier | None:
        """Returns the newest frontier of a build, as `Frontiers.newest` does."""
        return self.recalled(
            f"{tables_folder(self._store, build)}/frontier",
            "newest",
            lambda: Frontiers(self._store, build).newest(),
        )

    def forget_other(self, builds: frozenset[str]) -> None:
        """Removes the records of all builds from the cache, except those in `builds`."""
        with self._lock:
            self._known = {
                key: each for key, each in self._known.items() if key[0].split("/")[1] in builds
            }

    def recalled(self, name: str, what: str, read: Callable[[], _Record]) -> _Record:
        """Returns the result of `read`, from the cache if `name` has not changed since.

        `name` is the name of a file or folder, relative to the root, and `read` is a function that
        reads it. `what` distinguishes several results for one name. `read` is called if `name` has
        changed since the result was cached, or if the root is in a bucket.
        """
        if not self._store.is_on_disk:
            return read()
        stamp = self._stamp(name)
        known = self._known.get((name, what))
        if known is not None and known[0] == stamp:
            found: _Record = known[1]
            return found
        found = read()
        if not stamp or time.time_ns() - stamp[1] > _TICK_NS:
            with self._lock:
                self._known[name, what] = stamp, found
        return found

    def _stamp(self, name: str) -> _Stamp:
        try:
            # Half of the time of a look would go into a Path's parts.
            seen = os.stat(f"{self._folder}/{name}")  # noqa: PTH116  # as said above
        except OSError:
            return ()
        return seen.st_ino, seen.st_mtime_ns, seen.st_size
