"""The objects that routes share, and functions whose result many requests share.

The shared objects are the store, the sandbox, the pinned snapshots, and the queue of requests with
wrong tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import anyio
from fastapi import Request

from kappa.base.errors import KappaError
from kappa.serving.http.page.render import ProjectPlace
from kappa.serving.http.problem import MEDIA_TYPE
from kappa.serving.http.snapshots import Snapshots
from kappa.serving.http.token import WaitingLine
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.store import Store

_Seen = TypeVar("_Seen")

API = "/api/v1"
# The answer of each route to an error (RFC 9457).
PROBLEM: dict[str, Any] = {
    "description": "What is wrong, and what to do now",
    "content": {
        MEDIA_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    name: {"type": "integer" if name == "status" else "string"}
                    for name in ("type", "title", "status", "detail", "hint")
                },
            }
        }
    },
}


def json_answer(schema: Mapping[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Describes a route's JSON answer for FastAPI.

    `schema` is the JSON schema of the answer. The result is a value for the parameter `responses`
    of a route.
    """
    return {200: {"content": {"application/json": {"schema": schema}}}}


OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": True}
ROWS: dict[str, Any] = {"type": "array", "items": OBJECT}


@dataclass(frozen=True, slots=True)
class Stand:
    """The objects that all routes share.

    `unready` is a function that returns the reasons why the server cannot answer queries, as
    sentences, or an empty list.
    """

    store: Store
    sandbox: Sandbox
    snapshots: Snapshots
    lease_seconds: float
    unready: Callable[[], Sequence[str]]


def line_of(request: Request) -> WaitingLine:
    """Returns the queue of requests with wrong tokens."""
    line = request.app.state.line
    assert isinstance(line, WaitingLine), "make_app has put it"
    return line


def stand_of(request: Request) -> Stand:
    """Returns the objects that all routes share."""
    stand = request.app.state.stand
    assert isinstance(stand, Stand), "make_app has put it"
    return stand


def place_of(request: Request) -> ProjectPlace | None:
    """Returns the project that the server serves, or None if the server has no project."""
    place = request.app.state.place
    assert place is None or isinstance(place, ProjectPlace), "who made the app has put it"
    return place


async def counts_of(request: Request) -> Mapping[str, tuple[int, bool]]:
    """Returns the numbers in the navigation, as `page_html` takes them.

    The result is empty if the server has no pages with numbers, or if counting fails.
    """
    count: Callable[[Request], Mapping[str, tuple[int, bool]]] | None = request.app.state.counts
    if count is not None:
        with suppress(KappaError):
            return await anyio.to_thread.run_sync(count, request)
    return {}


class SharedLook(Generic[_Seen]):
    """A function whose result many requests share.

    The function is called at most once per `seconds`. It runs in a separate thread, so it occupies
    none of the threads that answer requests.
    """

    def __init__(self, look: Callable[[], _Seen], *, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._thread = anyio.CapacityLimiter(1)
        self._last: tuple[float, _Seen] | None = None

    async def seen(self) -> _Seen:
        """Returns the function's last result, or calls the function if that result is too old."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if self._last is None or now - self._last[0] >= self._seconds:
                found = await anyio.to_thread.run_sync(self._look, limiter=self._thread)
                self._last = asyncio.get_running_loop().time(), found
            return self._last[1]
