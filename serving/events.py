"""The journal as a stream of server-sent events: each record once, in order, with its number as the event's id.

A client that comes back says which was the last that it has seen (`Last-Event-ID`), and is told all that followed. Who asks for
progress is told beside them when something else has changed, and has to look for himself what: such an event has no id.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Annotated

import anyio
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from kappa.journal import Journal, Record, as_document
from serving.http import API, stand_of
from serving.problem import HttpError

# What is asked whether something has changed: its answer is another one then. One look may be for all who listen.
Pulse = Callable[[], Hashable]

# A record tells nobody that it is there; so often the journal is looked at, for all who listen.
_LOOK_SECONDS = 0.25
# Proxies close what says nothing for a minute, and one who has gone is found by telling him something.
_SILENCE_SECONDS = 15.0
# So often is looked whether something else has changed.
_PULSE_SECONDS = 1.0
_MOST = 256
_AT_ONCE = 200

router = APIRouter()


@router.get(f"{API}/events", tags=["events"], response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def events(
    request: Request,
    last_event_id: Annotated[str | None, Header(description="the id of the last event that was seen; what follows it is told first")] = None,
    after: Annotated[int | None, Query(ge=0, description="the same, for a first request; without either, only what is new is told")] = None,
    progress: Annotated[bool, Query(description="tell too, by an event without id, that builds or the log have moved on")] = False,
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
    pulse = getattr(request.app.state, "pulse", None) if progress else None
    return StreamingResponse(_told(journal, start, listening, pulse), media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def _told(journal: Journal, number: int, listening: set[object], pulse: Pulse | None) -> AsyncIterator[str]:
    me = object()
    listening.add(me)
    try:
        yield f"retry: 2000\nid: {number}\n\n"
        silent, waited = 0.0, _PULSE_SECONDS
        beat: Hashable = None
        while True:
            waited += _LOOK_SECONDS
            if pulse is not None and waited > _PULSE_SECONDS:
                waited, before, beat = 0.0, beat, await anyio.to_thread.run_sync(pulse)
                if before not in {None, beat}:
                    silent = 0.0
                    yield "event: progress\ndata: {}\n\n"
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
