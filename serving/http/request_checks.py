"""The gate: the checks that each request must pass before the application handles it.

- If the server knows clients, a request passes only if it has a client's token in a header, or a
  browser's cookie for the token (login.py). A request with a wrong token waits in a queue before it
  is refused. Each route decides what the client may do (rights.py).
- If the server knows no client, it answers only requests whose `Host` header names this machine.
  Requests from pages of other sites, open in a browser on this machine, are refused, by the host
  name (DNS rebinding) and by the page's site.
- The body of a request is limited in bytes and in time. If the announced length is too large, the
  body is not read.
- The answer ends if the client reads too slowly.
- Work for a client (a wait, a stream, a query) ends when the client leaves. A running thread is not
  interrupted, but stops when it next checks the client (`Client`).

The gate is an ASGI application around another application
(https://asgi.readthedocs.io/en/latest/specs/www.html). It depends on no framework but anyio, whose
cancel scopes end the work of the inner application.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from urllib.parse import quote

import anyio

from kappa.base.errors import KappaError
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.oidc import TokenRefused
from kappa.serving.access.roles import THIS_MACHINE, Identity
from kappa.serving.http.bounds import (
    Bounds,
    Connection,
    Scope,
    connection_of,
    ensure_room,
    put_client,
)
from kappa.serving.http.headers import (
    bearer_of,
    cookies,
    has_body,
    is_from_here,
    joined,
    place_of,
)
from kappa.serving.http.problem import HttpError, Message, Send, refuse, refuse_websocket
from kappa.serving.http.token import WaitingLine, identity_of_cookie
from kappa.serving.query.reader.client import Client, ClientLeft
from kappa.state.journal.journal import acting_as

Receive = Callable[[], Awaitable[Message]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# Probes call these without a token, and learn only if the server is up and ready.
OPEN = frozenset({"/healthz", "/readyz"})
# The login form of a browser, and the files that it needs.
LOGIN = "/login"
LOGOUT = "/logout"
STATIC = "/static/"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# The method that a websocket's handshake is examined as.
WEBSOCKET = "WEBSOCKET"
# How often it is looked whether the client of a long answer may still have the answer.
_LOOK_SECONDS = 5.0


class _Left(Exception):
    """The signal that the client has stopped reading the answer, or may no longer receive it."""


class Gate:
    """An ASGI application that passes allowed requests to the application `inside`."""

    def __init__(
        self, inside: Application, *, accounts: Accounts, bounds: Bounds, wrong: WaitingLine
    ) -> None:
        """Sets the known clients, the limits, and `wrong`, the queue for wrong tokens.

        Requests with wrong tokens wait in this queue before they are refused. If `accounts` knows
        no client, only requests whose `Host` header names this machine pass.
        """
        self._inside = inside
        self._accounts = accounts
        self._bounds = bounds
        self._wrong = wrong

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes an allowed request on, and answers any other request with an error.

        The server's startup and shutdown are also passed on. A websocket must pass the same checks
        as a request, and has no body.
        """
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
            return
        headers = joined(scope["headers"])
        if scope["type"] == "websocket":
            await self._websocket(scope, headers, receive, send)
            return
        connection = connection_of(scope)
        try:
            identity = await self._admitted(scope, headers)
            body = await read_body(headers, receive, self._bounds)
        except KappaError as error:
            await refuse(error, send, last=connection.is_too_many or has_body(headers))
            return
        if body is None:
            return
        given, answered = False, False
        client = Client()
        put_client(scope, client, identity)

        async def again() -> Message:
            nonlocal given
            if given:
                # The task is cancelled here if the client leaves.
                await anyio.sleep_forever()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        still = _StillKnown(self._known_by, headers, identity)

        async def patiently(message: Message) -> None:
            nonlocal answered
            await still.ensure()
            answered = message["type"] == "http.response.body" and not message.get("more_body")
            try:
                async with asyncio.timeout(self._bounds.send_seconds):
                    await send(message)
            except TimeoutError:
                raise _Left from None

        async def until_left(inside: anyio.CancelScope) -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            # A client is free to go after the answer.
            if not answered:
                client.leave_now()
                inside.cancel()

        with anyio.CancelScope() as inside:
            watching = asyncio.ensure_future(until_left(inside))
            try:
                with acting_as(_name_of(identity)):
                    await self._inside(scope, again, patiently)
            except ClientLeft:
                pass
            except _Left:
                await _cut_connection(connection)
            finally:
                watching.cancel()

    async def _websocket(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        """Passes an allowed websocket on, or answers the websocket's handshake with an error."""
        connection = connection_of(scope)
        try:
            # A page of another site may open a websocket with a browser's cookie, so the method is
            # not safe.
            identity = await self._admitted({**scope, "method": WEBSOCKET}, headers)
        except KappaError as error:
            await refuse_websocket(error, send)
            return
        put_client(scope, Client(), identity)
        still = _StillKnown(self._known_by, headers, identity)

        async def patiently(message: Message) -> None:
            await still.ensure()
            async with asyncio.timeout(self._bounds.send_seconds):
                await send(message)

        try:
            with acting_as(_name_of(identity)):
                await self._inside(scope, receive, patiently)
        except (TimeoutError, _Left):
            await _cut_connection(connection)

    async def _admitted(self, scope: Scope, headers: dict[str, str]) -> Identity | None:
        """Returns the client of an allowed request, or None if anybody may send the request.

        Raises KappaError if the request is refused.
        """
        connection = connection_of(scope)
        ensure_room(connection, self._bounds)
        self._ensure_short(scope)
        identity = await self._identity(scope, headers)
        if identity is not None:
            connection.welcome()
        return identity

    async def _known_by(self, headers: dict[str, str]) -> Identity | None:
        """Returns the client whose token or cookie the headers of a request contain.

        Returns None if the client is not known, or no longer known. If the server requires no
        token, returns the identity of a client on this machine.
        """
        try:
            if not self._accounts.is_guarded:
                return THIS_MACHINE
            found = await self._accounts.identity(bearer_of(headers))
        except KappaError:
            # It has expired; or the tokens cannot be read just now.
            return None
        return found or self._known_by_cookie(headers)

    def _known_by_cookie(self, headers: dict[str, str]) -> Identity | None:
        # A browser has a single cookie, or two with different paths.
        mine = (
            identity_of_cookie(self._accounts, each, time.time())
            for each in islice(cookies(headers), 2)
        )
        return next((each for each in mine if each is not None), None)

    def _ensure_short(self, scope: Scope) -> None:
        target = scope.get("raw_path", b""), scope.get("query_string", b"")
        # The spaces, marks and line ends between the parts count as well.
        size = len(scope["method"]) + sum(map(len, target)) + bool(target[1]) + 14
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > self._bounds.head_bytes:
            raise HttpError(
                431,
                f"the head of the request is larger than {self._bounds.head_bytes >> 10} KiB",
                hint="send fewer or shorter headers; a query is sent as the body",
                headers={"Connection": "close"},
            )

    async def _identity(self, scope: Scope, headers: dict[str, str]) -> Identity | None:
        """Returns the client of a request, or None if anybody may send the request.

        Raises KappaError if the request is refused.
        """
        path, host, origin = (
            scope["path"],
            place_of(headers, "host").hostname,
            place_of(headers, "origin").netloc,
        )
        if path in OPEN:
            return None
        if self._accounts.is_guarded:
            refused: TokenRefused | None = None
            try:
                known = await self._accounts.identity(bearer_of(headers))
            except TokenRefused as error:
                known, refused = None, error
            if known is not None:
                return known
            if path == LOGIN or path.startswith((STATIC, f"{LOGIN}/")):
                return None
            # Logging out does not require a valid session.
            if path == LOGOUT and is_from_here(headers):
                return None
            known = self._known_by_cookie(headers)
            if known is None:
                # A guessed token can also be sent as a cookie.
                if "authorization" in headers or any(cookies(headers)):
                    await self._wrong.wait()
                raise _stranger_error(scope, headers, refused)
            # A browser sends its cookie for any site's page, so a change needs a page of ours.
            if scope["method"] not in _SAFE and not is_from_here(headers):
                raise HttpError(
                    403,
                    "a page of another site asks, and only this server's own may",
                    hint="send the token: Authorization: Bearer TOKEN",
                )
            return known
        if host not in _LOCAL:
            raise HttpError(
                403,
                f"this server answers on this machine only, and was called {host}",
                hint="call it 127.0.0.1; or start it with --token to let others in",
            )
        if "origin" in headers and origin != headers.get("host"):
            raise HttpError(
                403,
                f"a page of {headers['origin']} asks, and only this server's own may",
                hint="start the server with --token, and send it, to let others in",
            )
        return THIS_MACHINE


class _StillKnown:
    """Checks regularly that a client may still receive a long answer.

    During a stream, a token may be removed, expire or get other roles. The connection is then cut,
    and the client is checked again when it reconnects.
    """

    def __init__(
        self,
        known_by: Callable[[dict[str, str]], Awaitable[Identity | None]],
        headers: dict[str, str],
        identity: Identity | None,
    ) -> None:
        self._known_by = known_by
        self._headers = headers
        self._identity = identity
        self._looked_at = time.monotonic()

    async def ensure(self) -> None:
        """Raises _Left if the client is no longer known with the same identity.

        The identity is checked at most once every five seconds.
        """
        if self._identity is None or time.monotonic() - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        if await self._known_by(self._headers) != self._identity:
            raise _Left


def _name_of(identity: Identity | None) -> str | None:
    """Returns the name of a client for the journal.

    Returns None for a client on this machine, or if nobody had to identify himself: such a client
    acts as the user who runs this process.
    """
    return None if identity is None or identity is THIS_MACHINE else identity.name


async def read_body(
    headers: dict[str, str],
    receive: Receive,
    bounds: Bounds,
    on_piece: Callable[[int], None] = lambda _size: None,
) -> bytes | None:
    """Reads the body of a request, within the limits of bytes and time.

    Returns None if the client leaves before the end of the body. Raises HttpError if the body is
    too large or too slow. `on_piece` gets the size of each piece that arrives, and may raise an
    error.
    """
    most = bounds.body_bytes
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise _too_large(most)
    pieces, size = [], 0
    try:
        async with asyncio.timeout(bounds.body_seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                pieces.append(message.get("body", b""))
                on_piece(len(pieces[-1]))
                size += len(pieces[-1])
                if size > most:
                    raise _too_large(most)
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise HttpError(
            408,
            f"the request was not whole after {bounds.body_seconds:g} s",
            hint="send it at once",
            headers={"Connection": "close"},
        ) from None
    return b"".join(pieces)


async def _cut_connection(connection: Connection) -> None:
    # If the connection were only closed, the rest of the answer would wait for as long as the
    # client likes.
    connection.cut()
    await asyncio.sleep(0)  # the server learns of it in the loop's next step


def _stranger_error(
    scope: Scope, headers: dict[str, str], refused: TokenRefused | None
) -> HttpError:
    if scope["method"] == "GET" and "text/html" in headers.get("accept", ""):
        query = scope.get("query_string", b"").decode("latin-1")
        meant = quote(f"{scope['path']}{'?' if query else ''}{query}", safe="")
        return HttpError(
            303,
            "no token was given",
            hint=f"give it at {LOGIN}",
            headers={"Location": f"{LOGIN}?next={meant}"},
        )
    return HttpError(
        401,
        "no token was given, or a wrong one" if refused is None else refused.message,
        hint="send it: Authorization: Bearer TOKEN" if refused is None else refused.hint,
        headers={"WWW-Authenticate": "Bearer"},
    )


def _too_large(most: int) -> HttpError:
    return HttpError(
        413,
        f"the request is larger than {most >> 10} KiB",
        hint="send less at once",
        headers={"Connection": "close"},
    )
