"""The journal as a stream of server-sent events: each record once, in order, with its number as the event's id.

A client that comes back says which was the last that it has seen (`Last-Event-ID`), and is told all that followed.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from kappa.journal import Journal, Record, as_document
from serving.http import API, stand_of
from serving.problem import HttpError

# A record tells nobody that it is there; so often the journal is looked at, for all who listen.
_LOOK_SECONDS = 0.25
# Proxies close what says nothing for a minute, and one who has gone is found by telling him something.
_SILENCE_SECONDS = 15.0
_MOST = 256
_AT_ONCE = 200

router = APIRouter()


@router.get(f"{API}/events", tags=["events"], response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def events(
    request: Request,
    last_event_id: Annotated[str | None, Header(description="the id of the last event that was seen; what follows it is told first")] = None,
    after: Annotated[int | None, Query(ge=0, description="the same, for a first request; without either, only what is new is told")] = None,
) -> StreamingResponse:
    """Tells every record of the journal, as it is appended: what was asked, decided and observed of rollouts."""
    if last_event_id is not None and not (last_event_id.isascii() and last_event_id.isdecimal()):
        raise HttpError(400, f"{last_event_id[:40]!r} is the id of no event", hint="ids are numbers; leave Last-Event-ID out to be told what is new")
    journal = Journal(stand_of(request).store)
    start = int(last_event_id) if last_event_id is not None else after
    if start is None:
        start = await anyio.to_thread.run_sync(lambda: journal.last_served()[0])
    listening: set[object] = request.app.state.__dict__.setdefault("listening", set())
    if len(listening) >= _MOST:
        raise HttpError(503, f"{_MOST} listen already", hint="come back in a while", headers={"Retry-After": "10"})
    return StreamingResponse(_told(journal, start, listening), media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _told(journal: Journal, number: int, listening: set[object]) -> AsyncIterator[str]:
    me = object()
    listening.add(me)
    try:
        yield f"retry: 2000\nid: {number}\n\n"
        silent = 0.0
        while True:
            records = await anyio.to_thread.run_sync(_some_after, journal, number)
            for record in records:
                number = record.number
                yield _event(record)
            silent = 0.0 if records else silent + _LOOK_SECONDS
            if silent >= _SILENCE_SECONDS:
                silent = 0.0
                yield ": still here\n\n"
            if len(records) < _AT_ONCE:
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        listening.discard(me)


def _some_after(journal: Journal, number: int) -> list[Record]:
    found = []
    for record in journal.after(number):
        found.append(record)
        if len(found) == _AT_ONCE:
            break
    return found


def _event(record: Record) -> str:
    document = json.dumps(as_document(record), ensure_ascii=False, separators=(",", ":"))
    return f"id: {record.number}\nevent: {record.event.kind}\ndata: {document}\n\n"
