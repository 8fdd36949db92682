"""Runs a command as a program, and reports the time and memory that the command used.

    python measure.py ANSWER.json OUTPUT.log SECONDS COMMAND...

This process adopts orphans of the command (for example a JVM whose Python process has exited), so
that the kernel adds up the CPU time of the whole tree of processes. But the kernel does not add the
CPU time of a child if its parent ignores the exit of its children, as PySpark's daemon does. So
this program also samples the CPU time of each process a few times a second, and reports the larger
of the two sums. It imports only the standard library, and runs only on Linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# prctl(2).
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# How often memory is looked at: it costs a few milliseconds.
_LOOK_SECONDS = 0.2
# What is left when the command has ended is told to end by that, and may take so long.
_LEFTOVERS_SECONDS = 15.0
_PAGE, _TICK = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def measure(command: Sequence[str], output: Path, seconds: float) -> dict[str, object]:
    """Runs a command for at most `seconds`, and returns the resources that its processes used.

    `wall` is the time in seconds from the start to the end of the command itself. `cpu` is the user
    and system time of all processes in seconds. If the kernel does not count a process, its time is
    known only up to its last sample. `rss` is the peak of the resident bytes; pages that processes
    share are counted in each process. Processes that the command has left running are killed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    before = _cpu_of_children()
    begun = time.monotonic()
    main = _start(command, output, libc)
    rss, code, ended, timed_out = 0, None, begun + seconds, False
    # By pid and birth.
    taken: dict[tuple[int, int], int] = {}
    while True:
        for pid, status in _reaped():
            if pid == main:
                code, ended = os.waitstatus_to_exitcode(status), time.monotonic()
        left = _descendants(os.getpid())
        rss = max(rss, sum(each.pages for each in left.values()) * _PAGE)
        taken |= {(pid, each.born): each.ticks for pid, each in left.items()}
        now = time.monotonic()
        if not left and code is not None:
            break
        if (code is None and now > ended) or (
            code is not None and now > ended + _LEFTOVERS_SECONDS
        ):
            timed_out = timed_out or code is None
            _kill(left)
        signal.sigtimedwait({signal.SIGCHLD}, _LOOK_SECONDS)
    return {
        "code": code,
        "wall": ended - begun,
        "cpu": max(_cpu_of_children() - before, sum(taken.values()) / _TICK),
        "rss": rss,
        "timed_out": timed_out,
    }


def _start(command: Sequence[str], output: Path, libc: ctypes.CDLL) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        # It dies with this process, however that dies.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        into = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for mine, std in ((nothing, 0), (into, 1), (into, 2)):
            os.dup2(mine, std)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"{command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reaped() -> list[tuple[int, int]]:
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(ended)
    return found


def _cpu_of_children() -> float:
    took = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took.ru_utime + took.ru_stime


class _Process(NamedTuple):
    """A sample of one process: its resident pages, its CPU clock ticks, and its start time."""

    pages: int
    ticks: int
    born: int


def _descendants(root: int) -> Mapping[int, _Process]:
    """Returns the descendants of a process, by process id.

    Orphaned descendants are included, because the measuring process adopts them.
    """
    parents: dict[int, int] = {}
    found: dict[int, _Process] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            # Fields are counted behind the last parenthesis (proc_pid_stat(5)).
            fields = text.rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            found[int(entry.name)] = _Process(
                int(fields[21]), int(fields[11]) + int(fields[12]), int(fields[19])
            )
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below and pid not in below}:
        below |= more
    return {pid: found[pid] for pid in below if pid != root}


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    answer, log, limit = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    written = answer.with_suffix(".new")
    written.write_text(json.dumps(measure(sys.argv[4:], log, limit)), encoding="utf-8")
    written.replace(answer)
