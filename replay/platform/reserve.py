"""The reserve: space of the root's disk that is given up once the disk is full.

Without any space no lease and no record can be put, and nothing can be deleted in order. So a file
keeps some space. Once the rest of the disk is used up, the supervisor deletes that file and lets
processes that write much rest: jobs, the archiver and a broker that has died. Once there is space
for twice the file, the supervisor makes the file again, and everything continues.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial

from kappa.state.disk_space import RESERVE, free_bytes, full_text
from kappa.state.store import Store


class DiskReserve:
    """The reserve of a root, for the supervisor."""

    def __init__(
        self,
        store: Store,
        length: int,
        *,
        say: Callable[[str], None],
        free: Callable[[], int] | None = None,
    ) -> None:
        """Takes the `length` in bytes; `free` returns the free bytes of the disk."""
        self._path = store.local.path(RESERVE)
        self._length = length
        self._say = say
        self._free = free or partial(free_bytes, store)
        self._full = False

    @property
    def full_disk_text(self) -> str:
        """A sentence on the full disk for people, or "" while there is space."""
        if not self._full:
            return ""
        return full_text(self._free(), self._length)

    def ensure_space(self) -> bool:
        """Gives up the reserve, or makes it again, depending on the space of the disk.

        Returns True if there is space for processes that write much.
        """
        free = self._free()
        if not self._full and free < self._length:
            self._full = True
            self._path.unlink(missing_ok=True)
            self._say(self.full_disk_text)
        elif self._full and free >= 2 * self._length:
            self._full = False
            self._say("the disk has space again: jobs go on")
        if not self._full and self._length and not self._path.exists():
            self._make_file()
        return not self._full

    def _make_file(self) -> None:
        # If the disk has no space for the file, the next look reports it.
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, self._length)
            finally:
                os.close(handle)
