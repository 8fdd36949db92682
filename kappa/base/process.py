"""Processes that this one starts and must see gone: tied to their parent's life, known by pid and time of birth.

Run as a program (`python process.py PARENT NICE COMMAND...`) this file is the tie: it asks the kernel to kill it when PARENT
dies, and becomes COMMAND. It therefore imports nothing but the standard library.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# prctl(2): the signal this process gets when the thread that made it dies. It survives exec.
_PR_SET_PDEATHSIG = 1
_NAP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for good: a pid alone may be another process tomorrow, a pid and a time of birth may not."""

    pid: int
    born: str

    def alive(self) -> bool:
        """True while the process runs; a dead one that nobody has waited for yet is dead."""
        return born(self.pid) == self.born


def process_id(pid: int) -> ProcessId | None:
    """Names a running process, or None where there is none of that pid."""
    found = born(pid)
    return None if found is None else ProcessId(pid, found)


def born(pid: int) -> str | None:
    """When a process was born, in the kernel's words, or None where it is not there (or only its exit code is)."""
    found = started(pid)
    if found is None:
        return None if Path("/proc/self/stat").exists() else _born_by_ps(pid)
    return f"{boot()} {found}"


def started(pid: int) -> int | None:
    """When a process was born, in clock ticks since boot; None where it is not there (or only its exit code is)."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def boot() -> str:
    """The id of the machine's boot: process ids and times of birth mean something within one only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()


def set_by_sigterm() -> threading.Event:
    """An event that SIGTERM sets from now on."""
    told = threading.Event()
    # In a thread of its own: the handler may find this one, which it interrupts, with the event's lock in its hands.
    signal.signal(signal.SIGTERM, lambda _number, _frame: _thread.start_new_thread(told.set, ()))
    return told


def start_tied(
    command: Sequence[str],
    *,
    output: IO[bytes],
    nice: int = 0,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own that is killed (SIGKILL) as soon as this process dies, however it dies.

    On Linux the kernel sees to it, and by its rule the tie is to the THREAD that starts the command: call it from the
    main thread, or from one that lives as long as the process. Elsewhere there is no such tie, and a command left over
    from a crash is killed by the next start (`kill_and_see_gone`). `nice` is by how much others go before it, 0 to 19.
    """
    tied = [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(nice), *command]
    return subprocess.Popen(
        tied,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=folder,
        start_new_session=True,
    )


def kill_and_see_gone(process: ProcessId, *, patience_seconds: float = 10.0) -> bool:
    """Kills the process group of a process that may be there, and waits until it is gone; False where it will not go."""
    if not process.alive():
        return True
    with contextlib.suppress(ProcessLookupError):
        # Ours lead their group (start_tied); a process that doesn't is killed alone.
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + patience_seconds
    while process.alive():
        if time.monotonic() > deadline:
            return False
        time.sleep(_NAP_SECONDS)
    return True


def ensure_session_gone(session: int, *, since: int = 0, patience_seconds: float = 30.0) -> bool:
    """Kills every process of a session born at or after `since` (clock ticks since boot), and waits until none is left.

    False where one will not go. A session's id is not given to another process while any member lives: it names what its
    leader has left behind (a job's JVM, Spark's Python workers), whatever process groups those have made.
    """
    deadline = time.monotonic() + patience_seconds
    while members := _members(session, since):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(_NAP_SECONDS)
    return True


def _members(session: int, since: int) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [
        pid
        for pid in pids
        if (fields := _stat(pid)) is not None
        and int(fields[3]) == session
        and int(fields[19]) >= since
    ]


def _stat(pid: int) -> list[str] | None:
    # Fields are counted behind the last parenthesis, since the program's name may hold anything (proc_pid_stat(5)). A
    # zombie can do nothing any more, and may never be reaped.
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields


def _born_by_ps(pid: int) -> str | None:
    # Systems without /proc; the state letter comes first.
    asked = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    state, _, started = asked.stdout.strip().partition(" ")
    return started.strip() if asked.returncode == 0 and not state.startswith("Z") else None


def _become(parent: int, nice: int, command: list[str]) -> None:
    if nice:
        os.nice(nice)
        # Where the kernel groups processes by session, niceness counts within a session only, and this one is alone in
        # its own: the group has a niceness of its own. (sched(7), "The autogroup feature")
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice), encoding="utf-8")
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  # only the tie needs it, and every start waits for the tie

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # The parent may have died before the kernel was asked: then this process has been adopted already.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
    # Spark ends its Python workers by SIGHUP; under nohup it would be ignored, and they would be left over.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
