"""A proxy before a server on this machine: what a client sends waits for a while.

    python waits.py PORT SERVER_PORT SECONDS

So each request of a connection that is kept takes so much longer, and the proxy adds little CPU. A
request that comes in several pieces waits for each.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

_HOST = "127.0.0.1"
_MOST_BYTES = 1 << 20


async def main() -> None:
    port, server_port, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])

    async def connected(from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(
            _HOST, server_port, limit=_MOST_BYTES
        )
        await asyncio.gather(
            passed_on(from_client, to_server, seconds), passed_on(from_server, to_client, 0)
        )

    async with await asyncio.start_server(connected, _HOST, port, limit=_MOST_BYTES) as server:
        await server.serve_forever()


async def passed_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(_MOST_BYTES):
            if seconds:
                await asyncio.sleep(seconds)
            writer.write(data)
            await writer.drain()
    writer.close()


asyncio.run(main())
