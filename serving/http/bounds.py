"""The bounds of a server: of requests, of their steps, and of connections."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from kappa.serving.access.roles import Identity
from kappa.serving.http.problem import HttpError
from kappa.serving.query.reader.client import Client

Scope = MutableMapping[str, Any]
# The name of the connection (Connection) in a request's state.
CONNECTION = "kappa_connection"
# The name of the client that waits for the answer (Client), likewise.
_CLIENT = "kappa_client"
# The name of the identity of that client (Identity), likewise.
_IDENTITY = "kappa_identity"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most bytes of a request, the most seconds of each step, and the most connections.

    The steps are reading a request's head (patience.py), reading the body, and sending a piece of
    the answer. A wrong token costs `wrong_seconds`. At most `strangers` of all `connections` belong
    to strangers.
    """

    connections: int = 1024
    strangers: int = 512
    head_bytes: int = 32 << 10
    head_seconds: float = 10.0
    body_bytes: int = 1 << 20
    body_seconds: float = 20.0
    send_seconds: float = 30.0
    wrong_seconds: float = 0.5


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Connection:
    """A request's connection: `welcome` marks a known client, `cut` ends the connection.

    `is_too_many` is True if the server was full when the connection was made (patience.py).
    """

    welcome: Callable[[], None] = _nothing
    cut: Callable[[], None] = _nothing
    is_too_many: bool = False


def connection_of(scope: Scope) -> Connection:
    """Returns the connection of a request."""
    found: Connection = scope.get("state", {}).get(CONNECTION, Connection())
    return found


def put_client(scope: Scope, client: Client, identity: Identity | None) -> None:
    """Puts a request's client and the client's identity where the request's route finds both.

    `identity` is None for anybody.
    """
    scope.setdefault("state", {}).update({_CLIENT: client, _IDENTITY: identity})


def client_of(scope: Scope) -> Client:
    """Returns the client of a request."""
    found: Client = scope.get("state", {}).get(_CLIENT) or Client()
    return found


def identity_in(scope: Scope) -> Identity | None:
    """Returns who asks, or None for anybody, who may only use open routes."""
    found: Identity | None = scope.get("state", {}).get(_IDENTITY)
    return found


def ensure_room(connection: Connection, bounds: Bounds) -> None:
    """Raises HttpError if a connection exceeds the server's number."""
    if connection.is_too_many:
        raise HttpError(
            503,
            f"{bounds.connections:,} connections are open already",
            hint="come back in a while",
            headers={"Retry-After": "10"},
        )
