"""Problems: our errors as HTTP tells them, RFC 9457, with what to do now as `hint`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
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

MEDIA_TYPE = "application/problem+json"

# The first that an error is of decides.
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
    """What is wrong is the request, in HTTP's own terms."""

    def __init__(
        self, status: int, message: str, *, hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.headers = headers or {}


@dataclass(frozen=True, slots=True)
class Problem:
    """A status, a document, and headers that go with it."""

    status: int
    document: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


def problem_of(error: KappaError) -> Problem:
    """How an error is told."""
    if isinstance(error, HttpError):
        return _problem(error.status, "request", error, error.headers)
    # An error that knows its own status says so: a query's that takes too much, one that has no place.
    status = getattr(error, "status", None) or next(
        (status for kind, status in _STATUSES if isinstance(error, kind)), 500
    )
    return _problem(status, _kind(error), error, {"Retry-After": "1"} if status == 503 else {})


def _problem(status: int, kind: str, error: KappaError, headers: Mapping[str, str]) -> Problem:
    document = {
        "type": f"urn:kappa:problem:{kind}",
        "title": kind.replace("-", " "),
        "status": status,
        "detail": error.message,
        **({"hint": error.hint} if error.hint else {}),
    }
    return Problem(status, document, headers)


def _kind(error: KappaError) -> str:
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower().removesuffix("-error")
    return "failed" if name == "kappa" else name
