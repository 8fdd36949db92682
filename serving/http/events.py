"""The journal as server-sent events: each record once, in order, with its number as id.

A client that reconnects sends the id of the last event that it received (`Last-Event-ID`), and gets
all later events. With `progress`, the client also gets an event without an id when builds or topics
have progressed. This event does not say which builds or topics. Source:
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from kappa.serving.access.roles import Act
from kappa.serving.http.app_state import API, SharedLook, stand_of
from kappa.serving.http.open_streams import EndingResponse
from kappa.serving.http.problem import HttpError
from kappa.serving.http.rights import needs
from kappa.state.journal.journal import Journal, JournalRecord, JournalView, as_document
from kappa.state.journal.projections import begun_after, rollout_number
from kappa.state.store import Store

# The result differs from the last result if something has changed. All listeners share a look.
Pulse = Callable[[], Hashable]

# Seconds between two looks at the journal, shared by all listeners: the journal notifies nobody.
_LOOK_SECONDS = 0.25
# Proxies close a connection that is silent for a minute; sending also finds clients that left.
_SILENCE_SECONDS = 15.0
# Seconds between two checks for other changes.
_PULSE_SECONDS = 1.0
# Most listeners at the same time.
MOST_LISTENERS = 256
_AT_ONCE = 200
# Most listeners that read records from disk at the same time.
_READERS = 4
# No journal has a record of a longer number.
_ID = re.compile(r"[0-9]{1,15}")

router = APIRouter()


@router.get(
    f"{API}/events",
    tags=["events"],
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
@needs(Act.LOOK)
async def events(
    request: Request,
    last_event_id: Annotated[
        str | None,
        Header(description="the id of the last event that was seen; the later ones are sent first"),
    ] = None,
    after: Annotated[
        int | None,
        Query(
            ge=0,
            description="the same, for a first request; without either, only new events are sent",
        ),
    ] = None,
    progress: Annotated[
        bool,
        Query(description="tell too, by an event without id, that builds or the log have moved on"),
    ] = False,
) -> StreamingResponse:
    """Streams each record of the journal when it is appended.

    The records are the requests, decisions and observations of rollouts. The field `rollout` of an
    event is the number of the record's rollout.
    """
    if last_event_id is not None and not _ID.fullmatch(last_event_id):
        raise HttpError(
            400,
            f"{last_event_id[:40]!r} is not the id of an event",
            hint="ids are numbers; leave Last-Event-ID out to get new events only",
        )
    listening = _listening(request)
    start = int(last_event_id) if last_event_id is not None else after
    if start is None:
        start = await listening.end.seen()
    return _Listener(listening, start, progress=progress)


class _Listener(EndingResponse):
    """The response that streams the journal to one client.

    The client is counted among the journal's listeners until the stream ends.
    """

    def __init__(self, listening: _Listening, start: int, *, progress: bool) -> None:
        # The count and the check are a single step: nothing waits between the two.
        if len(listening.who) >= MOST_LISTENERS:
            raise HttpError(
                503,
                f"{MOST_LISTENERS} listen already",
                hint="come back in a while",
                headers={"Retry-After": "10"},
            )
        listening.who.add(self)
        self._listening = listening
        super().__init__(
            _event_stream(listening, start, progress=progress),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Sends events until the client leaves."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listening.who.discard(self)


class _Listening:
    """The clients that listen to the journal, and the functions that read it for them.

    All clients share the results of these functions.
    """

    def __init__(self, store: Store, pulse: Pulse | None) -> None:
        journal = Journal(store)
        self.view = JournalView(store)
        self.who: set[object] = set()
        self.end = SharedLook(_end_of(journal), seconds=_LOOK_SECONDS)
        self.pulse = None if pulse is None else SharedLook(pulse, seconds=_PULSE_SECONDS)
        self.readers = anyio.CapacityLimiter(_READERS)


def _listening(request: Request) -> _Listening:
    state = request.app.state
    if not hasattr(state, "listening"):
        state.listening = _Listening(stand_of(request).store, getattr(state, "pulse", None))
    found = state.listening
    assert isinstance(found, _Listening), "it was made here"
    return found


def _end_of(journal: Journal) -> Callable[[], int]:
    """Creates a function that returns the number of the journal's last record.

    The created function reads each record only once.
    """
    last: int | None = None

    def look() -> int:
        nonlocal last
        if last is None:
            last, _ = journal.last_served()
        while journal.get(last + 1) is not None:
            last += 1
        return last

    return look


async def _event_stream(
    listening: _Listening, number: int, *, progress: bool
) -> AsyncIterator[str]:
    yield f"retry: 2000\nid: {number}\n\n"
    silent = 0.0
    beat: Hashable = None
    while True:
        if progress and listening.pulse is not None:
            before, beat = beat, await listening.pulse.seen()
            if before not in {None, beat}:
                silent = 0.0
                yield "event: progress\ndata: {}\n\n"
        records, begun = list[JournalRecord](), tuple[int, ...]()
        if await listening.end.seen() > number:
            records, begun = await anyio.to_thread.run_sync(
                _some_after, listening.view, number, limiter=listening.readers
            )
        for record in records:
            number = record.number
            yield _event_text(record, rollout_number(record, begun))
        silent = 0.0 if records else silent + _LOOK_SECONDS
        if silent >= _SILENCE_SECONDS:
            silent = 0.0
            yield ": still here\n\n"
        if len(records) < _AT_ONCE:
            await asyncio.sleep(_LOOK_SECONDS)


def _some_after(view: JournalView, number: int) -> tuple[list[JournalRecord], tuple[int, ...]]:
    """Returns the next records of the journal after the record with the given number.

    Also returns the numbers of all records that have begun a rollout. From these numbers, the
    caller finds the number of a record's rollout.
    """
    records = list(view.records(after=number)[:_AT_ONCE])
    return records, view.folded(begun_after, ())


def _event_text(record: JournalRecord, rollout: int | None) -> str:
    record_document = {"rollout": rollout, **as_document(record)}
    document = json.dumps(record_document, ensure_ascii=False, separators=(",", ":"))
    return f"id: {record.number}\nevent: {record.event.kind}\ndata: {document}\n\n"
