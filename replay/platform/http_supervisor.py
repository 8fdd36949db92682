"""The HTTP supervisor of `kappa up`: a process that owns the socket and keeps a server running.

If the supervisor of the platform is killed, the HTTP supervisor survives, so clients still get
answers at the same address. The server (serve.py) is a child of the HTTP supervisor, and exits with
the HTTP supervisor. While a new server starts, connections wait in the kernel. The next `kappa up`
takes over the socket, ends the old HTTP supervisor, and starts a new HTTP supervisor with that
socket (services.py does this). An HTTP supervisor exits by itself if its root is deleted. It
imports little, so it needs only a sixth of the memory of a server.

The socket belongs to the kernel: while the owner of the socket changes, connections wait, and the
kernel neither refuses nor resets them. The old HTTP supervisor is ended only after it has handed
over the socket. A connection that a server has accepted ends with that server, because an accepted
connection cannot be handed over. Source: unix(7), SCM_RIGHTS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from kappa.base.errors import ExitCode
from kappa.base.process import marked_root
from kappa.base.program import run_program
from kappa.code.task import socket_name
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.http_port import listening_at_kept_port
from kappa.replay.platform.messages import ErrorReport, message_printer
from kappa.replay.platform.stop_request import StopRequest
from kappa.serving.http.address import HttpAddress
from kappa.state.lock import Lock

_TICK_SECONDS = 0.2
# The time for queries to end. The patience for the HTTP supervisor is longer (services.py).
_PATIENCE_SECONDS = 10.0
_DOOR_SECONDS = 2.0
_LONGEST = 1024


def keep_server(
    address: HttpAddress,
    options: Sequence[str],
    *,
    lock: Lock,
    log: Path,
    door: Path,
    port: Path,
    handed: socket.socket | None = None,
    say: Callable[[str], None],
) -> None:
    """Keeps an HTTP server running until this process, the HTTP supervisor, is asked to end.

    The server listens at `address`, or at another port if that port is in use. The file at `port`
    stores the port for the next start. `handed` is the socket that an earlier HTTP supervisor has
    handed over, or None. This process sends its socket to each process that connects to the Unix
    socket `door`. The function also returns if the lock file is gone. Raises Conflict if another
    HTTP supervisor holds the lock.
    """
    with (
        lock,
        handed or listening_at_kept_port(address, port) as listening,
        SocketHandover(door, address, listening) as to_the_next,
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
        starting = ErrorReport(say)
        try:
            while not stop.requested and lock.in_place():
                with starting.reported_once():
                    if (code := server.reap_exit_code()) is not None:
                        server.has_died(code)
                    server.ensure_started(
                        *("kappa.replay.platform.serve", *options, "--host", address.host),
                        *("--socket", str(listening.fileno())),
                    )
                to_the_next.wait_for_caller(_TICK_SECONDS)
        finally:
            server.end()


class SocketHandover:
    """A Unix socket at which the HTTP supervisor sends its HTTP socket to each caller.

    A caller also receives the address for which the HTTP socket was opened.
    """

    def __init__(self, path: Path, address: HttpAddress, listening: socket.socket) -> None:
        self._path = path
        self._address = address
        self._listening = listening
        self._door = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        """Opens the Unix socket, after deleting the socket file that a killed process has left."""
        self._path.unlink(missing_ok=True)
        with socket_name(self._path) as name:
            self._door.bind(name)
        self._path.chmod(0o600)
        self._door.listen()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the Unix socket, and deletes its file."""
        self._door.close()
        self._path.unlink(missing_ok=True)

    def wait_for_caller(self, seconds: float) -> None:
        """Waits for a caller for at most `seconds`, and sends the HTTP socket to the caller."""
        if not select.select([self._door], [], [], seconds)[0]:
            return
        with contextlib.suppress(OSError):
            caller, _ = self._door.accept()
            with caller:
                caller.settimeout(_DOOR_SECONDS)
                said = json.dumps([self._address.host, self._address.port]).encode()
                socket.send_fds(caller, [said], [self._listening.fileno()])


def socket_handed_over(path: Path, address: HttpAddress) -> socket.socket | None:
    """Asks an HTTP supervisor for its HTTP socket, and returns this socket.

    `path` is the Unix socket at which the HTTP supervisor hands over its socket. Returns None if no
    process answers there, or if the HTTP socket was opened for another address.
    """
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_DOOR_SECONDS)
            with socket_name(path) as name:
                asking.connect(name)
            said, files, _, _ = socket.recv_fds(asking, _LONGEST, 1)
    except OSError:
        return None
    if not files:
        return None
    if said != json.dumps([address.host, address.port]).encode():
        os.close(files[0])
        return None
    return socket.socket(fileno=files[0])


def main(arguments: list[str] | None = None) -> int:
    """Runs the HTTP supervisor as a program that prints log lines. Returns the exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        keep_server(
            HttpAddress(given.host, given.port),
            ("--project", str(given.project), "--root", given.root),
            lock=Lock(given.lock, what="the HTTP server of kappa up", root=marked_root()),
            log=given.log,
            door=given.door,
            port=given.kept,
            handed=None if given.socket < 0 else socket.socket(fileno=given.socket),
            say=message_printer(sys.stdout),
        )
        return ExitCode.OK

    return run_program(
        "kappa.replay.platform.http_supervisor",
        work,
        arguments,
        host=str,
        port=int,
        lock=Path,
        log=Path,
        door=Path,
        kept=Path,
        socket=int,
    )


if __name__ == "__main__":
    sys.exit(main())
