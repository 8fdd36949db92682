"""The program that starts a rehearsal, limits it, and ends all of its processes.

    python -I -S process_guard.py FOLDER BYTES SECONDS PROGRAM...

This program runs PROGRAM. If a process of the rehearsal outlives its parent, it becomes a child of
this program. So this program can end every process of the rehearsal. The processes may write at
most BYTES below FOLDER, and may run for at most SECONDS. The exit code is that of PROGRAM, or
`TOO_LARGE`, `TOO_LONG` or `ENDED`. This file imports only the standard library.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

# Exit codes that no program of a rehearsal has.
TOO_LARGE, TOO_LONG, ENDED = 97, 98, 99
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NAP_SECONDS, _LOOK_SECONDS = 0.05, 0.5


def main(arguments: Sequence[str]) -> int:
    """Runs a program within limits, and returns its exit code or the code of a broken limit.

    `arguments` are FOLDER, BYTES, SECONDS, and the program with its arguments. The program and all
    processes that it starts may write at most BYTES below FOLDER, and may run for at most SECONDS.
    Then they are killed.
    """
    folder, most, seconds, *command = arguments
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The server's end asks this program to end the others first.
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    program = os.fork()
    if not program:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))
        os.execv(command[0], command)
    try:
        return _wait(program, folder, int(most), time.monotonic() + float(seconds), asked)
    finally:
        _end_children()


def _wait(program: int, folder: str, most: int, deadline: float, asked: Sequence[int]) -> int:
    looked = time.monotonic()
    while not asked:
        # Children of others, which have ended, are waited for, too.
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        at = time.monotonic()
        if at > deadline:
            return TOO_LONG
        if at - looked > _LOOK_SECONDS:
            looked = at
            if sum(_sizes(folder)) > most:
                return TOO_LARGE
        if not ended:
            time.sleep(_NAP_SECONDS)
    return ENDED


def _sizes(folder: str) -> Iterator[int]:
    """Yields the disk space in bytes of each file below a folder. Links are not followed."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118  # a name may be no text


def _end_children() -> None:
    """Kills the children of this process until it has no more children.

    If a killed child had children, these become children of this process, and are killed too.
    """
    with suppress(ChildProcessError):
        while True:
            for child in _children():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
            time.sleep(_NAP_SECONDS / 5)


def _children() -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208  # names, and no paths
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:  # noqa: PTH123
            if int(stat.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
