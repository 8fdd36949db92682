"""The nursery: a process of one thread that has imported what a query needs, and makes a child of itself for each.

So a query's process is there within milliseconds, and none is ever used twice. A socket brings requests: a number, with the
child's end of the way to the server and a pipe. The answer repeats the number, and has the child's pid and a handle of it
(pidfd_open(2)), which is never another process's. What a child died of goes into its pipe. It ends when the server does, and its children with it. As a program it is
`python -m serving.sandbox.nursery SOCKET`. Read next: sandboxed.py (the child), sandbox.py (the server's side).
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

from serving.sandbox.sandboxed import answer_one

# How much others go before a query: the live job's freshness comes first.
_NICE = 5


def main(arguments: list[str]) -> int:
    """Makes children as it is told, until nobody is there to tell."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.nice(_NICE)
    me = os.getpid()
    control = socket.socket(fileno=int(arguments[0]))
    # A handle of each child that runs -> its process id, and the pipe for what it dies of.
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([control.fileno(), *running], [], [])
        for handle in [each for each in ready if each in running]:
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
            socket.send_fds(control, [number + f" {pid}".encode()], [handle])


def _become_child(way_back: int, parent: int) -> NoReturn:
    code = 1
    try:
        answer_one(way_back, parent)
        code = 0
    except Exception:  # noqa: BLE001  # told, as far as anybody listens, and the end of it
        traceback.print_exc()
    finally:
        # Whatever went wrong ends here: what follows is the nursery's own.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
