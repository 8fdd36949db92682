"""Laws of named processes: a process is alive until its last thread has released everything."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kappa.base.process import LOW_PRIORITY, bytes_moved, lower_priority, process_id

# Its first thread ends by the system call; the other listens on.
PROGRAM = """
import ctypes, socket, sys, threading, time

listening = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print(listening.getsockname()[1], flush=True)
ctypes.CDLL(None).syscall(int(sys.argv[1]), 0)
"""
# exit(2) of one thread, not of all.
EXIT = {"x86_64": "60", "aarch64": "93"}


@pytest.mark.skipif(platform.system() != "Linux", reason="as /proc shows it")
def test_a_process_is_alive_until_its_last_thread_has_ended() -> None:
    command = [sys.executable, "-c", PROGRAM, EXIT[platform.machine()]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    named = process_id(child.pid)
    try:
        port = int(child.stdout.readline())
        deadline = time.monotonic() + 20
        while ") Z " not in Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8"):
            assert time.monotonic() < deadline, "its first thread has not ended"

        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert named.alive()
        assert process_id(child.pid) == named
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert not named.alive()


@pytest.mark.skipif(platform.system() != "Linux", reason="as /proc shows it")
def test_a_process_that_computes_for_ever_moves_no_bytes() -> None:
    """A worker whose function returns reads its next rows; a worker that hangs does not."""
    program = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)\nwhile 1: pass"
    name = f"worker-of-{os.getpid()}"
    command, pipes = (
        [sys.executable, "-c", program, name],
        dict.fromkeys(("stdin", "stdout"), subprocess.PIPE),
    )
    with subprocess.Popen(command, text=True, **pipes) as child:
        try:
            seen = []
            for _ in range(2):
                child.stdin.write("row\n")
                child.stdin.flush()
                child.stdout.readline()
                seen.append(bytes_moved(name))
            child.stdin.close()
            while bytes_moved(name) != (now := bytes_moved(name)):
                pass
            time.sleep(0.1)

            assert list(now) == [child.pid]
            assert seen[0][child.pid] < seen[1][child.pid]
            assert bytes_moved(name) == now
            assert bytes_moved(f"not-{name}") == {}
        finally:
            child.kill()


def test_a_priority_is_lowered_and_never_raised() -> None:
    """A platform that was started with a low priority may not raise it; its jobs must not fail."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        try:
            before = os.getpriority(os.PRIO_PROCESS, child.pid)
            lower_priority(0, (child.pid,))
            unchanged = os.getpriority(os.PRIO_PROCESS, child.pid)
            os.setpriority(os.PRIO_PROCESS, child.pid, 17)
            lower_priority(LOW_PRIORITY, (child.pid,))

            assert unchanged == before
            assert os.getpriority(os.PRIO_PROCESS, child.pid) == 17
        finally:
            child.kill()


def test_a_command_of_this_session_is_nice_alone() -> None:
    """A command in its own session lowers the priority of that session only."""
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("this kernel does not group processes by session")
    # The session of the tests may be the kernel's first session, which has no group.
    script = (
        "import subprocess, sys; from kappa.base.process import tied\n"
        "shown = [sys.executable, '-c', 'print(open(\"/proc/self/autogroup\").read())']\n"
        "for own in (False, True):\n"
        "    subprocess.run(tied(shown, nice=7), check=True, start_new_session=own)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, start_new_session=True
    )

    assert [line.split()[-1] for line in said.stdout.splitlines() if line] == [b"0", b"7"]


def test_a_session_yields_for_a_while_and_then_no_more(tmp_path: Path) -> None:
    """A candidate that has caught up serves with the same priority as every other job."""
    group = Path("/proc/self/autogroup")
    if not group.exists():
        pytest.skip("this kernel does not group processes by session")
    script = (
        "from pathlib import Path; from kappa.base.process import yielding_to_others\n"
        f"def show(): print(Path({str(group)!r}).read_text().split()[-1])\n"
        "with yielding_to_others(5): show()\n"
        "show()"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, start_new_session=True
    )

    assert said.stdout.split() == [b"5", b"0"]
