"""The changes of a table over HTTP, as server-sent events and as messages of a websocket.

Both streams consist of the same messages: `begin` with the head of a change set, `rows` with an
array of changes, and `commit`, whose id is the cursor. When a browser reconnects, its EventSource
sends the last cursor back (`Last-Event-ID`), so all messages after that cursor are sent again. A
client should use the rows of a change set only after the `commit` has arrived. A third stream only
signals that tables have changed: it contains the counts of changed rows, but no rows. Source:
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, FastAPI, Header, Query, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect, WebSocketState

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Act, Identity, naming_no_others
from kappa.serving.http.app_state import API
from kappa.serving.http.bounds import client_of
from kappa.serving.http.open_streams import EndingResponse, open_streams
from kappa.serving.http.problem import HttpError, problem_of, refuse_websocket
from kappa.serving.http.rights import asker, needs, tables_in_path
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import filter_of
from kappa.serving.outlets.changes.follower_registry import (
    ChangeHub,
    ChangeMessage,
    ChangeReader,
    RecordedChanges,
)
from kappa.serving.outlets.changes.table_snapshot import NotServed
from kappa.serving.query.reader.client import Client, ClientLeft

_PATH = f"{API}/tables/{{table}}/changes"
# The number of characters that are written at once, unless a message has more.
_PIECE = 1 << 16

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
@needs(Act.READ, tables_in_path)
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

    Each change set begins with an event `begin` and ends with an event `commit`, whose id is the
    cursor. If the rows at the client's cursor are no longer kept, the kind of the change set is
    `reset`, and its rows are the whole table.
    """
    client = client_of(request.scope)
    reading = _reading_of(request, client, table, last_event_id or since, where, columns)
    first = await reading.begin()
    return EventStream([reading], _change_events(reading, first))


@router.websocket(_PATH)
@needs(Act.READ, tables_in_path)
async def changes_by_websocket(
    websocket: WebSocket,
    table: str,
    since: Since = None,
    where: Where = None,
    columns: Columns = None,
) -> None:
    """Sends the change sets of a served table over a websocket, as JSON messages.

    Each message has the form `{"event": ..., "data": ...}`. The events are those of the route
    `changes`.
    """
    client = Client()
    try:
        reading = _reading_of(websocket, client, table, since, where, columns)
    except KappaError as error:
        await refuse_websocket(error, websocket.send)
        return
    with anyio.CancelScope() as until_left:
        leaving = asyncio.ensure_future(_until_left(websocket, client, until_left))
        try:
            await _send_changes(websocket, reading)
        except ClientLeft:
            pass
        finally:
            leaving.cancel()
            reading.leave()
    if websocket.application_state is WebSocketState.CONNECTING:
        # Tells the server that the client is gone.
        await websocket.close()


async def _send_changes(websocket: WebSocket, reading: HttpReader) -> None:
    try:
        first = await reading.begin()
    except KappaError as error:
        await refuse_websocket(error, websocket.send)
        return
    await websocket.accept()
    try:
        with open_streams(websocket.app).until_end():
            async with aclosing(reading.messages(first)) as messages:
                async for message in messages:
                    if message is not None:
                        await websocket.send_text(_as_json(message))
    except KappaError as error:
        with suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(code=1011, reason=error.message[:120])


async def _until_left(websocket: WebSocket, client: Client, sending: anyio.CancelScope) -> None:
    # Messages from a client mean nothing; only the end of the connection does.
    with suppress(WebSocketDisconnect, RuntimeError):
        while (await websocket.receive())["type"] != "websocket.disconnect":
            pass
    client.leave_now()
    sending.cancel()


def _reading_of(
    request: Request | WebSocket,
    client: Client,
    table: str,
    since: str | None,
    where: str | None,
    columns: str | None,
) -> HttpReader:
    cursor = None if not since else Cursor.parse(since)
    chosen = filter_of(columns, where)
    return HttpReader(
        request.app,
        lambda notify: ChangeReader(table, chosen, cursor, notify, client=client),
        asker=asker(request),
    )


async def _change_events(reading: HttpReader, first: RecordedChanges | None) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    held = ""
    try:
        async for message in reading.messages(first):
            held += ": still here\n\n" if message is None else _as_event(message)
            # A small change set is sent in one piece, because a piece costs as much as its content.
            if message is None or message.cursor is not None or len(held) >= _PIECE:
                yield held
                held = ""
    except KappaError as error:
        yield held + error_event(error)


def _as_event(message: ChangeMessage) -> str:
    id_ = "" if message.cursor is None else f"id: {message.cursor}\n"
    return f"event: {message.event}\n{id_}data: {message.text}\n\n"


def _as_json(message: ChangeMessage) -> str:
    return f'{{"event": "{message.event}", "data": {message.text}}}'


