"""The gate: what every request passes before anything of it is looked at. Who may come in, how much, and how slowly.

- With a token: only who brings it, in a header, or as a browser that was given a cookie for it (serving/http/login.py); who brings a wrong one waits in line to be told so. Without one, the server listens on this
  machine alone, and a page of another site that a browser of this machine shows is kept out: by the name it came under (DNS rebinding), and by the site it is from.
- A body has so many bytes and so much time; one that says that it is larger is not read.
- Who takes an answer too slowly is left.

It is an ASGI application around another (https://asgi.readthedocs.io/en/latest/specs/www.html), and knows no framework.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from serving.http.problem import MEDIA_TYPE, HttpError, problem_of

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
# Whoever watches over the server asks these, and learns nothing that is not his.
OPEN = frozenset({"/healthz", "/readyz"})
# Where a browser brings the token, and how that looks.
LOGIN = "/login"
LOGOUT = "/logout"
STATIC = "/static/"
COOKIE = "kappa"
COOKIE_SECONDS = 30 * 86_400
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Who waits in line holds a connection, and others need some too.
_LONGEST_LINE = 256


@dataclass(frozen=True, slots=True)
class Bounds:
    """Most bytes of a body, and seconds that a head (serving/http/patience.py), a body, or one piece of an answer may take; and those that a wrong token costs."""

    head_seconds: float = 10.0
    body_bytes: int = 1 << 20
    body_seconds: float = 20.0
    send_seconds: float = 30.0
    wrong_seconds: float = 0.5


class _Left(Exception):
    """The other side takes nothing any more."""


class Line:
    """Where wrong tokens wait: one at a time is told that it is wrong, which keeps a program that has an old one from asking all the time. Right ones never come here.

    Who guesses need not stay to be told, so this protects no token: its length does (replay/run/serve.py).
    """

    def __init__(self, seconds: float) -> None:
        """`seconds` is what each of them costs."""
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def wait(self) -> None:
        """Ends when it is one's turn to be told. Raises HttpError where the line is too long."""
        if self._waiting >= _LONGEST_LINE:
            raise HttpError(
                429,
                "too many bring wrong tokens",
                hint="come back in a while; a right one is let in at any time",
                headers={"Retry-After": "60"},
            )
        self._waiting += 1
        try:
            async with self._turn:
                await asyncio.sleep(self._seconds)
        finally:
            self._waiting -= 1


