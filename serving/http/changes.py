"""The changes of a table over HTTP: as server-sent events, and as messages of a websocket.

Both have the same messages: `begin` with the head of a change set, `rows` with an array of changes,
and `commit`, whose id is the cursor. A browser's EventSource sends the last cursor back when the
browser reconnects (`Last-Event-ID`); so all messages received after that cursor are sent again. A
client holds the rows back until their commit.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request, WebSocket
from fastapi.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect, WebSocketState

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Act
from kappa.serving.http import moves
from kappa.serving.http.bounds import client_of
from kappa.serving.http.open_streams import open_streams
from kappa.serving.http.problem import refuse_websocket
from kappa.serving.http.reading import EventStream, HttpReader, error_event
from kappa.serving.http.rights import asker, needs, tables_in_path
from kappa.serving.http.stand import API
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.filter import filter_of
from kappa.serving.outlets.changes.hub import ChangeMessage, ChangeReader, RecordedChanges
from kappa.serving.query.reader.client import Client, ClientLeft

_PATH = f"{API}/tables/{{table}}/changes"
# The number of characters that are written at once, unless a message has more.
_PIECE = 1 << 16

router = APIRouter()
router.include_router(moves.router)

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

    Each change set begins with an event `begin` and ends with `commit`, whose id is its cursor. The
    kind `reset` means that the cursor is no longer kept: the rows are then the whole table.
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
    """Sends the same as messages of JSON: `{"event": ..., "data": ...}`."""
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
