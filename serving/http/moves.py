"""The changes of some tables as server-sent events: a signal and a count, without rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse

from kappa.base.errors import KappaError
from kappa.serving.access.roles import Act
from kappa.serving.http.bounds import client_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.reading import SILENCE_SECONDS, EventStream, HttpReader, error_event
from kappa.serving.http.rights import asker, needs
from kappa.serving.http.stand import API
from kappa.serving.outlets.changes.hub import ChangeReader
from kappa.serving.outlets.changes.point import NotServed

router = APIRouter()


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
    """Streams an event `changed` for each change set of some tables, without its rows.

    It begins with the present rows.
    """
    woken = asyncio.Event()
    readings = [_reading_of(request, name, woken) for name in dict.fromkeys(table)]
    try:
        served = await _served_readers(readings)
    except BaseException:
        for each in readings:
            each.leave()
        raise
    return EventStream(readings, _move_events(served, woken))


def _reading_of(request: Request, table: str, woken: asyncio.Event) -> HttpReader:
    client = client_of(request.scope)

    def reader(wake: Callable[[], None]) -> ChangeReader:
        return ChangeReader(table, None, None, wake, from_now=True, client=client)

    return HttpReader(request.app, reader, woken, asker=asker(request))


async def _served_readers(readings: Sequence[HttpReader]) -> list[HttpReader]:
    """Lets readers begin, and returns the readers whose table is served.

    Raises HttpError if none of the tables is served.
    """
    served = [each for each in readings if await _begins(each)]
    if not served:
        raise HttpError(
            404, "none of these tables is served", hint="kappa tables shows those that are"
        )
    return served


async def _begins(reading: HttpReader) -> bool:
    """Lets a reader begin. Returns False if the reader's table is not served."""
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
