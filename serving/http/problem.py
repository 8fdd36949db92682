"""Errors as problem documents of RFC 9457. The `hint` of a document says what to do next."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from kappa.base.errors import (
    Conflict,
    ConsentNeeded,
    KappaError,
    NotProvable,
    TimedOut,
    Unreachable,
    UsageError,
    VerificationFailed,
)

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

MEDIA_TYPE = "application/problem+json"

# The first class that an error is an instance of decides.
_STATUSES: tuple[tuple[type[KappaError], int], ...] = (
    (UsageError, 400),
    (Conflict, 409),
    (VerificationFailed, 409),
    (NotProvable, 409),
    (ConsentNeeded, 409),
    (Unreachable, 503),
    (TimedOut, 504),
)


class HttpError(KappaError):
    """An error that is answered with its own HTTP status and headers."""

    def __init__(
        self, status: int, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = headers or {}


@dataclass(frozen=True, slots=True)
class Problem:
    """The answer to a failed request: the HTTP status, the problem document, and the headers."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def problem_of(error: KappaError) -> Problem:
    """Returns the problem document for an error, with its HTTP status and headers."""
    if isinstance(error, HttpError):
        return _problem(error.status, "request", error, error.headers)
    # Some errors of queries have a status of their own: TooMuch and Busy.
    status = getattr(error, "status", None) or next(
        (status for kind, status in _STATUSES if isinstance(error, kind)), 500
    )
    return _problem(
        status, _problem_kind(error), error, {"Retry-After": "1"} if status == 503 else {}
    )


def _problem(status: int, kind: str, error: KappaError, headers: Mapping[str, str]) -> Problem:
    document = {
        "type": f"urn:kappa:problem:{kind}",
        "title": kind.replace("-", " "),
        "status": status,
        "detail": error.message,
        **({"hint": error.hint} if error.hint else {}),
    }
    return Problem(status, document, headers)


def _problem_kind(error: KappaError) -> str:
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower().removesuffix("-error")
    return "failed" if name == "kappa" else name


async def refuse_websocket(error: KappaError, send: Send) -> None:
    """Answers the handshake of a websocket with an error."""
    await refuse(error, send, last=True, kind="websocket.http.response")


async def refuse(error: KappaError, send: Send, *, last: bool, kind: str = "http.response") -> None:
    """Answers a request with the problem document of an error.

    If `last` is True, the connection is closed, because the rest of the request will not be read.
    `kind` is the prefix of the ASGI messages.
    """
    problem = problem_of(error)
    content = json.dumps(problem.document).encode()
    headers = [
        ("content-type", MEDIA_TYPE),
        ("content-length", str(len(content))),
        *{**problem.headers, **({"Connection": "close"} if last else {})}.items(),
    ]
    await send(
        {
            "type": f"{kind}.start",
            "status": problem.status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
        }
    )
    await send({"type": f"{kind}.body", "body": content})
