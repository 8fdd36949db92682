"""The keeper of HTTP under `kappa up`: it has the socket, and keeps a server at it.

It outlives a supervisor that was killed, and answers stay where clients ask. The server (serve.py)
is its child and ends with it. While a new one starts, connections wait in the kernel. The next
supervisor takes the socket over, ends the keeper and starts its own with that socket
(replay/platform/http_process.py), and a keeper whose root was deleted ends itself. It imports
little: a sixth of what a server takes.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kappa.base.errors import ExitCode
from kappa.base.process import marked_root
from kappa.base.program import run_program
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.messages import Reported, saying
from kappa.replay.platform.socket_door import SocketDoor
from kappa.replay.platform.stop_request import StopRequest
from kappa.serving.http.address import HttpAddress, listening_at
from kappa.state.lock import Lock

_TICK_SECONDS = 0.2
# Queries have it to end. The keeper's own patience is longer (http_process.py).
_PATIENCE_SECONDS = 10.0


def keep(
    address: HttpAddress,
    options: Sequence[str],
    *,
    lock: Lock,
    log: Path,
    door: Path,
    handed: socket.socket | None = None,
    say: Callable[[str], None],
) -> None:
    """Keeps a server at a place, or another port, until this process is asked to end.

    It uses the socket that an earlier keeper has `handed` over, if there is one, and hands it over
    at its `door`.

    Raises Conflict if another keeper has the lock. Ends as well if the lock's file is gone.
    """
    with (
        lock,
        handed or listening_at(address, any_port=True) as listening,
        SocketDoor(door, address, listening) as to_the_next,
        StopRequest() as stop,
    ):
        server = ChildProcess(
            "the HTTP server",
            log,
            say=say,
            clock=time.monotonic,
            patience_seconds=_PATIENCE_SECONDS,
            inherits=(listening.fileno(),),
        )
        starting = Reported(say)
        try:
            while not stop.requested and lock.in_place():
                with starting.reported_once():
                    if (code := server.ended()) is not None:
                        server.has_died(code)
                    server.ensure_started(
                        *("kappa.replay.platform.serve", *options, "--host", address.host),
                        *("--socket", str(listening.fileno())),
                    )
                to_the_next.wait(_TICK_SECONDS)
        finally:
            server.end()


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, whose output is its log; returns its exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        keep(
            HttpAddress(given.host, given.port),
            ("--project", str(given.project), "--root", given.root),
            lock=Lock(given.lock, what="the HTTP server of kappa up", root=marked_root()),
            log=given.log,
            door=given.door,
            handed=None if given.socket < 0 else socket.socket(fileno=given.socket),
            say=saying(sys.stdout),
        )
        return ExitCode.OK

    return run_program(
        "kappa.replay.platform.keeper",
        work,
        arguments,
        host=str,
        port=int,
        lock=Path,
        log=Path,
        door=Path,
        socket=int,
    )


if __name__ == "__main__":
    sys.exit(main())
