"""The records that a process has read, for a process that looks again and again.

A record that has not changed since is not read again: its file has the same inode, time and size.
Only a root on a disk is remembered. A process that decides reads all records each time, so that
damage shows; this memory is for what people look at.
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
    """The records below a root that this process has read. Threads may share it."""

    def __init__(self, store: Store) -> None:
        """Makes an empty memory."""
        self._store = store
        self._folder = str(store.folder) if store.is_on_disk else ""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[_Stamp, Any]] = {}

    def birth(self, build: str) -> Birth:
        """Returns a build's birth certificate. Raises Damaged as `read_birth` does."""
        return self.recalled(birth_name(build), "birth", lambda: read_birth(self._store, build))

    def beside_build(self, build: str, what: str, read: Callable[[], _Record]) -> _Record:
        """Returns what `read` reads of the documents in the folder of a build.

        `what` names the result. Documents are put under other names and then renamed, so each put
        changes the time of the folder.
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
        """Forgets all builds but these."""
        with self._lock:
            self._known = {
                key: each for key, each in self._known.items() if key[0].split("/")[1] in builds
            }

    def recalled(self, name: str, what: str, read: Callable[[], _Record]) -> _Record:
        """Returns what `read` reads of a file or folder of a build; `name` is below the root."""
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
