"""The door at which a keeper of HTTP hands its listening socket to the next supervisor.

The socket is the kernel's: connections wait in it while its owner changes, and none is refused or
reset. What a killed supervisor has left ends only then. A connection that a server has accepted
ends with that server: it cannot be handed over.
Source: unix(7), SCM_RIGHTS.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
from pathlib import Path
from typing import Self

from kappa.code.task import socket_name
from kappa.serving.http.address import HttpAddress

_PATIENCE_SECONDS = 2.0
_LONGEST = 1024


class SocketDoor:
    """The keeper's side: who comes gets the socket, and the address that it was opened for."""

    def __init__(self, path: Path, address: HttpAddress, listening: socket.socket) -> None:
        self._path = path
        self._address = address
        self._listening = listening
        self._door = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        """Opens the door, in place of one that a killed keeper has left."""
        self._path.unlink(missing_ok=True)
        with socket_name(self._path) as name:
            self._door.bind(name)
        self._path.chmod(0o600)
        self._door.listen()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes it."""
        self._door.close()
        self._path.unlink(missing_ok=True)

    def wait(self, seconds: float) -> None:
        """Waits, and hands the socket to who comes."""
        if not select.select([self._door], [], [], seconds)[0]:
            return
        with contextlib.suppress(OSError):
            caller, _ = self._door.accept()
            with caller:
                caller.settimeout(_PATIENCE_SECONDS)
                said = json.dumps([self._address.host, self._address.port]).encode()
                socket.send_fds(caller, [said], [self._listening.fileno()])


def socket_handed_over(path: Path, address: HttpAddress) -> socket.socket | None:
    """Returns the socket of the keeper behind a door, if it was opened for the same address."""
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(_PATIENCE_SECONDS)
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
