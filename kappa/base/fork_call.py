"""Calls of functions in a forked process, within limits of time and memory.

Such a process runs functions that cannot be interrupted otherwise: while DuckDB computes, Python
handles no signal, and DuckDB does not always react to `interrupt`. But the kernel can end a process
at any point. Source: getrlimit(2), prctl(2).
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import math
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, TypeVar

from kappa.base.errors import KappaError
from kappa.base.process import PR_SET_PDEATHSIG

_Found = TypeVar("_Found")
_TIMES_AS_LONG = 4
# The most time that a busy machine takes to begin with a forked process.
_BEGINS_SECONDS = 60.0
# The most time that it takes a process to write its stack and end.
_ENDS_SECONDS = 10.0


class OverLimit(KappaError):
    """The error if a forked process was ended because it exceeded a limit."""


def call_within(act: Callable[[], _Found], *, seconds: float, memory: int) -> _Found:
    """Calls a function in a forked process. Returns the function's result, or raises its error.

    The result and the error are pickled. The process may use `seconds` of processor time. It may
    run for 4 times as many seconds of wall-clock time, since a busy machine is slow, and a sleeping
    function uses no processor time. The process may allocate `memory` bytes in addition to the
    memory that it has at the fork, and may not write files. Raises OverLimit if the process exceeds
    a limit.
    """
    with _forked(_call, act, seconds, memory) as (process, answer):
        if not answer.poll(_TIMES_AS_LONG * seconds):
            raise OverLimit(_too_long(_TIMES_AS_LONG * seconds))
        try:
            is_found, found = answer.recv()
        except EOFError:
            raise _over_limit(process, seconds, memory) from None
    if is_found:
        result: _Found = found
        return result
    raise found


def try_each(
    acts: Mapping[str, Callable[[], object]], *, seconds: float, memory: int
) -> dict[str, tuple[OverLimit, str]]:
    """Runs functions one after the other, and returns those that exceeded a limit.

    The result maps the name of each such function to an error and to the stack of the function. The
    stack is a text of `faulthandler`, with the innermost line first. The results and errors of the
    functions themselves are ignored. The functions run in a forked process, each within the limits
    of `call_within`; but they may write files. Raises OverLimit if the process ends before it
    begins the first function, or does not begin it in time.
    """
    cut: dict[str, tuple[OverLimit, str]] = {}
    pending = list(acts)
    while pending:
        reading, writing = os.pipe()
        # A process that a function has started may keep the other end of the pipe open.
        os.set_blocking(reading, False)
        with os.fdopen(reading, "rb", buffering=0) as lines:
            tries = [(name, acts[name]) for name in pending]
            try:
                with _forked(_try, tries, seconds, memory, writing) as (process, answer):
                    begun, error = _last_begun(process, answer, seconds, memory)
            finally:
                os.close(writing)
            if error is None:
                break
            if not begun:
                raise error
            cut[begun] = error, (lines.read() or b"").decode(errors="replace")
        pending = pending[pending.index(begun) + 1 :]
    return cut


def _last_begun(
    process: ForkProcess, answer: Connection, seconds: float, memory: int
) -> tuple[str, OverLimit | None]:
    """Waits for a process of `try_each`. Returns the name of the last function that it began.

    The name is "" if the process has begun no function. The second element of the result is an
    OverLimit if the process ended, or was ended, before it had run all functions; otherwise it is
    None.
    """
    begun = ""
    while answer.poll(limit := _TIMES_AS_LONG * seconds if begun else _BEGINS_SECONDS):
        try:
            told = answer.recv()
        except EOFError:
            return begun, _over_limit(process, seconds, memory)
        if told is None:
            return begun, None
        begun = told
    # The process writes its stack, and ends.
    os.kill(process.pid or 0, signal.SIGXCPU)
    process.join(_ENDS_SECONDS)
    return begun, OverLimit(_too_long(limit))


@contextmanager
def _forked(work: Callable[..., None], *given: object) -> Iterator[tuple[ForkProcess, Connection]]:
    """Runs `work` in a forked process within the block, and then kills the process.

    Yields the process, and the end of a pipe from which the caller reads the messages of `work`.
    """
    fork = multiprocessing.get_context("fork")
    answer, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=_within, args=(os.getpid(), work, theirs, *given), daemon=True)
    process.start()
    try:
        theirs.close()
        yield process, answer
    finally:
        process.kill()
        process.join()
        process.close()
        answer.close()


def limit_memory(more: int) -> None:
    """Limits the memory of this process to `more` bytes above its present use."""
    if (there := _data_bytes()) is not None:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = there + more
        soft = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, most))


def _within(parent: int, work: Callable[..., None], *given: object) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            return
    # A client of the broker that were freed here, without its threads, would end this process.
    gc.freeze()
    # The parent handles a Ctrl-C, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    work(*given)


def _call(theirs: Connection, act: Callable[[], Any], seconds: float, memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _limit_core(seconds)
    limit_memory(memory)
    try:
        answer = True, act()
    except MemoryError:
        return
    except Exception as error:  # noqa: BLE001  # the parent raises it
        answer = False, error
    theirs.send(answer)


def _try(
    theirs: Connection,
    tries: Sequence[tuple[str, Callable[[], object]]],
    seconds: float,
    memory: int,
    traces: int,
) -> None:
    # The parent calls the functions once more, and shows their output: here the output is dropped.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    faulthandler.register(signal.SIGXCPU, traces, all_threads=False, chain=True)
    for name, act in tries:
        theirs.send(name)
        _limit_core(seconds)
        limit_memory(memory)
        try:
            act()
        except MemoryError:
            return
        except (Exception, SystemExit):  # noqa: BLE001, S112  # the parent meets it, too
            continue
    theirs.send(None)


def _limit_core(seconds: float) -> None:
    """Lets this process use `seconds` of processor time in addition to the time used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime + seconds)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    soft = soft if most == resource.RLIM_INFINITY else min(soft, most)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, most))


def _data_bytes() -> int | None:
    """Returns the bytes that count for this process's limit `RLIMIT_DATA`, or None if not known."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("VmData:")), None)
    return None if found is None else int(found.split()[1]) * 1024


def _over_limit(process: ForkProcess, seconds: float, memory: int) -> OverLimit:
    """Waits until a process has exited, and returns an error that explains its exit code.

    Call this function if the process closed its pipe before it had run all of its functions.
    `seconds` and `memory` are the limits of the process.
    """
    process.join()
    code = process.exitcode or 0
    return OverLimit(_too_long(seconds) if code == -signal.SIGXCPU else _ending(code, memory))


def _too_long(seconds: float) -> str:
    return f"they took longer than {seconds:g} s, and were ended"


def _ending(code: int, memory: int) -> str:
    how = signal.Signals(-code).name if code < 0 else f"code {code}"
    return (
        f"their process ended before they were done ({how}): most likely they take more than "
        f"{memory >> 20} MiB of memory, or end the process themselves"
    )
