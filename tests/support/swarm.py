"""Many subscribers of one table in one thread, on raw sockets. Each applies what it gets."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import connect

from kappa.serving.query.query import answer_query
from kappa.serving.query.render import json_value
from kappa.state.store import Store

_PATIENCE_SECONDS = 120.0


def served(store: Store, table: str) -> Counter[str]:
    """Returns the rows of a served table, as a subscriber keeps rows."""
    found = answer_query(store, f"from {table}")
    return Counter(
        json.dumps(json_value(dict(zip(found.columns, row, strict=True)))) for row in found.rows
    )


class Subscriber:
    """A client that knows a table only by its change sets: none may be missing or come twice."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.kinds: list[str] = []
        self.cursor: str | None = None
        # When each change set was whole.
        self.times: list[float] = []
        self.error: BaseException | None = None
        self._held: list[Any] = []
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Returns a digest of everything that the client received."""
        return self._digest.hexdigest()

    def forget(self) -> None:
        """Forgets an incomplete change set, because its connection has ended."""
        self._held = []

    def take(self, event: str, text: str) -> None:
        """Takes an event. A change set is applied when it is complete."""
        self._digest.update(f"{event} {text}\n".encode())
        data = json.loads(text)
        match event:
            case "begin":
                assert not self._held, "a change set has begun in another"
                self._held = [data]
            case "rows":
                self._held += data
            case "commit":
                head, *rows = self._held
                self._held = []
                self._apply(head, rows)
                self.cursor = data["cursor"]
                self.times.append(time.monotonic())
            case _:
                raise AssertionError((event, data))

    def _apply(self, head: Any, rows: list[Any]) -> None:
        self.kinds.append(head["kind"])
        assert Counter(each["op"] for each in rows for _ in range(each.get("times", 1))) == Counter(
            head["changes"]
        )
        if head["since"] is None:
            self.rows.clear()
        else:
            assert head["since"] == self.cursor, (head["since"], self.cursor)
        for each in rows:
            for side, sign in (("before", -1), ("after", 1)):
                if each[side] is not None:
                    self.rows[json.dumps(each[side])] += sign * each.get("times", 1)
        self.rows += Counter()  # without zeros
        assert all(count > 0 for count in self.rows.values())


class Swarm:
    """Subscribers that follow a table during the block, in a thread with its own loop."""

    def __init__(self, url: str, table: str, *, streams: int, websockets: int = 0) -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 0
        self._path = f"/api/v1/tables/{table}/changes"
        self._streams = streams
        self.subscribers = [Subscriber() for _ in range(streams + websockets)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="swarm", daemon=True)

    def __enter__(self) -> Self:
        """Starts the subscribers."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the subscribers."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)
        self._thread.join(_PATIENCE_SECONDS)

    def wait_for(self, rows: Counter[str]) -> None:
        """Waits until each subscriber has these rows. Raises the error of a failed subscriber."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        # Counter's own comparison iterates in Python, and a thread adds rows meanwhile.
        while lacking := [each for each in self.subscribers if dict.__ne__(each.rows, rows)]:
            for each in self.subscribers:
                if each.error is not None:
                    raise each.error
            assert time.monotonic() < deadline, f"{len(lacking)} wait in vain for rows"
            time.sleep(0.02)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._tasks = [
            self._loop.create_task(self._follow(each, number < self._streams))
            for number, each in enumerate(self.subscribers)
        ]
        self._loop.run_until_complete(asyncio.gather(*self._tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _end(self) -> None:
        for each in self._tasks:
            each.cancel()

    async def _follow(self, subscriber: Subscriber, is_stream: bool) -> None:
        events = self._stream() if is_stream else self._websocket()
        try:
            async for event, text in events:
                subscriber.take(event, text)
            subscriber.error = ConnectionError("the server has ended it")
        except Exception as error:  # noqa: BLE001  # raised by whoever waits
            subscriber.error = error

    async def _stream(self) -> AsyncIterator[tuple[str, str]]:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        try:
            writer.write(
                f"GET {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n\r\n".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head + await reader.read(1 << 16)
            pending = b""
            while size := int(await reader.readline(), 16):
                pending += (await reader.readexactly(size + 2))[:-2]
                *whole, pending = pending.split(b"\n\n")
                for each in whole:
                    fields: Mapping[str, str] = dict(
                        line.split(": ", 1) for line in each.decode().splitlines()
                    )
                    if "event" in fields:
                        yield fields["event"], fields["data"]
        finally:
            writer.close()

    async def _websocket(self) -> AsyncIterator[tuple[str, str]]:
        address = f"ws://{self._host}:{self._port}{self._path}"
        async with connect(address, max_size=None, open_timeout=_PATIENCE_SECONDS) as websocket:
            async for message in websocket:
                found = json.loads(message)
                yield found["event"], json.dumps(found["data"], ensure_ascii=False)
