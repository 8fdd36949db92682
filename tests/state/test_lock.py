"""I8, one writer per build: its lock, refusals, and the end of a dead holder's session."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from kappa.base.errors import Broken, Conflict, KappaError
from kappa.base.failpoint import acting
from kappa.base.process import born
from kappa.state import lock as lock_file
from kappa.state.lock import Lock, is_held
from kappa.state.lock import current_holder as holder_of

FAILPOINTS = ["lock.before_hold", "lock.after_hold"]

# Takes the lock, starts a child that would outlive it (as a JVM does its Python), prints that
# child's pid, and waits to be killed.
_HOLDER = """
import pathlib, signal, subprocess, sys
from kappa.state.lock import Lock
Lock(pathlib.Path(sys.argv[1]), what="build b", root="root").acquire()
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
signal.pause()
"""


def holder(path: Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.stdout.close()
    return process, child


def test_a_lock_on_a_full_disk_is_refused_with_a_sentence_and_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a full disk names the lock, because the system's own error names no file."""
    path = tmp_path / "lock"

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(KappaError, match="could not lock build b: No space left on device"):
            Lock(path, what="build b").acquire()

    assert not is_held(path)
    with Lock(path, what="build b"):
        assert is_held(path)


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    process, child = holder(tmp_path / "lock")
    try:
        assert is_held(tmp_path / "lock")
        with pytest.raises(Conflict, match=f"build b is held by process {process.pid}"):
            Lock(tmp_path / "lock", what="build b").acquire()
    finally:
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)


def test_what_is_left_of_a_dead_holder_is_gone_before_the_lock_is_taken(tmp_path: Path) -> None:
    process, child = holder(tmp_path / "lock")
    process.kill()
    process.wait()
    assert born(child) is not None

    with Lock(tmp_path / "lock", what="build b", root="root"):
        assert born(child) is None


def test_a_lock_given_up_may_be_taken_again(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", what="build b")
    assert lock.acquire() is None
    lock.release()

    assert not is_held(tmp_path / "lock")
    assert Lock(tmp_path / "lock", what="build b").acquire() is None


def test_a_dead_holder_that_shared_its_session_costs_nobody_else_in_it_their_life(
    tmp_path: Path,
) -> None:
    leader = (
        "import signal, subprocess, sys; "
        "holder = subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]]); "
        "print(holder.pid, flush=True); signal.pause()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", leader, _HOLDER, str(tmp_path / "lock")],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        held_by, other = int(process.stdout.readline()), int(process.stdout.readline())
    try:
        os.kill(held_by, signal.SIGKILL)
        while is_held(tmp_path / "lock"):
            pass

        with Lock(tmp_path / "lock", what="build b"):
            assert born(other) is not None
    finally:
        os.kill(other, signal.SIGKILL)
        process.kill()
        process.wait()


def test_who_holds_a_lock_can_be_asked(tmp_path: Path) -> None:
    assert holder_of(tmp_path / "lock") is None
    process, child = holder(tmp_path / "lock")
    try:
        found = holder_of(tmp_path / "lock")

        assert found is not None
        assert found.pid == process.pid
    finally:
        process.kill()
        process.wait()
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("point", FAILPOINTS)
def test_who_is_killed_while_it_takes_a_lock_holds_it_no_more(point: str, tmp_path: Path) -> None:
    first = subprocess.run(
        [sys.executable, "-c", _HOLDER, str(tmp_path / "lock")],
        env={**os.environ, "KAPPA_FAIL": f"{point}:kill"},
        check=False,
        start_new_session=True,
    )

    assert first.returncode == -signal.SIGKILL
    assert not is_held(tmp_path / "lock")
    with Lock(tmp_path / "lock", what="build b"):
        held = holder_of(tmp_path / "lock")
        assert held is not None
        assert held.pid == os.getpid()


@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_lock_whose_taking_fails_is_free_again(point: str, tmp_path: Path) -> None:
    """A lock is free again if, for example, the remains of its last holder cannot be killed."""

    def fail(name: str) -> None:
        if name == point:
            raise Broken("what process 7 has left behind cannot be killed")

    with acting(fail), pytest.raises(Broken):
        Lock(tmp_path / "lock", what="build b").acquire()

    assert not is_held(tmp_path / "lock")
    with Lock(tmp_path / "lock", what="build b"):
        assert is_held(tmp_path / "lock")


def test_a_look_at_a_lock_is_no_conflict_to_who_takes_it(tmp_path: Path) -> None:
    """A look at a lock causes no conflict.

    As by another process, the lock is acquired and released before each line of the look.
    """
    lock = Lock(tmp_path / "lock", what="build b")
    with lock:
        pass
    taken = 0

    def take(frame: FrameType, event: str, _given: object) -> Callable[..., object] | None:
        nonlocal taken
        if frame.f_code.co_filename != lock_file.__file__:
            return None
        if event == "line":
            # Tracing is off in here. A second file handle conflicts in the same process too.
            lock.acquire()
            lock.release()
            taken += 1
        return take

    before = sys.gettrace()
    sys.settrace(take)
    try:
        held = is_held(tmp_path / "lock")
    finally:
        sys.settrace(before)

    assert not held
    assert taken >= 4
