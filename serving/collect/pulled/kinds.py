"""Reads the events of a source: server-sent events, a websocket, or a document.

One connection to a source is a visit. A visit delivers the events that it has read before it reads
more. Redirects are not followed, because the other server would receive the source's token. Proxy
settings are ignored. Server-sent events:
https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import h11
import msgspec
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from kappa.base.sections import PullKind
from kappa.serving.collect.lines import TOO_LARGE, Invalid
from kappa.serving.collect.pulled.source import PulledSource, SourceAway
from kappa.serving.collect.pulled.source_protocol import PullPosition, Visitor
from kappa.serving.collect.pulled.tls import tls_of

_OPEN_SECONDS = 20.0
_READ_BYTES = 1 << 16
_HEAD_BYTES = 1 << 16
_LONGEST_WAIT_SECONDS = 3600.0


class PulledAnswer:
    """The HTTP answer of a source. The head has arrived, and the body can be read."""

    def __init__(
        self, connection: h11.Connection, reader: asyncio.StreamReader, head: h11.Response
    ) -> None:
        self._connection = connection
        self._reader = reader
        self.status = head.status_code
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers
        }

    async def read(self) -> bytes:
        """Returns the next bytes of the body, or empty bytes at the end of the body.

        Raises OSError, EOFError or h11.ProtocolError if the connection fails.
        """
        while True:
            event = await _next_event(self._connection, self._reader)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return b""

    def ensure(self, *statuses: int) -> None:
        """Raises SourceAway if the status is not in `statuses`, or if the body is encoded."""
        if self.status not in statuses:
            why = f"it answers {self.status}"
            if 300 <= self.status < 400 and self.status != 304:
                why += ", and redirects are not followed: give the url that it leads to"
            raise SourceAway(why, self._asked_wait())
        encoding = self.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise SourceAway(f"its answer is encoded as {encoding[:40]}, though this was not asked")

    def _asked_wait(self) -> float | None:
        asked = self.headers.get("retry-after", "")
        is_number = asked.isascii() and asked.isdigit() and len(asked) < 9
        return min(_LONGEST_WAIT_SECONDS, float(asked)) if is_number else None


@asynccontextmanager
async def http_get(source: PulledSource, headers: Mapping[str, str]) -> AsyncIterator[PulledAnswer]:
    """Sends a GET request to a source, and yields the answer.

    The connection is closed after the block.
    """
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_OPEN_SECONDS):
            reader, writer = await asyncio.open_connection(
                source.host,
                source.port,
                ssl=await tls_of(source),
                limit=_READ_BYTES,
            )
            connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
            writer.write(_request_bytes(connection, source, headers))
            await writer.drain()
            while not isinstance(head := await _next_event(connection, reader), h11.Response):
                if isinstance(head, h11.ConnectionClosed):
                    raise SourceAway("it has closed the connection without an answer")
        yield PulledAnswer(connection, reader, head)
    finally:
        if writer is not None:
            writer.transport.abort()


def _request_bytes(
    connection: h11.Connection, source: PulledSource, headers: Mapping[str, str]
) -> bytes:
    host = f"[{source.host}]" if ":" in source.host else source.host
    every = {
        "Host": f"{host}:{source.port}",
        "User-Agent": "kappa",
        "Accept-Encoding": "identity",
        "Connection": "close",
        **headers,
        **source.headers,
    }
    request = h11.Request(
        method="GET",
        target=source.target,
        headers=[(name.encode(), value.encode()) for name, value in every.items()],
    )
    return (connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b"")


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_READ_BYTES))
    return event


_DOCUMENT_SECONDS = 60.0
_NO_MORE_SECONDS = 600.0
_PING_SECONDS = 20.0
_CLOSE_SECONDS = 2.0
# The wait for further messages that are sent with the first.
_GATHER_SECONDS = 0.005
_GATHERED, _GATHERED_BYTES = 1_000, 1 << 20


async def visit(source: PulledSource, visitor: Visitor) -> None:
    """Connects to a source, and passes its events to `visitor` until there are no more events.

    Raises SourceAway if the source delivers no events now. If the connection fails, raises the
    error of the connection, for example OSError.
    """
    match source.kind:
        case PullKind.SSE:
            await _visit_sse(source, visitor)
        case PullKind.WEBSOCKET:
            await _visit_websocket(source, visitor)
        case PullKind.POLL:
            await _visit_document(source, visitor)
        case PullKind.MQTT:
            # An extra.
            from kappa.serving.collect.pulled.mqtt import visit_mqtt  # noqa: PLC0415

            await visit_mqtt(source, visitor)


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
    """Returns the next bytes of a stream of server-sent events.

    Raises SourceAway if no bytes arrive within the time that the source's declaration allows.
    """
    try:
        async with asyncio.timeout(source.silence_seconds):
            return await answer.read()
    except TimeoutError:
        raise SourceAway(f"nothing came for {source.silence_seconds:,.0f} s") from None


class _Direct(connect):
    """A websocket connection that follows no redirects.

    The server to which a redirect leads would receive the source's token.
    """

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
    """Returns the next messages of a websocket, and whether the connection is still open.

    The flag is False if the connection was closed after these messages. Raises SourceAway if no
    message arrives within the time that the source's declaration allows.
    """
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


_MALFORMED = "malformed_json"


def events_of_document(document: bytes, media_type: str) -> list[bytes | Invalid]:
    """Returns the events in a document, in order.

    If the document is a JSON array, each element is an event. Any other document whose media type
    is JSON is a single event. A document of another media type has one event per line.
    """
    content = document.removeprefix(b"\xef\xbb\xbf").strip()
    kind = media_type.partition(";")[0].strip().lower()
    if content.startswith(b"["):
        try:
            return [bytes(each) for each in msgspec.json.decode(content, type=list[msgspec.Raw])]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return [Invalid(_MALFORMED, f"the document is not a JSON array: {error}")]
    if kind == "application/json" or (kind.endswith("+json") and content):
        return [content] if content else []
    return [line.strip() for line in content.split(b"\n") if line.strip()]


_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
# For a line that is too long, the bytes kept: the field's name, and enough to see the excess.
_NAME_BYTES = 64
_MOST_ID_BYTES = 1024
# An id that could not be sent as a header.
_NO_ID = re.compile(r"[\x00-\x1f\x7f]|^\s|\s$")
_LONGEST_RETRY_SECONDS = 600.0


class SseLines:
    """A parser for server-sent events. `last_id` is the id of the last complete event."""

    def __init__(self, last_id: str, most: int) -> None:
        """Creates a parser for the events after `last_id`, each of at most `most` bytes."""
        self.last_id = last_id
        self.retry_seconds: float | None = None
        self._most = most
        self._line = bytearray()
        self._after_cr = False
        self._is_first = True
        self._next_id = last_id
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes | Invalid]:
        """Parses further bytes, and returns the events that are now complete."""
        found: list[bytes | Invalid] = []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return found
        self._after_cr = chunk.endswith(b"\r")
        *whole, rest = _END.split(chunk)
        for part in whole:
            self._add(part)
            line = bytes(self._line)
            self._line.clear()
            if self._is_first:
                self._is_first = False
                line = line.removeprefix(_BOM)
            if line:
                self._field(line)
            else:
                found += self._dispatched()
        self._add(rest)
        return found

    def _add(self, part: bytes) -> None:
        self._line += part[: max(0, self._most + _NAME_BYTES - len(self._line))]

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            # A line's end is between two lines of data.
            self._size += len(value) + (1 if self._data else 0)
            if self._size <= self._most:
                self._data.append(value)
            else:
                self._data = [b""]
        elif name == b"id":
            text = value.decode(errors="replace")
            if len(value) <= _MOST_ID_BYTES and _NO_ID.search(text) is None:
                self._next_id = text
        elif name == b"retry" and value.isdigit() and len(value) < 12:
            self.retry_seconds = min(_LONGEST_RETRY_SECONDS, int(value) / 1000)

    def _dispatched(self) -> list[bytes | Invalid]:
        data, size = self._data, self._size
        self._data, self._size = [], 0
        self.last_id = self._next_id
        if not data:
            return []
        if size > self._most:
            return [Invalid(TOO_LARGE, f"it has more than {self._most:,} bytes")]
        return [b"\n".join(data)]
