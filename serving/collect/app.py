"""The paths of the collector, as an ASGI application without a framework.

    POST /collect/TOPIC            one event as JSON, or one per line as application/x-ndjson
    GET  /collect/TOPIC            as a websocket: one event per message
    GET  /collect/TOPIC/pixel.gif  ?event=JSON: an event of a page; the answer is only an image
    GET  /collect/pulls            the states of the sources that are pulled
    GET  /collect/requests/ID      the outcome of a request that was answered with 202
    GET  /healthz, /readyz         whether the process runs; whether events are acknowledged
    GET  /metrics                  the counts of the process

The body of a request is read only if its caller is allowed and there is room for the body in the
queue.

Messages of a websocket are acknowledged cumulatively. `{"acknowledged": 12, "token":
"visits:0=41"}` means that the first twelve messages need not be sent again: each is in the log, or
was answered with `{"line": 7, "reason": ..., "detail": ...}`. If too many messages are
unacknowledged, or if the queue is full, the collector stops reading, and TCP slows the client down.
If the broker does not acknowledge an event, the collector closes the connection with code 1013, and
the client must send all messages after the last acknowledgement again. Source:
https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs, unquote

import msgspec

from kappa.base.errors import KappaError
from kappa.base.units import parse_memory
from kappa.kafka.live_producer import Placed, SentRecords, Undelivered
from kappa.serving.collect.app_state import CollectorStand
from kappa.serving.collect.callers import Caller
from kappa.serving.collect.datagrams import Datagrams
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.collect.lines import (
    HttpReply,
    Invalid,
    Lines,
    is_batch,
    problem_reply,
    read_event,
    read_lines,
    read_one,
    reply_of,
)
from kappa.serving.collect.request_answers import go_on, key_of
from kappa.serving.http.bounds import Bounds, Scope, connection_of, ensure_room
from kappa.serving.http.exposition import MEDIA_TYPE as METRICS
from kappa.serving.http.headers import has_body, joined
from kappa.serving.http.problem import HttpError, Send, refuse_websocket
from kappa.serving.http.request_checks import Receive, read_body
from kappa.serving.query.pin.moments import written_offsets
from kappa.state.offsets import Offsets

_PREFIX = "/collect/"
_PIXEL = "/pixel.gif"
# One transparent pixel.
_GIF = bytes.fromhex(
    "47494638396101000100800000000000ffffff21f90401000000002c00000000010001000002024401003b"
)
_PULLS = "/collect/pulls"
_REQUESTS = "/collect/requests/"
# Source: RFC 7240, 4.1.
_LATER = "respond-async"
# The time for which a browser may keep the answer to a preflight request.
_ASKED_SECONDS = "600"


class CollectorApp:
    """The ASGI application of a collector."""

    def __init__(
        self, stand: CollectorStand, bounds: Bounds, datagrams: socket.socket | None
    ) -> None:
        """Stores the collector's state, the limits of requests, and the socket for datagrams.

        The setting `collect.body_bytes` replaces the limit in `bounds` for a request's body.
        `datagrams` is None if no datagrams are received.
        """
        self._stand = stand
        self._datagrams = datagrams
        most = parse_memory(stand.settings.body_bytes)
        self._bounds = replace(bounds, body_bytes=most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, serves a websocket, or handles startup and shutdown."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        headers = joined(scope["headers"])
        if scope["type"] == "websocket":
            await self._stream(scope, headers, receive, send)
            return
        held = _HeldRoom(self._stand)
        origin = ""
        try:
            ensure_room(connection_of(scope), self._bounds)
            origin = self._stand.callers.origin(headers)
            answer = await self._answer(scope, headers, receive, held)
        except HttpError as error:
            answer = problem_reply(error)
            if connection_of(scope).is_too_many or (has_body(headers) and not held.is_whole):
                # The rest of the body is not read.
                answer = replace(answer, headers={**(answer.headers or {}), "Connection": "close"})
        except KappaError as error:
            answer = problem_reply(error)
        finally:
            held.release()
        if answer is not None:
            self._stand.counts.request("http", answer.status)
            await self._send(answer, origin, send)

    async def _answer(
        self, scope: Scope, headers: dict[str, str], receive: Receive, held: _HeldRoom
    ) -> HttpReply | None:
        """Returns the answer to a request, or None if the client has closed the connection."""
        method, path = scope["method"], scope["path"]
        if path == "/healthz":
            return HttpReply(200, b'{"status":"ok"}')
        if path == "/readyz":
            return self._ready()
        if method == "OPTIONS" and path.startswith(_PREFIX):
            return HttpReply(204, b"")
        asked = _asked(scope)
        caller = await self._stand.callers.admitted(headers, asked.get("token"))
        connection_of(scope).welcome()
        if path == "/metrics":
            return HttpReply(200, self._stand.metrics().encode(), METRICS)
        if method == "GET" and path.startswith(_REQUESTS):
            return self._stand.requests.reply(path.removeprefix(_REQUESTS))
        if method == "GET" and path == _PULLS:
            return HttpReply(
                200,
                msgspec.json.encode(
                    self._stand.pulls.states(caller.topics_of(self._stand.settings.topics))
                ),
            )
        name = unquote(path.removeprefix(_PREFIX))
        if not path.startswith(_PREFIX) or not name:
            raise HttpError(404, f"there is nothing at {path}", hint="POST /collect/TOPIC")
        if method == "GET" and name.endswith(_PIXEL):
            topic = self._stand.topic(name.removesuffix(_PIXEL))
            caller.ensure_may(topic.name)
            caller.ensure_rate(1, time.monotonic())
            event = asked.get("event", "")
            self._stand.one_way.take(topic, event.encode(errors="surrogateescape"), "pixel")
            return HttpReply(200, _GIF, "image/gif", {"Cache-Control": "no-store"})
        if method != "POST":
            raise HttpError(
                405,
                f"{method} is not a way to send an event",
                hint=f"POST {_PREFIX}TOPIC",
                headers={"Allow": "POST"},
            )
        topic = self._stand.topic(name)
        caller.ensure_may(topic.name)
        return await self._collect(topic, caller, headers, receive, held)

    async def _collect(
        self,
        topic: CollectedTopic,
        caller: Caller,
        headers: dict[str, str],
        receive: Receive,
        held: _HeldRoom,
    ) -> HttpReply | None:
        key = key_of(headers.get("idempotency-key"))
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError(
                415,
                f"a body in {headers['content-encoding']} is not read",
                hint="send it without Content-Encoding",
            )
        self._stand.intake.ensure_room(1)
        body = await read_body(headers, receive, self._bounds, held.take)
        if body is None:
            return None
        held.is_whole = True
        has_lines = is_batch(headers.get("content-type"))
        events = 1 + body.count(b"\n") if has_lines else 1
        self._stand.intake.ensure_room(events)
        caller.ensure_rate(events, time.monotonic())

        async def work(before: Lines | None) -> Lines:
            most = self._stand.largest_record
            lines = (
                await read_lines(topic, body, key, most)
                if has_lines
                else read_one(topic, body, key, most)
            )
            go_on(lines, before)
            places = lines.unsent()
            sent = await self._stand.intake.send(topic.name, lines.records(places))
            for place, outcome in zip(places, sent.outcomes, strict=True):
                if outcome is not None:
                    lines.outcomes[place] = outcome
            self._stand.counts.events(topic.name, "http", lines.tally())
            return lines

        async def reply() -> HttpReply:
            if not key:
                return reply_of(await work(None))
            named = (caller.name, topic.name, key)
            return reply_of(await self._stand.remembered.once(named, body, work))

        if _LATER in headers.get("prefer", ""):
            return self._stand.requests.begin(reply(), held.handed_over())
        return await reply()

    async def _stream(
        self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send
    ) -> None:
        """Receives events over a websocket, or answers the handshake with an error."""
        try:
            ensure_room(connection_of(scope), self._bounds)
            self._stand.callers.origin(headers)
            caller = await self._stand.callers.admitted(headers, _asked(scope).get("token"))
            topic = self._stand.topic(unquote(scope["path"].removeprefix(_PREFIX)))
            caller.ensure_may(topic.name)
        except KappaError as error:
            self._stand.counts.request("stream", problem_reply(error).status)
            await refuse_websocket(error, send)
            return
        await EventsIn(self._stand, topic, caller, receive, send).run()

    def _ready(self) -> HttpReply:
        missing = self._stand.missing()
        return HttpReply(
            503 if missing else 200,
            msgspec.json.encode(
                {"status": "not ready" if missing else "ready", "missing": missing}
            ),
        )

    async def _send(self, answer: HttpReply, origin: str, send: Send) -> None:
        headers = {
            "content-type": answer.media_type,
            "content-length": str(len(answer.body)),
            **(answer.headers or {}),
            **(_cors_headers(origin) if origin else {}),
        }
        start = {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        # A client that does not read the answer is cut off: the connection ends with this call.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._bounds.send_seconds):
                await send(start)
                await send({"type": "http.response.body", "body": answer.body})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Starts the collector's queue and tasks before the first request, and later ends them.

        `receive` and `send` transfer the messages of the ASGI lifespan protocol.
        """
        await receive()
        try:
            self._stand.open()
            if self._datagrams is not None:
                await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: Datagrams(self._stand, self._stand.one_way), sock=self._datagrams
                )
        except KappaError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._stand.close()
        await send({"type": "lifespan.shutdown.complete"})


