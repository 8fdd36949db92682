"""The lock that makes a process the only writer of a build: a file lock of the kernel.

The Python process of a job has the lock. The job's JVM does not have the lock, and may continue to
commit for a while after the Python process has died. So the lock's file also names the session of
the process that has the lock, its holder. The next holder first kills the remaining processes of
that session, and waits until they are gone.

A root may be copied while its processes run, and the lock's file is copied too. So the file
contains the id of the root, and the file's own device and inode. If this device and inode are those
of another file, the processes of the named holder belong to another root, and are not killed. A
process that does not provably belong to this root is not killed either: a process that was not
marked with the root's id, or a process of a session that began at another time.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from kappa.base.errors import Broken, Conflict, KappaError
from kappa.base.failpoint import failpoint
from kappa.base.process import (
    ProcessId,
    boot,
    ensure_session_gone,
    has_open,
    mark_children,
    process_id,
    session_members,
    started,
)

# struct flock of Linux on 64 bits: type, whence, start, length (0: all of the file), pid (0).
_FLOCK = "hhqqi0q"


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that has a lock, or the process that had it last, as the lock's file names it.

    `started` is the start of the process in clock ticks since `boot`, the start of the machine.
    `root` is the id of the process's root, or "" if the root has none. `device` and `inode` are
    those of the lock's file, or 0 if an earlier Kappa wrote the file.
    """

    pid: int
    session: int
    started: int
    boot: str
    root: str = ""
    device: int = 0
    inode: int = 0

    @property
    def process(self) -> ProcessId | None:
        """The holder's process, or None if that process has exited.

        The result is also None if another process has the same pid now.
        """
        if self.boot != boot() or started(self.pid) != self.started:
            return None
        return process_id(self.pid)


class Lock:
    """An exclusive lock on a file. The lock lasts until `release`, or until this process exits."""

    def __init__(self, path: Path, *, what: str, root: str = "") -> None:
        """Prepares a lock, without taking it.

        `what` is the name of the locked thing in errors: `build flights-3f9a2c`. `root` is the id
        of the root. When this process takes the lock, the processes that it starts later are marked
        with this id.
        """
        self._path = path
        self._what = what
        self._root = root
        self._file: int | None = None

    def acquire(self) -> Holder | None:
        """Takes the lock, ends the last holder's remaining processes, and returns the last holder.

        The last holder is the process that had the lock before, and its remaining processes are
        those in its session. Returns None if the lock's file names no earlier holder. Raises
        Conflict, with the holder's pid, if a living process has the lock. Raises KappaError if the
        operating system refuses the lock, and Broken if a process of the last holder cannot be
        killed.
        """
        try:
            return self._acquire_file()
        except OSError as error:
            raise KappaError(
                f"could not lock {self._what}: {error.strerror or error} ({self._path})",
                hint="see whether the disk is full or the folder may be written",
            ) from error

    def _acquire_file(self) -> Holder | None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            before = self._try_lock(handle)
        except BaseException:
            # An open handle would keep the lock, with nobody to release the lock.
            os.close(handle)
            raise
        self._file = handle
        return before

    def _try_lock(self, handle: int) -> Holder | None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = _read_holder(handle)
            by = f"process {held.pid}" if held else "another process"
            raise Conflict(
                f"{self._what} is held by {by}",
                hint="kappa status shows what runs; kappa down ends it",
            ) from None
        # The lock that `is_held` queries. Only a holder takes this lock, so it is free.
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK))
        before = _read_holder(handle)
        place = os.fstat(handle)
        if before is not None:
            self._end_session(before, place)
        me = Holder(
            *(os.getpid(), os.getsid(0), started(os.getpid()) or 0, boot()),
            *(self._root, place.st_dev, place.st_ino),
        )
        failpoint("lock.before_hold")
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(asdict(me)).encode(), 0)
        failpoint("lock.after_hold")
        mark_children(self._root)
        return before

    def _end_session(self, holder: Holder, place: os.stat_result) -> None:
        if holder.boot != boot() or holder.session == os.getsid(0):
            return
        # A process that does not lead its session shares it with others, such as a shell's other
        # jobs.
        if holder.pid != holder.session:
            return
        # After a container's restart the boot is the same and ids begin anew: with another leader
        # it is another session.
        if started(holder.session) not in {None, holder.started}:
            return
        if not holder.inode:
            self._ensure_nothing_left(holder)
            return
        # The file was copied with its content: that holder has another file.
        if (holder.device, holder.inode) != (place.st_dev, place.st_ino):
            return
        if holder.root != self._root:
            return
        # Members that began before the holder did are not its children.
        if not ensure_session_gone(holder.session, since=holder.started, root=holder.root):
            raise Broken(
                f"what process {holder.pid} has left behind cannot be killed",
                hint=f"it may wait for a disk; look at it with ps -s {holder.session}",
            )

    def _ensure_nothing_left(self, holder: Holder) -> None:
        # An earlier Kappa's file may be a copy, too, and does not say so.
        members = session_members(holder.session, since=holder.started)
        if members:
            pids = " ".join(str(each.pid) for each in members)
            raise Conflict(
                f"{self._what} was held by process {holder.pid} of an earlier Kappa, and what that "
                f"has started still runs: process {pids.replace(' ', ', ')}",
                hint=f"if this root is a copy, rm {self._path}; else kill {pids}",
            )

    def in_place(self) -> bool:
        """Returns True if the file that this process has locked is still at the lock's path.

        If that file was deleted or replaced, another process can lock a new file at the same path.
        """
        assert self._file is not None, "it is acquired"
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        """Releases the lock. The file remains, but is empty."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_held(path: Path) -> bool:
    """Returns True if a living process has the lock on `path` at this moment.

    The function queries the kernel, and does not take the lock: even a short lock would cause a
    conflict for a process that tries to take the lock at the same time.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _whole_file(fcntl.F_RDLCK))
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def current_holder(path: Path) -> Holder | None:
    """Returns the process that has the lock on `path`, or None if no process has the lock."""
    if not is_held(path):
        return None
    found = last_holder(path)
    return None if found is None else found[0]


def holding_process(path: Path) -> ProcessId | None:
    """Returns the process that has the lock on `path`, so that the caller can end it.

    Returns None if no process has the lock. Also returns None if the lock's file may name another
    process than the holder: the root is a copy and the holder has not yet written the file, or the
    holder is in another container.
    """
    if not is_held(path):
        return None
    found = last_holder(path)
    if found is None or (process := found[0].process) is None:
        return None
    return process if found[1] or has_open(process.pid, path) else None


def last_holder(path: Path) -> tuple[Holder, bool] | None:
    """Returns the process that the lock's file names, and True if that process locked this file.

    The process has the lock on `path`, or had it last. The second value is False if the file at
    `path` is a copy of the file that the process locked. Returns None if the file does not exist,
    or names no process.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        found, place = _read_holder(handle), os.fstat(handle)
    finally:
        os.close(handle)
    if found is None:
        return None
    return found, (found.device, found.inode) == (place.st_dev, place.st_ino)


def _whole_file(kind: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0)


def _read_holder(handle: int) -> Holder | None:
    text = os.pread(handle, 4096, 0)
    if not text.strip():
        return None
    try:
        return Holder(**json.loads(text))
    except (TypeError, ValueError):
        return None
