"""A call in a process of its own, forked from this one, within limits of time and memory.

It is for work that nothing else can end: while DuckDB computes, Python handles no signal, and
DuckDB does not always heed `interrupt`. The kernel ends the process, whatever the process is doing.
Source: getrlimit(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from kappa.base.errors import KappaError
from kappa.base.process import PR_SET_PDEATHSIG

_Found = TypeVar("_Found")
_TIMES_AS_LONG = 4


class OverLimit(KappaError):
    """A call that was ended, since it took more than it may."""


def call_within(act: Callable[[], _Found], *, seconds: float, memory: int) -> _Found:
    """Returns what a function returns, or raises what it raises, from a process of its own.

    The result is pickled. The process takes at most so many seconds of a core, or a few times as
    many that pass (a busy machine is slow, and one that sleeps takes no core), and so many bytes
    beside those that it begins with. It writes no file. Raises OverLimit if that is not enough.
    """
    fork = multiprocessing.get_context("fork")
    answer, theirs = fork.Pipe(duplex=False)
    process = fork.Process(
        target=_call, args=(act, theirs, seconds, memory, os.getpid()), daemon=True
    )
    process.start()
    try:
        theirs.close()
        if not answer.poll(_TIMES_AS_LONG * seconds):
            raise OverLimit(_too_long(_TIMES_AS_LONG * seconds))
        try:
            is_found, found = answer.recv()
        except EOFError:
            process.join()
            if process.exitcode == -signal.SIGXCPU:
                raise OverLimit(_too_long(seconds)) from None
            raise OverLimit(_ending(process.exitcode or 0, memory)) from None
    finally:
        process.kill()
        process.join()
        process.close()
        answer.close()
    if is_found:
        result: _Found = found
        return result
    raise found


def limit_memory(more: int) -> None:
    """Lets this process have so many bytes more than it has by now, and no more."""
    if (there := _data_bytes()) is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = there + more
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def _call(
    act: Callable[[], Any], theirs: Connection, seconds: float, memory: int, parent: int
) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
    # A Ctrl-C is the parent's matter, who ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    of_core = max(1, round(seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (of_core, of_core + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    limit_memory(memory)
    try:
        answer = True, act()
    except MemoryError:
        return
    except Exception as error:  # noqa: BLE001  # the parent raises it
        answer = False, error
    theirs.send(answer)


def _data_bytes() -> int | None:
    """Returns the bytes of this process that `RLIMIT_DATA` counts, where the kernel says so."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("VmData:")), None)
    return None if found is None else int(found.split()[1]) * 1024


def _too_long(seconds: float) -> str:
    return f"they took longer than {seconds:g} s, and were ended"


def _ending(code: int, memory: int) -> str:
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    return (
        f"their process ended before they were done ({how}): most likely they take more than "
        f"{memory >> 20} MiB of memory"
    )
