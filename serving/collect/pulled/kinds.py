"""A visit to a source, by kind: events are handed on before more events are read."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from kappa.base.section.collect import PullKind
from kappa.serving.collect.lines import Invalid
from kappa.serving.collect.pulled.document import events_of_document
from kappa.serving.collect.pulled.http_get import PulledAnswer, http_get
from kappa.serving.collect.pulled.position import PullPosition
from kappa.serving.collect.pulled.source import PulledSource, SourceAway
from kappa.serving.collect.pulled.sse_lines import SseLines
from kappa.serving.collect.pulled.tls import tls_of

_DOCUMENT_SECONDS = 60.0
_OPEN_SECONDS = 20.0
_NO_MORE_SECONDS = 600.0
_PING_SECONDS = 20.0
_CLOSE_SECONDS = 2.0
# The wait for further messages that are sent with the first.
_GATHER_SECONDS = 0.005
_GATHERED, _GATHERED_BYTES = 1_000, 1 << 20


class Visitor(Protocol):
    """The visitor of a source; `again_seconds` is the wait until the next connection."""

    position: PullPosition
    again_seconds: float

    def opened(self) -> None:
        """Notes that the source is available."""

    async def take(
        self, events: Sequence[bytes | Invalid], position: PullPosition | None = None
    ) -> None:
        """Takes events; returns once each is settled, and the position after them is written."""


async def visit(source: PulledSource, visitor: Visitor) -> None:
    """Visits a source until its events end.

    Raises SourceAway, and the errors of a connection.
    """
    match source.kind:
        case PullKind.SSE:
            await _visit_sse(source, visitor)
        case PullKind.WEBSOCKET:
            await _visit_websocket(source, visitor)
        case PullKind.POLL:
            await _visit_document(source, visitor)


async def _visit_sse(source: PulledSource, visitor: Visitor) -> None:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache"}
    if visitor.position.last_event_id:
        headers["Last-Event-ID"] = visitor.position.last_event_id
    async with http_get(source, headers) as answer:
        if answer.status == 204:
            raise SourceAway("it has no more events: it answers 204", _NO_MORE_SECONDS)
        answer.ensure(200)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise SourceAway(f"it answers with {kind[:60] or 'no type'}, not text/event-stream")
        visitor.opened()
        lines = SseLines(visitor.position.last_event_id, source.largest_event)
        while chunk := await _next_bytes(source, answer):
            events = lines.feed(chunk)
            if lines.retry_seconds is not None:
                visitor.again_seconds = lines.retry_seconds
            if events or lines.last_id != visitor.position.last_event_id:
                position = replace(visitor.position, last_event_id=lines.last_id)
                await visitor.take(events, position)


async def _next_bytes(source: PulledSource, answer: PulledAnswer) -> bytes:
    """Returns the next bytes of a stream. Raises SourceAway after too long a silence."""
    try:
        async with asyncio.timeout(source.silence_seconds):
            return await answer.read()
    except TimeoutError:
        raise SourceAway(f"nothing came for {source.silence_seconds:,.0f} s") from None


class _Direct(connect):
    """A connection that follows no redirect: a token would be sent along."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _visit_websocket(source: PulledSource, visitor: Visitor) -> None:
    async with _Direct(
        source.url,
        ssl=await tls_of(source),
        additional_headers=source.headers,
        user_agent_header="kappa",
        proxy=None,
        open_timeout=_OPEN_SECONDS,
        ping_interval=_PING_SECONDS,
        # While the broker is away nothing is read, not even pongs.
        ping_timeout=None,
        close_timeout=_CLOSE_SECONDS,
        max_size=source.largest_event,
    ) as connection:
        visitor.opened()
        is_open = True
        while is_open:
            events, is_open = await _gather_messages(source, connection)
            await visitor.take(events)
        if connection.protocol.close_code not in {1000, 1001}:
            raise SourceAway(
                f"it has ended the connection with code {connection.protocol.close_code}"
            )


async def _gather_messages(
    source: PulledSource, connection: ClientConnection
) -> tuple[list[bytes | Invalid], bool]:
    """Returns the next messages, and False if the connection has ended after them."""
    events: list[bytes | Invalid] = []
    size = 0
    try:
        async with asyncio.timeout(source.silence_seconds):
            first = await connection.recv(decode=False)
    except TimeoutError:
        raise SourceAway(f"nothing came for {source.silence_seconds:,.0f} s") from None
    except ConnectionClosed:
        return events, False
    events.append(first)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GATHER_SECONDS):
                while len(events) < _GATHERED and size < _GATHERED_BYTES:
                    events.append(each := await connection.recv(decode=False))
                    size += len(each)
    except ConnectionClosed:
        return events, False
    return events, True


async def _visit_document(source: PulledSource, visitor: Visitor) -> None:
    was = visitor.position
    headers = {"Accept": "application/json, application/x-ndjson, */*;q=0.5"}
    if was.etag:
        headers["If-None-Match"] = was.etag
    if was.last_modified:
        headers["If-Modified-Since"] = was.last_modified
    async with http_get(source, headers) as answer, asyncio.timeout(_DOCUMENT_SECONDS):
        answer.ensure(200, 304)
        document = b"" if answer.status == 304 else await _read_whole(source, answer)
    visitor.opened()
    visitor.again_seconds = source.every_seconds
    if answer.status == 304:
        return
    position = PullPosition(
        was.source,
        etag=_tag(answer.headers, "etag"),
        last_modified=_tag(answer.headers, "last-modified"),
        document=hashlib.blake2b(document, digest_size=16).hexdigest(),
    )
    is_new = position.document != was.document
    kind = answer.headers.get("content-type", "")
    events = events_of_document(document, kind) if is_new else []
    if events or position != was:
        await visitor.take(events, position)


async def _read_whole(source: PulledSource, answer: PulledAnswer) -> bytes:
    if not {"content-length", "transfer-encoding"} & answer.headers.keys():
        raise SourceAway("its answer has neither a length nor chunks, so it may be cut short")
    found = bytearray()
    while chunk := await answer.read():
        found += chunk
        if len(found) > source.largest_document:
            raise SourceAway(
                f"its document has more than {source.largest_document:,} bytes: see "
                "collect.body_bytes"
            )
    return bytes(found)


def _tag(headers: Mapping[str, str], name: str) -> str:
    found = headers.get(name, "")
    return found if found.isascii() else ""