class Gate:
    """Lets through what may pass."""

    def __init__(
        self, inside: Application, *, token: str | None, bounds: Bounds, wrong: Line
    ) -> None:
        """Without a token, only requests that name this machine itself pass; `wrong` is where those wait that bring another one."""
        self._inside = inside
        self._token = token
        self._bounds = bounds
        self._wrong = wrong

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes on one request that may pass, and the server's own beginning and end.

        Refuses every other scope: nothing inside answers a websocket, with the token or without.
        """
        if scope["type"] == "lifespan":
            await self._inside(scope, receive, send)
            return
        if scope["type"] != "http":
            # Closed before it is accepted: the server answers 403.
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = joined(scope["headers"])
        try:
            await self._ensure_welcome(scope, headers)
            body = await self._body(headers, receive)
        except HttpError as error:
            await _refuse(error, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def patiently(message: Message) -> None:
            try:
                async with asyncio.timeout(self._bounds.send_seconds):
                    await send(message)
            except TimeoutError:
                raise _Left from None

        try:
            await self._inside(scope, again, patiently)
        except _Left:
            # Nobody is there to be told; the server closes the connection, since the answer is not whole.
            return

    async def _ensure_welcome(self, scope: Scope, headers: dict[str, str]) -> None:
        path, host, origin = (
            scope["path"],
            _place(headers, "host").hostname,
            _place(headers, "origin").netloc,
        )
        if path in OPEN:
            return
        if self._token is not None:
            if (
                path == LOGIN
                or path.startswith(STATIC)
                or hmac.compare_digest(
                    headers.get("authorization", "").encode(), f"Bearer {self._token}".encode()
                )
            ):
                return
            # Who wants to be known no longer need not be known still.
            if path == LOGOUT and _from_here(headers):
                return
            # A browser has one, or two of different paths.
            if not any(
                is_cookie_of(self._token, each, time.time())
                for each in islice(_cookies(headers), 2)
            ):
                # A cookie can be made of a guess as well.
                if "authorization" in headers or any(_cookies(headers)):
                    await self._wrong.wait()
                raise _stranger(scope, headers)
            # A browser sends its cookie whoever's page asks; what changes something has to come from a page of this server.
            if scope["method"] not in _SAFE and not _from_here(headers):
                raise HttpError(
                    403,
                    "a page of another site asks, and only this server's own may",
                    hint="send the token: Authorization: Bearer TOKEN",
                )
            return
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

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        most = self._bounds.body_bytes
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most:
            raise _too_large(most)
        pieces, size = [], 0
        try:
            async with asyncio.timeout(self._bounds.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    pieces.append(message.get("body", b""))
                    size += len(pieces[-1])
                    if size > most:
                        raise _too_large(most)
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise HttpError(
                408,
                f"the request was not whole after {self._bounds.body_seconds:g} s",
                hint="send it at once",
                headers={"Connection": "close"},
            ) from None
        return b"".join(pieces)


def cookie_of(token: str, issued: float) -> str:
    """What a browser keeps instead of the token, from then (seconds since 1970) on: it opens the same doors for a while, and does not tell it."""
    told = str(int(issued))
    return f"{told}.{hmac.new(token.encode(), f'kappa page {told}'.encode(), hashlib.sha256).hexdigest()}"


def is_cookie_of(token: str, cookie: str, now: float) -> bool:
    """True for one that was given for this token, and is not too old. Pure."""
    issued = cookie.partition(".")[0]
    if not (issued.isascii() and issued.isdecimal() and len(issued) < 16):
        return False
    return (
        hmac.compare_digest(cookie.encode(), cookie_of(token, int(issued)).encode())
        and now - int(issued) < COOKIE_SECONDS
    )


def joined(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by name, in lower case; of one that comes several times, all that it says (RFC 9110, 5.3; RFC 9113, 8.2.3). Pure."""
    found: dict[str, str] = {}
    for raw, value in headers:
        name = raw.decode("latin-1").lower()
        between = "; " if name == "cookie" else ", "
        found[name] = (
            f"{found[name]}{between}{value.decode('latin-1')}"
            if name in found
            else value.decode("latin-1")
        )
    return found


def _cookies(headers: dict[str, str]) -> Iterator[str]:
    """Ours, by hand: cookies of others on the same host are as odd as they like, and a parser that is strict would give none for them."""
    for each in headers.get("cookie", "").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            yield value.strip('"')


def _place(headers: dict[str, str], name: str) -> SplitResult:
    told = headers.get(name, "")
    try:
        found = urlsplit(told if name == "origin" else f"//{told}")
        _ = found.hostname
    except ValueError:
        raise HttpError(
            400,
            f"{told[:80]!r} is no {name.capitalize()}",
            hint="call the server by its name or address, and port",
        ) from None
    return found


def _from_here(headers: dict[str, str]) -> bool:
    # Browsers say so themselves (https://www.w3.org/TR/fetch-metadata/); older ones name the site, which a proxy may have renamed.
    return headers.get("sec-fetch-site") == "same-origin" or (
        "origin" in headers and _place(headers, "origin").netloc == headers.get("host")
    )


def _stranger(scope: Scope, headers: dict[str, str]) -> HttpError:
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
        "no token was given, or a wrong one",
        hint="send it: Authorization: Bearer TOKEN",
        headers={"WWW-Authenticate": "Bearer"},
    )


def _too_large(most: int) -> HttpError:
    return HttpError(
        413,
        f"the request is larger than {most >> 10} KiB",
        hint="a query has room in that; send less",
        headers={"Connection": "close"},
    )


async def _refuse(error: HttpError, send: Send) -> None:
    problem = problem_of(error)
    content = json.dumps(problem.document).encode()
    headers = [
        ("content-type", MEDIA_TYPE),
        ("content-length", str(len(content))),
        *problem.headers.items(),
    ]
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }
    )
    await send({"type": "http.response.body", "body": content})
