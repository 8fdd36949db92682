"""A look that many requests share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio

_Seen = TypeVar("_Seen")


class SharedLook(Generic[_Seen]):
    """A look that all requests of a kind share, made at most once in `seconds`.

    It runs in its own thread, and takes none of those that answer other requests.
    """

    def __init__(self, look: Callable[[], _Seen], *, seconds: float) -> None:
        self._look = look
        self._seconds = seconds
        self._turn = asyncio.Lock()
        self._thread = anyio.CapacityLimiter(1)
        self._last: tuple[float, _Seen] | None = None

    async def seen(self) -> _Seen:
        """Returns the result of a look that is less than `seconds` old."""
        async with self._turn:
            now = asyncio.get_running_loop().time()
            if self._last is None or now - self._last[0] >= self._seconds:
                found = await anyio.to_thread.run_sync(self._look, limiter=self._thread)
                self._last = asyncio.get_running_loop().time(), found
            return self._last[1]
