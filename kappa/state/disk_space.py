"""Free space on the root's disk: a reserve file, and pausing the processes that write much.

Without any free space, no lease and no record can be stored, and nothing can be deleted safely. So
a file, the reserve, occupies some space. When less space is free than the reserve occupies, the
supervisor deletes the reserve and pauses the processes that write much: jobs and the archiver. A
broker that has died is not started again while the disk is full. When the free space is twice the
size of the reserve, the supervisor creates the reserve again, and the paused processes continue.
Other processes recognize a full disk by the missing reserve, since no report can be written to a
full disk.
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
    """Returns a sentence that says that the disk is full, for display.

    `free` is the free space in bytes, and `reserve` is the size of the reserve file in bytes. The
    sentence also contains the free space that is needed before jobs run again.
    """
    return (
        f"the disk is full: {size(free)} are free, and jobs run again once {size(2 * reserve)} are"
    )


def why_jobs_rest(store: Store, reserve: int) -> str:
    """Returns a sentence for display if jobs are paused because the disk is full, otherwise "".

    `reserve` is the size in bytes of the reserve file, which the supervisor deletes when the disk
    is full and creates again later. A full disk is recognized by this file, so call this function
    only while the supervisor runs.
    """
    free = free_bytes(store)
    given_up = not store.local.path(RESERVE).exists()
    return full_text(free, reserve) if given_up and free < 2 * reserve else ""


class DiskReserve:
    """A file that reserves space on the root's disk, so that a full disk can be handled.

    When the disk is full, the supervisor deletes the file, and so gains the file's space. Only the
    supervisor deletes and creates the file.
    """

    def __init__(
        self,
        store: Store,
        length: int,
        *,
        say: Callable[[str], None],
        free: Callable[[], int] | None = None,
    ) -> None:
        """Prepares a reserve file of `length` bytes, without creating the file.

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
        """A sentence for display that says that the disk is full, or "" if it is not full."""
        if not self._full:
            return ""
        return full_text(self._free(), self._length)

    def ensure_space(self) -> bool:
        """Deletes the reserve file if the disk is full, and creates it again if there is space.

        The disk is full if fewer bytes are free than the reserve file's length. The file is created
        again when twice this length is free. Returns True if the disk is not full, so that the
        processes that write much may run.
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
