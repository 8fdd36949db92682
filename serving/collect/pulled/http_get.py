"""A GET over HTTP/1.1, whose answer is read as it arrives, and only as far as requested.

Redirects are not followed, since a token would be sent along. Settings of a proxy are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import h11

from kappa.serving.collect.pulled.source import PulledSource, SourceAway
from kappa.serving.collect.pulled.tls import tls_of

_OPEN_SECONDS = 20.0
_READ_BYTES = 1 << 16
_HEAD_BYTES = 1 << 16
_LONGEST_WAIT_SECONDS = 3600.0


class PulledAnswer:
    """An answer whose head has arrived."""

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
        """Returns the next bytes of the body; no bytes at the end.

        Raises the errors of a connection.
        """
        while True:
            event = await _next_event(self._connection, self._reader)
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return b""

    def ensure(self, *statuses: int) -> None:
        """Raises SourceAway for any other status, or an encoded body."""
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
    """Asks a source, and yields the answer; closes the connection after the block."""
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
