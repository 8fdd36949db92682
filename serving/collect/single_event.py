"""Requests with one event that arrive complete, handled without a task of the event loop.

This module handles a request only if the request's event can certainly be sent. It passes all other
requests on to app.py, including requests with invalid or refused events. So each request gets the
same answer, whichever module handles it. Several requests of a connection may be processed at the
same time; their answers are sent in the order of the requests.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from kappa.base.errors import KappaError
from kappa.kafka.live_producer import Placed, SentRecords
from kappa.serving.collect.app_state import CollectorStand
from kappa.serving.collect.declared_topics import CollectedTopic
from kappa.serving.collect.lines import HttpReply, Invalid, Lines, is_batch, read_event, reply_of
from kappa.serving.http.bounds import CONNECTION
from kappa.serving.http.connection_limits import PatientProtocol
from kappa.serving.http.problem import HttpError

_PREFIX = b"/collect/"
# The most open requests of a connection; further requests wait.
_MOST_OPEN = 256
_READ = frozenset({b"host", b"authorization", b"content-type"})
# A request with any of these headers is more than an event, or comes from a page.
_UNUSUAL = frozenset(
    {
        *(b"idempotency-key", b"prefer", b"content-encoding", b"transfer-encoding"),
        *(b"origin", b"sec-fetch-site", b"expect", b"upgrade"),
    }
)
_Headers = Iterable[tuple[bytes, bytes]]


class SingleEvents:
    """Checks single events and sends them to the broker, without a task per event."""

    def __init__(self, stand: CollectorStand, body_bytes: int) -> None:
        self._stand = stand
        self._body_bytes = body_bytes

    def topic(self, url: bytes) -> CollectedTopic | None:
        """Returns the topic that a URL names, or None if the topic cannot receive events now."""
        try:
            return self._stand.topic(url[len(_PREFIX) :].decode("latin-1"))
        except HttpError:
            return None

    def take(
        self,
        topic: CollectedTopic,
        headers: _Headers,
        body: bytes,
        answer: Callable[[HttpReply], None],
    ) -> bool:
        """Sends an event to the broker, and later calls `answer` with the answer to the request.

        Returns False if the request must be passed on to app.py. In this case the event has not
        been sent, and `answer` is not called.
        """
        stand, intake, size = self._stand, self._stand.intake, len(body)
        read = _read_headers(headers)
        if read is None or is_batch(read.get("content-type")) or size > self._body_bytes:
            return False
        try:
            caller = stand.callers.admitted_at_once(read)
            if caller is None:
                return False
            caller.ensure_may(topic.name)
            intake.ensure_room(1)
            record = read_event(topic, body, (), stand.largest_record)
            if isinstance(record, Invalid):
                return False
            # A refused rate takes nothing, so the other way finds the rate unchanged.
            caller.ensure_rate(1, time.monotonic())
            intake.hold(size)
        except KappaError:
            return False
        intake.begin(topic.name, [record], partial(self._settled, topic.name, size, answer))
        return True

    def _settled(
        self, topic: str, size: int, answer: Callable[[HttpReply], None], sent: SentRecords
    ) -> None:
        self._stand.intake.release(size)
        (outcome,) = sent.outcomes
        assert outcome is not None
        reply = reply_of(Lines(topic, (1,), [outcome], is_batch=False))
        became = "acknowledged" if isinstance(outcome, Placed) else "failed"
        self._stand.counts.events(topic, "http", {became: 1})
        self._stand.counts.request("http", reply.status)
        answer(reply)


class _Open:
    """A request that is not answered yet.

    The object has the attributes that uvicorn's protocol reads and sets.
    """

    __slots__ = ("disconnected", "keep_alive", "reply", "response_complete")
    # Nobody waits for this event.
    message_event = asyncio.Event()

    def __init__(self) -> None:
        self.reply: HttpReply | None = None
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True


class EventProtocol(PatientProtocol):
    """An HTTP/1.1 protocol that handles requests with a single event without a task."""

    single: ClassVar[SingleEvents]
    # The topic and body of a request that may be taken this way, until the request is whole.
    _topic: CollectedTopic | None = None
    _body = b""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._open: deque[_Open] = deque()

    def data_received(self, data: bytes) -> None:
        """Parses received data. A request that is still incomplete is passed on to app.py."""
        super().data_received(data)
        if self._topic is not None:
            self._begin_as_usual()

    def on_message_begin(self) -> None:
        """Handles the start of a request.

        The state that app.py needs is created only if the request is passed on.
        """
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def _take_body(self, body: bytes) -> None:
        if self._topic is None:
            super()._take_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Handles the end of a request: sends its event, or passes the request on to app.py."""
        topic = self._topic
        if topic is None:
            super().on_message_complete()
            return
        waiting = _Open()
        try:
            taken = self.single.take(
                topic, self.headers, self._body, partial(self._answer, waiting)
            )
        except Exception as error:
            # Else uvicorn would take the request to be at fault.
            self.logger.exception("a request has failed", exc_info=error)
            self._topic = None
            self.transport.abort()
            return
        if taken:
            self._topic, self._body, self._is_in_body = None, b"", False
            self._open.append(waiting)
            self.app_state[CONNECTION].welcome()
            self.cycle = waiting  # type: ignore[assignment]  # it has all that the protocol looks at
        else:
            self._begin_as_usual()
            super().on_message_complete()

    def _begin_request(self) -> None:
        self._topic = self.single.topic(self.url) if self._may_be_single() else None
        if self._topic is None:
            self._begin_as_usual()

    def _may_be_single(self) -> bool:
        parser = self.parser
        return (
            self.url.startswith(_PREFIX)
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not self.pipeline
            and (bool(self._open) or self.cycle is None or self.cycle.response_complete)
            and len(self._open) < _MOST_OPEN
            and not self.flow.write_paused
            and not self.transport.is_closing()
            # The server ends the connection after the last open request.
            and (not self._open or self._open[-1].keep_alive)
            and not self.app_state[CONNECTION].is_too_many
        )

    def _begin_as_usual(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        body, self._topic, self._body = self._body, None, b""
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super()._begin_request()
        if body:
            super().on_body(body)

    def _answer(self, waiting: _Open, reply: HttpReply) -> None:
        """Writes an answer as soon as all earlier answers have been written."""
        waiting.reply = reply
        while self._open and (found := self._open[0].reply) is not None:
            last = self._open.popleft()
            last.response_complete = True
            if not self.transport.is_closing():
                self.transport.write(_reply_bytes(found, self.server_state.default_headers))
                if not last.keep_alive:
                    self.transport.close()
        if not self._open:
            # The bytes behind these requests have their turn, or the connection is idle.
            self.on_response_complete()


def _read_headers(headers: _Headers) -> dict[str, str] | None:
    """Returns the headers that this module needs, by name.

    Returns None if such a header occurs twice, or if the request has a header that only app.py
    handles.
    """
    found: dict[str, str] = {}
    for raw, value in headers:
        if raw in _READ:
            name = raw.decode()
            if name in found:
                return None
            found[name] = value.decode("latin-1")
        elif raw in _UNUSUAL:
            return None
    return found


def _reply_bytes(reply: HttpReply, server_headers: _Headers) -> bytes:
    head = [STATUS_LINE[reply.status]]
    for name, value in server_headers:
        head += (name, b": ", value, b"\r\n")
    for named, text in (reply.headers or {}).items():
        head.append(f"{named.lower()}: {text}\r\n".encode())
    head.append(
        b"content-type: %b\r\ncontent-length: %d\r\n\r\n"
        % (reply.media_type.encode(), len(reply.body))
    )
    head.append(reply.body)
    return b"".join(head)
