"""The family of a run: all processes that descend from the run.

The environment of the run's first process contains the variable `KAPPA_DEMO` as a mark. Children,
including daemons, inherit the environment of their parent, so all descendants have the mark, and
Linux shows it in /proc. With the mark, the demo measures the memory of all processes, and checks
that no process is left running.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

MARK = "KAPPA_DEMO"
_NAP_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the family. `resident` is its memory in bytes, including shared pages."""

    pid: int
    command: str
    resident: int


def members(mark: str) -> tuple[Member, ...]:
    """Returns all running processes whose environment contains `MARK=mark`, except this process."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    command = (
                        (entry / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                        .strip()
                    )
                    resident = int(
                        (entry / "statm").read_text(encoding="ascii").split()[1]
                    ) * os.sysconf("SC_PAGE_SIZE")
                    found.append(Member(int(entry.name), command, resident))
            except (OSError, IndexError, ValueError):
                # It ended meanwhile, or belongs to another user.
                continue
    return tuple(found)


def wait_until_gone(mark: str, *, patience_seconds: float) -> tuple[Member, ...]:
    """Waits until no process of the family runs, at most `patience_seconds` seconds.

    Returns the processes that are still running after the wait.
    """
    deadline = time.monotonic() + patience_seconds
    while (left := members(mark)) and time.monotonic() < deadline:
        time.sleep(_NAP_SECONDS)
    return left


def ensure_gone(mark: str) -> None:
    """Kills the remaining processes of the family by their process ids, until none is left."""
    for _ in range(100):
        left = members(mark)
        if not left:
            return
        for member in left:
            try:
                os.kill(member.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_NAP_SECONDS)
