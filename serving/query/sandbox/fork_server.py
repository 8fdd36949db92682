"""The fork server: a process that forks a child for each worker.

A worker is a process that answers queries. The fork server has a single thread, and has already
imported all modules that a query needs, so a worker starts within milliseconds. A request arrives
on a socket. The request consists of a number, the child's end of a socket to the server, and a
pipe. The answer contains the same number, the child's pid, and a handle (pidfd_open(2)), which
never refers to another process. The fork server writes the child's exit code to the pipe. The fork
server and its children exit when the server exits. The fork server's command line is `python -m
kappa.serving.query.sandbox.fork_server SOCKET`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from typing import NoReturn

from kappa.base.process import LOW_PRIORITY
from kappa.serving.query.sandbox.query_program import serve_snapshot


def main(arguments: list[str]) -> int:
    """Forks a child for each request, until the server closes the socket.

    `arguments` contains the file descriptor of the socket on which requests arrive.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The live job's freshness is more important.
    os.nice(LOW_PRIORITY)
    me = os.getpid()
    control = socket.socket(fileno=int(arguments[0]))
    # A handle of each running child -> its process id, and the pipe for its exit code.
    running: dict[int, tuple[int, int]] = {}
    # Unlike select, poll takes any number: this socket keeps its number in the server.
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        ready = [file for file, _ in waiting.poll()]
        for handle in [each for each in ready if each in running]:
            waiting.unregister(handle)
            pid, pipe = running.pop(handle)
            _, status = os.waitpid(pid, 0)
            with contextlib.suppress(BrokenPipeError):
                os.write(pipe, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(pipe)
            os.close(handle)
        if control.fileno() in ready:
            number, files, _, _ = socket.recv_fds(control, 16, 2)
            if not number:
                return 0
            way_back, pipe = files
            pid = os.fork()
            if pid == 0:
                _become_child(way_back, me)
            os.close(way_back)
            handle = os.pidfd_open(pid)
            running[handle] = (pid, pipe)
            waiting.register(handle, select.POLLIN)
            socket.send_fds(control, [number + f" {pid}".encode()], [handle])


def _become_child(way_back: int, parent: int) -> NoReturn:
    code = 1
    try:
        serve_snapshot(way_back, parent)
        code = 0
    # Any error is printed, and ends the child.
    except Exception:  # noqa: BLE001
        traceback.print_exc()
    finally:
        # A child must never run on into the fork server's loop.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
