"""Laws of processes by name: one is alive until its last thread has let go of what it holds."""

from __future__ import annotations

import platform
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kappa.base.process import process_id

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
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, EXIT[platform.machine()]],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    named = process_id(child.pid)
    try:
        port = int(child.stdout.readline())
        deadline = time.monotonic() + 20
        while ") Z " not in Path(f"/proc/{child.pid}/stat").read_text(encoding="utf-8"):
            assert time.monotonic() < deadline, "its first thread has not ended"
        assert named is not None

        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        assert named.alive()
        assert process_id(child.pid) == named
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    assert not named.alive()
