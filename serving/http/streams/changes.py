"""The changes of a table over HTTP: as server-sent events, and as messages of a websocket.

Both have the same messages: `begin` with the head of a change set, `rows` with an array of changes,
and `commit`, whose id is the cursor. A browser's EventSource sends the last one back when it
reconnects (`Last-Event-ID`); so whatever it got after that is part of what it gets then. A client
holds the rows back until their commit.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, FastAPI, Header, Query, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect

from kappa.base.errors import KappaError
from serving.changes.cursor import Cursor
from serving.changes.filter import filter_of
from serving.changes.hub import ChangeHub, ChangeReader
from serving.changes.recorded import ChangeMessage, RecordedChanges
from serving.http.problem import HttpError, problem_of, refuse_websocket
from serving.http.stand import API

# Proxies close a connection that is silent for a minute; sending also finds clients that left.
_SILENCE_SECONDS = 15.0
# Most readers at the same time.
MOST_READERS = 1_024
# Most that compute what leads to the hub's point at the same time.
_BEGINNINGS = 2
_PATH = f"{API}/tables/{{table}}/changes"

router = APIRouter()

Since = Annotated[
    str | None,
    Query(description="the cursor of the last change set that was used; without one, a snapshot"),
]
Where = Annotated[
    str | None, Query(description="a condition on columns: only rows that meet it are in the table")
]
Columns = Annotated[str | None, Query(description="the columns to send, with commas; keys always")]


@router.get(
    _PATH,
    tags=["changes"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def changes(
    request: Request,
    table: str,
    since: Since = None,
    where: Where = None,
    columns: Columns = None,
    last_event_id: Annotated[
        str | None, Header(description="the same as `since`, as a browser sends it")
    ] = None,
) -> StreamingResponse:
    """Streams a served table: first its rows, then each net change, across promotes and undos.

    Each change set begins with an event `begin` and ends with `commit`, whose id is its cursor. A
    kind of `reset` means that a cursor was not kept any more: its rows are the whole table.
    """
    reading = _reading_of(request.app, table, last_event_id or since, where, columns)
    first = await reading.begin()
    return _EventStream(reading, first)


@router.websocket(_PATH)
async def changes_by_websocket(
    websocket: WebSocket,
    table: str,
    since: Since = None,
    where: Where = None,
    columns: Columns = None,
) -> None:
    """Sends the same as messages of JSON: `{"event": ..., "data": ...}`."""
    try:
        reading = _reading_of(websocket.app, table, since, where, columns)
        first = await reading.begin()
    except KappaError as error:
        await refuse_websocket(error, websocket.send)
        return
    await websocket.accept()
    leaving = asyncio.ensure_future(_until_left(websocket))
    try:
        async with aclosing(reading.messages(first)) as messages:
            async for message in messages:
                if leaving.done():
                    return
                if message is not None:
                    await websocket.send_text(_as_json(message))
    except KappaError as error:
        with suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(code=1011, reason=error.message[:120])
    finally:
        leaving.cancel()
        reading.leave()


async def _until_left(websocket: WebSocket) -> None:
    # What a client sends means nothing; its end does.
    with suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await websocket.receive()


class _EventStream(StreamingResponse):
    """The stream of one reader, who is counted from its beginning until the stream ends."""

    def __init__(self, reading: _HttpReader, first: RecordedChanges | None) -> None:
        super().__init__(
            _events(reading, first),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._reading = reading

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends events until the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reading.leave()


class _HttpReader:
    """One reader of the hub, as the server's loop sees it."""

    def __init__(self, app: FastAPI, reader: Callable[[Callable[[], None]], ChangeReader]) -> None:
        """Counts the reader; raises HttpError if there are too many. `reader` makes it."""
        self._hub, self._all, self._beginnings = _shared(app)
        if len(self._all) >= MOST_READERS:
            raise HttpError(
                503,
                f"{MOST_READERS:,} follow tables already",
                hint="come back in a while",
                headers={"Retry-After": "10"},
            )
        loop, self._woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            # The server's loop may have ended meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._woken.set)

        self._reader = reader(wake)
        self._all.add(self)

    async def begin(self) -> RecordedChanges | None:
        """Joins the table's readers; returns what the reader gets first. On an error it leaves."""
        try:
            return await anyio.to_thread.run_sync(
                self._hub.begin, self._reader, limiter=self._beginnings
            )
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Leaves the table's readers."""
        self._all.discard(self)
        self._hub.leave(self._reader)

    async def messages(
        self, first: RecordedChanges | None
    ) -> AsyncGenerator[ChangeMessage | None, None]:
        """Yields its messages; None after a silence. Raises KappaError if they end."""
        recorded = first
        while True:
            if recorded is None:
                self._woken.clear()
                recorded = self._reader.take()
            if recorded is None and self._reader.late:
                recorded = await self.begin()
            elif recorded is None:
                try:
                    async with asyncio.timeout(_SILENCE_SECONDS):
                        await self._woken.wait()
                except TimeoutError:
                    yield None
            if recorded is not None:
                for message in recorded.messages():
                    yield message
                self._reader.cursor, recorded = recorded.head.cursor, None


def _shared(app: FastAPI) -> tuple[ChangeHub, set[object], anyio.CapacityLimiter]:
    """Returns what all readers of a server share."""
    state = app.state
    if not hasattr(state, "change_readers"):
        state.change_readers = set(), anyio.CapacityLimiter(_BEGINNINGS)
    assert isinstance(state.changes, ChangeHub), "make_app was given it"
    return state.changes, *state.change_readers


def _reading_of(
    app: FastAPI, table: str, since: str | None, where: str | None, columns: str | None
) -> _HttpReader:
    cursor = None if not since else Cursor.parse(since)
    chosen = filter_of(columns, where)
    return _HttpReader(app, lambda notify: ChangeReader(table, chosen, cursor, notify))


async def _events(reading: _HttpReader, first: RecordedChanges | None) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    try:
        async for message in reading.messages(first):
            yield ": still here\n\n" if message is None else _as_event(message)
    except KappaError as error:
        document = json.dumps(dict(problem_of(error).document), ensure_ascii=False)
        yield f"event: error\ndata: {document}\n\n"


def _as_event(message: ChangeMessage) -> str:
    id_ = "" if message.cursor is None else f"id: {message.cursor}\n"
    return f"event: {message.event}\n{id_}data: {message.text}\n\n"


def _as_json(message: ChangeMessage) -> str:
    return f'{{"event": "{message.event}", "data": {message.text}}}'
