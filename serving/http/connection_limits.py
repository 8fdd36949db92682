"""An HTTP protocol for uvicorn that limits the connections of unauthenticated clients.

uvicorn limits the pause between requests, and request_checks.py limits the time of bodies and
answers. Neither limits the time between the first byte of a head and its end, so a client could
send a head very slowly. The timer of this module runs from the start of the connection, or from the
end of the last request, until a head is complete.

uvicorn stops reading from a client whose next request waits for an answer to finish, or whose body
waits for a slow reader. So the server would not notice that the client has left, and the client's
query would continue to occupy its place. Therefore, this module asks the kernel whether the client
has left.

A connection belongs to a stranger until the server accepts a token in one of its requests.
Strangers may use only a part of all connections. If that part is full, the oldest connection of a
stranger is closed. A client with a token is served however many strangers connect, because the head
of its first request arrives at once, before its connection could become the oldest.
"""

from __future__ import annotations

import asyncio
import resource
import select
import socket
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from kappa.serving.http.address import WAITING
from kappa.serving.http.bounds import CONNECTION, Bounds, Connection

# The number of connections accepted in a step of the loop: before the next step, older connections
# make room.
_ACCEPTED_AT_ONCE = 32
# The wait for the first request of a connection that was accepted before the server ends.
_FIRST_REQUEST_SECONDS, _NAP_SECONDS = 0.5, 0.02
# How often the kernel is asked about a client of which nothing is read.
_LEFT_SECONDS = 0.5
# Linux alone reports that a client has left while there is still something to read.
_LEAVES = getattr(select, "POLLRDHUP", 0)
# The most files that the server has open beside connections: queries, their processes, the store.
_OTHER_FILES = 256


def uvicorn_settings(
    bounds: Bounds, protocol: type[PatientProtocol] | None = None
) -> dict[str, Any]:
    """Returns the settings with which uvicorn enforces the limits in `bounds`.

    `protocol` is the class of the connections, by default PatientProtocol.
    """
    return {
        "http": type(
            "Patient", (protocol or PatientProtocol,), {"bounds": bounds, "strangers": {}}
        ),
        "backlog": _ACCEPTED_AT_ONCE,
        "timeout_keep_alive": 10,
        "loop": "asyncio",
        "ws": "websockets-sansio",
        # A reader of changes sends nothing.
        "ws_max_size": 1 << 16,
        "ws_max_queue": 1,
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
    }