class _HeldRoom:
    """The part of the queue's room that is reserved for the body of one request."""

    def __init__(self, stand: CollectorStand) -> None:
        self._intake = stand.intake
        self._size = 0
        self.is_whole = False

    def take(self, size: int) -> None:
        self._intake.hold(size)
        self._size += size

    def handed_over(self) -> Callable[[], None]:
        """Returns a function that releases the reserved room.

        The room remains reserved after the end of the request, until this function is called.
        """
        size, self._size = self._size, 0
        return lambda: self._intake.release(size)

    def release(self) -> None:
        self._intake.release(self._size)
        self._size = 0


def _asked(scope: Scope) -> dict[str, str]:
    """Returns the parameters of a request's query.

    If a parameter is repeated, only its first value is returned.
    """
    query = scope["query_string"].decode("latin-1")
    return {name: values[0] for name, values in parse_qs(query).items()} if query else {}


def _cors_headers(origin: str) -> Mapping[str, str]:
    return {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "POST, GET",
        "access-control-allow-headers": "authorization, content-type, idempotency-key, prefer",
        "access-control-expose-headers": "retry-after, location",
        "access-control-max-age": _ASKED_SECONDS,
        "vary": "origin",
    }


_SEND_SECONDS = 30.0
_TRY_AGAIN = 1013


