"""Laws of a call in a forked process: limits end it, and its result is the same as here."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from kappa.base.errors import UsageError
from kappa.base.fork_call import OverLimit, call_within

MEMORY = 1 << 30


def test_a_call_gives_its_result_and_its_error() -> None:
    me = os.getpid()

    assert call_within(lambda: (os.getpid() != me, ["x"]), seconds=30, memory=MEMORY) == (
        True,
        ["x"],
    )

    def fails() -> None:
        raise UsageError("no", hint="yes")

    with pytest.raises(UsageError) as told:
        call_within(fails, seconds=30, memory=MEMORY)
    assert (told.value.message, told.value.hint) == ("no", "yes")


@pytest.mark.slow
def test_a_call_is_ended_at_its_time() -> None:
    """Endless loops, sleeping calls, and calls that ignore signals are all ended."""

    def computes() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    for act in (computes, lambda: time.sleep(600)):
        with pytest.raises(OverLimit, match="took longer than"):
            call_within(act, seconds=0.3, memory=MEMORY)


def test_a_call_is_ended_at_its_memory() -> None:
    with pytest.raises(OverLimit, match="more than 64 MiB of memory"):
        call_within(lambda: len(bytearray(1 << 30)), seconds=30, memory=64 << 20)
    with pytest.raises(OverLimit, match="SIGSEGV"):
        call_within(lambda: os.kill(os.getpid(), signal.SIGSEGV), seconds=30, memory=MEMORY)


def test_a_call_writes_no_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large"):
        call_within(lambda: (tmp_path / "x").write_text("x"), seconds=30, memory=MEMORY)


@pytest.mark.slow
def test_a_call_ends_with_whoever_waits_for_it(tmp_path: Path) -> None:
    """The parent enforces the limits, so without the parent nothing would end the call."""
    reading, writing = os.pipe()
    waiting = os.fork()
    if waiting == 0:
        os.close(reading)
        # The test's threads are not in this process.
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        call_within(lambda: time.sleep(600), seconds=600, memory=MEMORY)
        os._exit(1)
    os.close(writing)
    os.waitpid(waiting, 0)

    # It is closed when all who have it have ended.
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_call_frees_nothing_that_the_caller_has_made() -> None:
    """If a broker's client is freed without its threads, the process crashes."""
    freed_in = list[int]()

    class Client:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            freed_in.append(os.getpid())

    def collects() -> list[int]:
        gc.collect()
        return freed_in

    gc.disable()
    try:
        Client()

        assert call_within(collects, seconds=30, memory=MEMORY) == []
        # Here the client is garbage.
        gc.collect()
        assert freed_in == [os.getpid()]
    finally:
        gc.enable()
