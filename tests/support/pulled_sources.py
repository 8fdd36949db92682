"""Sources that the collector pulls: real servers of streams, and of a document."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from http_server import QuietHandler
from ports import free_port
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve


def event(number: int) -> str:
    return json.dumps({"id": str(number), "page": f"/{number}"})


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    source: Source

    def do_GET(self) -> None:
        with self.source.changed:
            self.source.asked.append({key.lower(): value for key, value in self.headers.items()})
        with suppress(OSError):
            self.source.answer(self)


class Source:
    """A server at one port, which can be stopped and started again."""

    def __init__(self) -> None:
        self.port = free_port()
        self.asked: list[dict[str, str]] = []
        self.changed = threading.Condition()
        self.tls: ssl.SSLContext | None = None
        self._server: ThreadingHTTPServer | None = None
        self._sockets: list[socket.socket] = []

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        raise NotImplementedError

    def come(self) -> None:
        handler = type("Handler", (_Handler,), {"source": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def go(self) -> None:
        """Stops the server, in the middle of any answer."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def holding(self, request: BaseHTTPRequestHandler) -> None:
        self._sockets.append(request.connection)


class SseSource(Source):
    """A source of server-sent events, numbered from 1, which continues after Last-Event-ID."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def add(self, *events: str) -> None:
        with self.changed:
            self.events += events
            self.changed.notify_all()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.holding(request)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        request.wfile.write(b": hello\nretry: 100\n\n")
        sent = int(request.headers.get("Last-Event-ID", "0"))
        while True:
            with self.changed:
                while len(self.events) <= sent:
                    self.changed.wait()
                new = self.events[sent : sent + 20]
            for each in new:
                sent += 1
                request.wfile.write(f"id: {sent}\ndata: {each}\n\n".encode())


class DocumentSource(Source):
    """A document with an ETag. If `status` is set, that status is the answer instead."""

    def __init__(self) -> None:
        super().__init__()
        self.document = b"[]"
        self.media_type = "application/json"
        self.status = 0
        self.headers: dict[str, str] = {}
        self.tag = '"1"'
        self.statuses: list[int] = []

    def put(self, document: bytes, tag: str, media_type: str = "application/json") -> None:
        self.document, self.tag, self.media_type = document, tag, media_type

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        known = self.tag and request.headers.get("If-None-Match") == self.tag
        status = self.status or (304 if known else 200)
        body = self.document if status == 200 else b""
        request.send_response(status)
        for name, value in self.headers.items():
            request.send_header(name, value)
        if self.tag:
            request.send_header("ETag", self.tag)
        if status != 304:
            request.send_header("Content-Type", self.media_type)
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
        self.statuses.append(status)


class WebsocketSource:
    """A websocket. Each connection gets the messages that are added after it was made."""

    def __init__(self) -> None:
        self.port = free_port()
        self.asked: list[str | None] = []
        self.tls: ssl.SSLContext | None = None
        self._server: Server | None = None
        self._open: list[ServerConnection] = []

    def come(self) -> None:
        self._server = serve(self._connected, "127.0.0.1", self.port, ssl=self.tls)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def go(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        for each in self._open:
            each.socket.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def send(self, *messages: str | bytes) -> None:
        for each in messages:
            self._open[-1].send(each)

    @property
    def is_heard(self) -> bool:
        return bool(self._open)

    def _connected(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.asked.append(connection.request.headers.get("Authorization"))
        self._open.append(connection)
        with suppress(ConnectionClosed):
            connection.recv()
        with suppress(ValueError):
            self._open.remove(connection)


AnySource = TypeVar("AnySource", SseSource, DocumentSource, WebsocketSource)


@contextmanager
def running(source: AnySource) -> Iterator[AnySource]:
    """Runs a source within the block."""
    source.come()
    try:
        yield source
    finally:
        with suppress(AssertionError):
            source.go()