@router.get(
    f"{API}/changes",
    tags=["changes"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
@needs(Act.READ, lambda asked: asked.query_params.getlist("table"))
async def moves(
    request: Request,
    table: Annotated[list[str], Query(description="the tables; a name that is not served is none")],
) -> StreamingResponse:
    """Streams an event `changed` for each change set of some tables, without the changed rows.

    The first event is for the first change set after the request.
    """
    woken = asyncio.Event()
    readings = [_woken_reader(request, name, woken) for name in dict.fromkeys(table)]
    try:
        served = await _served_readers(readings)
    except BaseException:
        for each in readings:
            each.leave()
        raise
    return EventStream(readings, _move_events(served, woken))


def _woken_reader(request: Request, table: str, woken: asyncio.Event) -> HttpReader:
    client = client_of(request.scope)

    def reader(wake: Callable[[], None]) -> ChangeReader:
        return ChangeReader(table, None, None, wake, from_now=True, client=client)

    return HttpReader(request.app, reader, woken, asker=asker(request))


async def _served_readers(readings: Sequence[HttpReader]) -> list[HttpReader]:
    """Starts all readers, and returns only the readers whose table is served.

    Raises HttpError if none of the tables is served.
    """
    served = [each for each in readings if await _begins(each)]
    if not served:
        raise HttpError(
            404, "none of these tables is served", hint="kappa tables shows those that are"
        )
    return served


async def _begins(reading: HttpReader) -> bool:
    """Starts a reader. Returns False if the reader's table is not served."""
    try:
        await reading.begin()
    except NotServed:
        return False
    return True


async def _move_events(readings: Sequence[HttpReader], woken: asyncio.Event) -> AsyncIterator[str]:
    yield "retry: 1000\n\n"
    try:
        while True:
            woken.clear()
            for reading in readings:
                async for recorded in reading.news():
                    document = {**recorded.head.as_document(), "changes": asdict(recorded.counts)}
                    yield f"event: changed\ndata: {json.dumps(document, ensure_ascii=False)}\n\n"
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    await woken.wait()
            except TimeoutError:
                yield ": still here\n\n"
    except KappaError as error:
        yield error_event(error)


# Proxies close a connection that is silent for a minute; sending also finds clients that left.
SILENCE_SECONDS = 15.0
# Most readers at the same time: some connections are left to others.
MOST_READERS = 768
# The most readers that compute the way to the hub's point at the same time.
_BEGINNINGS = 2


class EventStream(EndingResponse):
    """A response that streams the change sets of some readers, as server-sent events.

    When the stream ends, the readers get no more change sets.
    """

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
    """A reader of a table's change sets, for use in the server's event loop.

    The change sets come from the server's ChangeHub, which computes each change set once for all
    readers.
    """

    def __init__(
        self,
        app: FastAPI,
        reader: Callable[[Callable[[], None]], ChangeReader],
        woken: asyncio.Event | None = None,
        *,
        asker: Identity,
    ) -> None:
        """Creates a reader for the client `asker`, and counts it among the server's readers.

        `reader` creates the corresponding reader of the server's ChangeHub. Its argument is a
        function that wakes the event loop. `woken` is set when a change set or an error waits for
        the reader. Raises HttpError if there are too many readers.
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
        """Adds this reader to the server's ChangeHub, and returns the first change set.

        Returns None if there is no change set yet. If an error is raised, the reader is removed.
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
        """Removes this reader from the server's ChangeHub. The stream of `messages` then ends."""
        self._left.set()
        self._woken.set()
        self._all.discard(self)
        self._hub.remove_reader(self._reader)

    async def news(self) -> AsyncIterator[RecordedChanges]:
        """Yields the change sets that wait for this reader.

        Raises KappaError if an error has ended the sequence of change sets.
        """
        if self._reader.late:
            await self.begin()
        while (recorded := self._take_changes()) is not None:
            yield recorded

    async def messages(
        self, first: RecordedChanges | None
    ) -> AsyncGenerator[ChangeMessage | None, None]:
        """Yields the messages of all change sets, and None after every 15 s without a change set.

        `first` is the first change set, or None. When None is yielded, the caller can send an empty
        event, so that the client knows that the server still runs. Raises KappaError if an error
        ends the sequence of change sets.
        """
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
    """Returns the objects that all readers of a server share.

    These are the ChangeHub, the set of readers, and the limit on the number of readers that start
    at the same time.
    """
    state = app.state
    if not hasattr(state, "change_readers"):
        state.change_readers = set(), anyio.CapacityLimiter(_BEGINNINGS)
    assert isinstance(state.changes, ChangeHub), "make_app was given it"
    return state.changes, *state.change_readers


def error_event(error: KappaError) -> str:
    """Returns the server-sent event that reports an error at the end of a stream."""
    document = json.dumps(dict(problem_of(error).document), ensure_ascii=False)
    return f"event: error\ndata: {document}\n\n"
