"""The limits of a server: sizes and times of requests, and numbers of connections."""

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
    """The limits of a server: sizes in bytes, times in seconds, and numbers of connections.

    Three times are limited: reading a request's head, reading its body, and sending a piece of the
    answer. A request with a wrong token is delayed by `wrong_seconds`. At most `strangers` of the
    `connections` may belong to unauthenticated clients.
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
    """The connection of a request.

    `welcome` marks the client as authenticated, and `cut` ends the connection at once.
    `is_too_many` is True if the server had all its connections when this connection was made.
    """

    welcome: Callable[[], None] = _nothing
    cut: Callable[[], None] = _nothing
    is_too_many: bool = False


def connection_of(scope: Scope) -> Connection:
    """Returns the connection of a request."""
    found: Connection = scope.get("state", {}).get(CONNECTION, Connection())
    return found


def put_client(scope: Scope, client: Client, identity: Identity | None) -> None:
    """Stores a request's client and the client's identity in the request's ASGI scope.

    `identity` is None for an unauthenticated client.
    """
    scope.setdefault("state", {}).update({_CLIENT: client, _IDENTITY: identity})


def client_of(scope: Scope) -> Client:
    """Returns the client of a request."""
    found: Client = scope.get("state", {}).get(_CLIENT) or Client()
    return found


def identity_in(scope: Scope) -> Identity | None:
    """Returns the identity of a request's client, or None for an unauthenticated client.

    An unauthenticated client may use only the routes that are open to everybody.
    """
    found: Identity | None = scope.get("state", {}).get(_IDENTITY)
    return found


def ensure_room(connection: Connection, bounds: Bounds) -> None:
    """Raises HttpError if the server had all its connections when this connection was made."""
    if connection.is_too_many:
        raise HttpError(
            503,
            f"{bounds.connections:,} connections are open already",
            hint="come back in a while",
            headers={"Retry-After": "10"},
        )
