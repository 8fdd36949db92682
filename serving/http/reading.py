"""A reader of a table's changes, for the server's loop, and the reader's stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from fastapi import FastAPI

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Identity, naming_no_others
from kappa.serving.http.open_streams import EndingResponse
from kappa.serving.http.problem import HttpError, problem_of
from kappa.serving.outlets.changes.hub import (
    ChangeHub,
    ChangeMessage,
    ChangeReader,
    RecordedChanges,
)

# Proxies close a connection that is silent for a minute; sending also finds clients that left.
SILENCE_SECONDS = 15.0
# Most readers at the same time: some connections are left to others.
MOST_READERS = 768
# The most readers that compute the way to the hub's point at the same time.
_BEGINNINGS = 2


class EventStream(EndingResponse):
    """The stream of readers who are counted from their beginning until the stream ends."""

    def __init__(self, readings: Sequence[HttpReader], events: AsyncIterator[str]) -> None:
        super().__init__(
            events,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._readings = readings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends events until the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            for each in self._readings:
                each.leave()


class HttpReader:
    """A reader of the hub, for the server's loop."""

    def __init__(
        self,
        app: FastAPI,
        reader: Callable[[Callable[[], None]], ChangeReader],
        woken: asyncio.Event | None = None,
        *,
        asker: Identity,
    ) -> None:
        """Counts the reader, which `reader` makes for the client `asker`.

        Raises HttpError if there are too many readers. `woken` is set when something waits for the
        reader.
        """
        self._hub, self._all, self._beginnings = _shared_state(app)
        if len(self._all) >= MOST_READERS:
            raise HttpError(
                503,
                f"{MOST_READERS:,} follow tables already",
                hint="come back in a while",
                headers={"Retry-After": "10"},
            )
        loop, self._woken = asyncio.get_running_loop(), woken or asyncio.Event()

        def wake() -> None:
            # The server's loop may have ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._woken.set)

        self._reader, self._asker = reader(wake), asker
        self._left = asyncio.Event()
        self._all.add(self)

    async def begin(self) -> RecordedChanges | None:
        """Joins the table's readers; returns the reader's first change set.

        On an error the reader leaves.
        """
        try:
            with naming_no_others(self._asker):
                return await anyio.to_thread.run_sync(
                    self._hub.begin_reader, self._reader, limiter=self._beginnings
                )
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Leaves the table's readers, which ends the messages."""
        self._left.set()
        self._woken.set()
        self._all.discard(self)
        self._hub.remove_reader(self._reader)

    async def news(self) -> AsyncIterator[RecordedChanges]:
        """Yields the waiting change sets. Raises KappaError if the changes have ended."""
        if self._reader.late:
            await self.begin()
        while (recorded := self._take_changes()) is not None:
            yield recorded

    async def messages(
        self, first: RecordedChanges | None
    ) -> AsyncGenerator[ChangeMessage | None, None]:
        """Yields the messages, and None after a silence. Raises KappaError if the messages end."""
        recorded = first
        while not self._left.is_set():
            if recorded is None:
                self._woken.clear()
                recorded = self._take_changes()
            if recorded is None and self._reader.late:
                recorded = await self.begin()
            elif recorded is None:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await self._woken.wait()
                except TimeoutError:
                    yield None
            if recorded is not None:
                for message in recorded.messages():
                    if self._left.is_set():
                        return
                    yield message
                self._reader.cursor, recorded = recorded.head.cursor, None

    def _take_changes(self) -> RecordedChanges | None:
        with naming_no_others(self._asker):
            return self._reader.take_changes()


def _shared_state(app: FastAPI) -> tuple[ChangeHub, set[object], anyio.CapacityLimiter]:
    """Returns the hub, the readers and the limit that all readers of a server share."""
    state = app.state
    if not hasattr(state, "change_readers"):
        state.change_readers = set(), anyio.CapacityLimiter(_BEGINNINGS)
    assert isinstance(state.changes, ChangeHub), "make_app was given it"
    return state.changes, *state.change_readers


def error_event(error: KappaError) -> str:
    """Returns the event that ends a stream."""
    document = json.dumps(dict(problem_of(error).document), ensure_ascii=False)
    return f"event: error\ndata: {document}\n\n"