def fitting(bounds: Bounds) -> Bounds:
    """Returns the limits, with no more connections than the process can open files for.

    First, the process's limit on open files is raised as far as needed and as far as the machine
    allows. If no file were left for a connection, the event loop would fail to accept the
    connection again and again.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = bounds.connections + _OTHER_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    connections = max(2, min(bounds.connections, soft - _OTHER_FILES))
    return replace(
        bounds, connections=connections, strangers=min(bounds.strangers, connections // 2)
    )


class PatientServer(uvicorn.Server):
    """A uvicorn server that lets new connections wait in the kernel while it accepts others.

    `end_streams` is called when the server begins to shut down, because the open streams would not
    end by themselves.
    """

    def __init__(
        self, config: uvicorn.Config, end_streams: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the server, and enlarges the kernel's queue of new connections."""
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the open streams, and waits until all other answers have been sent.

        A client that has just connected has half a second to send its first request. If the socket
        is shared with another process, later connections wait in the kernel for the next server.
        """
        self._end_streams()
        for each in self.servers:
            each.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _FIRST_REQUEST_SECONDS
        while loop.time() < deadline and any(  # noqa: ASYNC110  # uvicorn tells nobody of a request
            isinstance(each, PatientProtocol) and each.is_new()
            for each in self.server_state.connections
        ):
            await asyncio.sleep(_NAP_SECONDS)
        await super().shutdown(sockets)


class OfferParser(httptools.HttpRequestParser):
    """An httptools parser that also accepts requests that offer to change the protocol.

    httptools itself treats the bytes after the head of such a request as the other protocol, so the
    body would be lost. Some clients offer HTTP/2 in this way: Java's client by default, and curl
    with `--http2`.
    """

    def __init__(self, protocol: PatientProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: Any) -> None:
        """Parses received data. Parses a head again if it offers to change the protocol."""
        try:
            super().feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self._protocol.is_offer():
                raise
            self._protocol.read_without_offer(data[upgrade.args[0] :])


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol, with limits for heads and for unauthenticated clients."""

    bounds: ClassVar[Bounds]
    # The strangers in the order of arrival.
    strangers: ClassVar[dict[PatientProtocol, None]]
    _head_due: Any = None
    # The bytes of an incomplete head or trailer, without bytes that arrived with an earlier part.
    _head_bytes = 0
    _is_in_body = False
    # The request that is answered, while later requests wait behind.
    _answered: RequestResponseCycle | None = None
    _left_due: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = OfferParser(self)

    def connection_made(self, transport: Any) -> None:
        """Registers the connection, and starts the timer for the head of its first request."""
        super().connection_made(transport)
        is_too_many = len(self.connections) > self.bounds.connections
        me = Connection(self._welcome, transport.abort, is_too_many)
        self.app_state = {**self.app_state, CONNECTION: me}
        self.strangers[self] = None
        if len(self.strangers) > self.bounds.strangers:
            next(iter(self.strangers)).make_room()
        self._look()

    def data_received(self, data: bytes) -> None:
        """Parses received data, and starts or stops the timer for an incomplete head."""
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > self.bounds.head_bytes:
            self._leave(b"431 Request Header Fields Too Large")
        self._look()
        if self.flow.read_paused and self._left_due is None:
            self._look_whether_left()

    def is_new(self) -> bool:
        """Returns True if the connection has had no request yet."""
        return not self.transport.is_closing() and self.cycle is None

    def is_offer(self) -> bool:
        """Returns True if the request offers to change to a protocol other than websockets.

        The server ignores such an offer.
        """
        return (
            self.parser.should_upgrade()
            and self.parser.get_method() != b"CONNECT"
            and not self._should_upgrade()
        )

    def read_without_offer(self, rest: bytes) -> None:
        """Parses a request's head again without its offer to change the protocol, and then `rest`.

        `rest` contains the bytes after the head.
        """
        lines = [b"%b %b HTTP/1.1" % (self.parser.get_method(), self.url)]
        for name, value in self.headers:
            if name == b"connection":
                lines += [b"connection: close"] * (b"close" in value.lower())
            elif name not in (b"upgrade", b"http2-settings"):
                lines.append(b"%b: %b" % (name, value))
        self.parser, self._is_in_body = OfferParser(self), False
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))
        if rest:
            self.parser.feed_data(rest)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handles a header of a request, and ignores a header that follows a body (a trailer)."""
        if not self._is_in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Handles the end of a request's head, and starts to answer the request."""
        self._head_bytes, self._is_in_body = 0, True
        if not self.is_offer():
            self._begin_request()

    def _begin_request(self) -> None:
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Handles a piece of a body."""
        self._head_bytes = 0
        self._take_body(body)

    def _take_body(self, body: bytes) -> None:
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Handles the end of a request."""
        if not self.is_offer():
            self._is_in_body = False
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answers with status 400 if the received bytes are not HTTP.

        If another answer is being sent, closes the connection instead.
        """
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timers, and informs all waiting requests that their client has left."""
        self._stop()
        if self._left_due is not None:
            self._left_due.cancel()
        self.strangers.pop(self, None)
        super().connection_lost(exc)
        # uvicorn tells only the last request.
        for cycle in (self._answered, *(each for each, _ in self.pipeline)):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()

    def handle_websocket_upgrade(self) -> None:
        """Passes the connection on to uvicorn's websocket protocol.

        The server then checks the websocket's request as any other request.
        """
        # No further head is waited for here.
        self._is_in_body = True
        self._stop()
        self.strangers.pop(self, None)
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _look_whether_left(self) -> None:
        self._left_due = None
        if not self.flow.read_paused or self.transport.is_closing():
            return
        asking = select.poll()
        asking.register(self.transport.get_extra_info("socket").fileno(), _LEAVES)
        if asking.poll(0):
            self.transport.abort()
        else:
            self._left_due = self.loop.call_later(_LEFT_SECONDS, self._look_whether_left)

    def _welcome(self) -> None:
        self.strangers.pop(self, None)

    def make_room(self) -> None:
        """Closes this connection to free its place for a newer unauthenticated client."""
        self.strangers.pop(self, None)
        if self._waits():
            self._leave(b"503 Service Unavailable")
        self.transport.abort()

    def _waits(self) -> bool:
        """Returns True if the connection waits for the head of a request.

        In this state, no body is being received, and no answer is being sent.
        """
        return (
            not self._is_in_body
            and (self.cycle is None or self.cycle.response_complete)
            and not self.transport.is_closing()
        )

    def _has_late_body(self) -> bool:
        """Returns True if a request was answered before its body had ended."""
        return self._is_in_body and self.cycle is not None and self.cycle.response_complete

    def _look(self) -> None:
        if not self._waits() and not self._has_late_body():
            self._stop()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(self.bounds.head_seconds, self._leave_late)

    def _stop(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _leave_late(self) -> None:
        self._head_due = None
        if self._waits() or self._has_late_body():
            self._leave(b"408 Request Timeout")

    def _leave(self, status: bytes) -> None:
        if not self._waits():
            # An answer is on its way, and no other answer may follow within.
            self.transport.abort()
            return
        self.transport.write(
            b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        self.transport.close()