class EventsIn:
    """An open websocket on which a client sends events."""

    def __init__(
        self,
        stand: CollectorStand,
        topic: CollectedTopic,
        caller: Caller,
        receive: Receive,
        send: Send,
    ) -> None:
        self._stand = stand
        self._topic = topic
        self._caller = caller
        self._receive = receive
        self._send = send
        # Messages whose acknowledgement was not sent yet, in order.
        self._open: deque[asyncio.Future[SentRecords] | Invalid] = deque()
        self._settled = 0
        self._changed = asyncio.Event()
        self._window = asyncio.Semaphore(stand.settings.unacknowledged)
        self._ends: dict[int, int] = {}

    async def run(self) -> None:
        """Reads events until the client leaves or the broker does not acknowledge an event."""
        await self._receive()
        await self._send({"type": "websocket.accept"})
        self._stand.counts.request("stream", 101)
        reading = asyncio.create_task(self._read())
        acknowledging = asyncio.create_task(self._acknowledge())
        try:
            await asyncio.wait({reading, acknowledging}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reading, acknowledging):
                task.cancel()
                # A client that has left can be sent nothing; neither can a client that reads too
                # slowly.
                with suppress(asyncio.CancelledError, RuntimeError, TimeoutError, OSError):
                    await task

    async def _read(self) -> None:
        while True:
            await self._window.acquire()
            message = await self._receive()
            if message["type"] != "websocket.receive":
                return
            event = message.get("bytes")
            if event is None:
                event = (message.get("text") or "").encode()
            await self._until_it_may(len(event))
            found = read_event(self._topic, event, (), self._stand.largest_record)
            if isinstance(found, Invalid):
                self._open.append(found)
                self._changed.set()
                continue
            intake = self._stand.intake
            intake.hold(len(event))
            sent = intake.post(self._topic.name, [found])
            sent.add_done_callback(partial(self._placed, len(event)))
            self._open.append(sent)

    def _placed(self, size: int, _: asyncio.Future[SentRecords]) -> None:
        self._stand.intake.release(size)
        self._changed.set()

    async def _until_it_may(self, size: int) -> None:
        while True:
            seconds = self._caller.rate.take(1, time.monotonic())
            if not seconds:
                break
            await asyncio.sleep(seconds)
        await self._stand.intake.until_room(size)

    async def _acknowledge(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            before = self._settled
            while self._open:
                first = self._open[0]
                if isinstance(first, Invalid):
                    self._stand.counts.events(self._topic.name, "stream", {"invalid": 1})
                    await self._tell(
                        {
                            "line": self._settled + 1,
                            "reason": first.reason,
                            "detail": first.detail,
                        }
                    )
                elif not first.done():
                    break
                elif isinstance(outcome := first.result().outcomes[0], Undelivered):
                    self._stand.counts.events(self._topic.name, "stream", {"failed": 1})
                    await self._told(before)
                    await self._close(outcome)
                    return
                elif isinstance(outcome, Placed):
                    end = self._ends.get(outcome.partition, 0)
                    self._ends[outcome.partition] = max(end, outcome.offset + 1)
                    self._stand.counts.events(self._topic.name, "stream", {"acknowledged": 1})
                self._open.popleft()
                self._window.release()
                self._settled += 1
            await self._told(before)

    async def _told(self, before: int) -> None:
        """Acknowledges the messages that need not be sent again, unless the client knows of them.

        `before` is the number of messages that were acknowledged before. The acknowledgement
        contains the number of messages that need not be sent again, and the write token of their
        events.
        """
        if self._settled > before:
            token = written_offsets(Offsets({self._topic.name: self._ends}))
            await self._tell({"acknowledged": self._settled, "token": token or None})

    async def _tell(self, document: object) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(
                {"type": "websocket.send", "text": msgspec.json.encode(document).decode()}
            )

    async def _close(self, outcome: Undelivered) -> None:
        async with asyncio.timeout(_SEND_SECONDS):
            await self._send(
                {
                    "type": "websocket.close",
                    "code": _TRY_AGAIN,
                    "reason": f"not acknowledged: {outcome.why}"[:120],
                }
            )
