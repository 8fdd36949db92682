"""The family of a run: every process that descends from it, by a mark in the environment.

Children inherit their parent's environment, daemons too, so a mark of the first is found in all of
them (Linux's /proc). The demo measures their memory by it, and checks that nothing is left running.
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
    """One process of the family; `resident` is its memory in bytes, shared pages included."""

    pid: int
    command: str
    resident: int


def members(mark: str) -> tuple[Member, ...]:
    """Finds the other living processes whose environment has `MARK=mark`."""
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
    """Waits until no member lives. Returns those that still do when patience ends."""
    deadline = time.monotonic() + patience_seconds
    while (left := members(mark)) and time.monotonic() < deadline:
        time.sleep(_NAP_SECONDS)
    return left


def ensure_gone(mark: str) -> None:
    """Kills the rest of the family, each process by its id, and waits until it is gone."""
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
