"""The address of the HTTP server: its parser, its socket, and the check of its tokens.

An address is guarded if it is local, or if its clients must send a token. The HTTP supervisor needs
this module and must be small, so the module imports only the standard library and errors.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from kappa.base.errors import Conflict, SettingsError
from kappa.serving.access.tokens import ensure_long

# The number of connections that wait in the kernel until accepted, or until a server runs.
WAITING = 512


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """A host and a port to listen at. Port 0 means any free port."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Returns the URL of a server at this address."""
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def guarded_address(listen: str, token: str | None, *, named: bool = False) -> HttpAddress:
    """Parses an address HOST:PORT, and checks that other machines cannot use it freely.

    Raises SettingsError if the text is not an address, or if other machines could send requests to
    the address without a token. `token` and `named` are as for `ensure_guarded`.
    """
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"{listen!r} is not a place to listen at",
            hint="give host and port, such as 127.0.0.1:8717",
        )
    ensure_guarded(host, token, named=named)
    return HttpAddress(host, int(port))


def ensure_guarded(host: str, token: str | None, *, named: bool = False) -> None:
    """Raises SettingsError if other machines could send requests without a token.

    No token is needed if `host` is this machine. `token` is the server's own token, which must be
    long enough, or None. `named` is True if there are named tokens, or if an issuer identifies
    people.
    """
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if token is not None:
        ensure_long(token)
    if not local and token is None and not named:
        raise SettingsError(
            f"at {host} other machines could ask, and there is no token to tell who may",
            hint="make one: kappa token add NAME --role read; or give one: "
            "KAPPA__SERVE__TOKEN=...; or listen at 127.0.0.1",
        )


def listening_at(address: HttpAddress, *, command: str = "kappa serve") -> socket.socket:
    """Opens a socket that listens at an address.

    Raises Conflict if the address cannot be used, for example because the port is taken. The hint
    of the error is `command` with another port.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        return socket.create_server((address.host, address.port), family=family, backlog=WAITING)
    except OSError as error:
        raise Conflict(
            f"nothing can listen at {address.host}:{address.port}: {error.strerror}",
            hint=f"give another place: {command} --listen 127.0.0.1:0 takes any port that is free",
        ) from error
