"""Free space on the root's disk: the reserve, and pausing the processes that write much.

Without any free space, no lease and no record can be stored, and nothing can be deleted safely. So
a file, the reserve, occupies some space. When less space is free than the reserve occupies, the
supervisor deletes the reserve and pauses the processes that write much: jobs and the archiver. A
broker that has died is not started again while the disk is full. When twice the reserve is free,
the supervisor creates the reserve again, and the paused processes continue. Other processes
recognize a full disk by the missing reserve, since no report can be written to a full disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from functools import partial

from kappa.base.units import size
from kappa.state.store import Store

RESERVE = "reserve"


def free_bytes(store: Store) -> int:
    """Returns the number of free bytes on the root's disk."""
    return shutil.disk_usage(store.local.folder).free


def full_text(free: int, reserve: int) -> str:
    """Returns a sentence about a full disk, for display. `free` and `reserve` are in bytes."""
    return (
        f"the disk is full: {size(free)} are free, and jobs run again once {size(2 * reserve)} are"
    )


def why_jobs_rest(store: Store, reserve: int) -> str:
    """Returns a text for display if jobs rest because the disk is full, otherwise "".

    Call this function only while the supervisor runs: the supervisor deletes and creates the
    reserve, by which a full disk is recognized.
    """
    free = free_bytes(store)
    given_up = not store.local.path(RESERVE).exists()
    return full_text(free, reserve) if given_up and free < 2 * reserve else ""


class DiskReserve:
    """The reserve file of a root. Only the supervisor deletes and creates this file."""

    def __init__(
        self,
        store: Store,
        length: int,
        *,
        say: Callable[[str], None],
        free: Callable[[], int] | None = None,
    ) -> None:
        """Prepares a reserve of `length` bytes.

        `say` is called with a line of text when the disk becomes full, and when the disk has space
        again. `free` returns the number of free bytes on the disk.
        """
        self._path = store.local.path(RESERVE)
        self._length = length
        self._say = say
        self._free = free or partial(free_bytes, store)
        self._full = False

    @property
    def full_disk_text(self) -> str:
        """A sentence about the full disk for display, or "" while there is space."""
        if not self._full:
            return ""
        return full_text(self._free(), self._length)

    def ensure_space(self) -> bool:
        """Deletes the reserve if the disk is full, and creates it again when the disk has space.

        The disk is full if fewer bytes are free than the reserve's length. The reserve is created
        again when twice this length is free. Returns True if the processes that write much may run,
        that is, if the disk is not full.
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
