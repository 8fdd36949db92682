"""A receiver of webhooks: a real server that keeps requests, and answers as a test chooses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from http_server import QuietHandler

SECRET = "whsec_" + base64.b64encode(b"0123456789abcdef0123456789abcdef").decode()


@dataclass
class Request:
    """A received request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        """Returns the body as a value."""
        return json.loads(self.body)


# Answers a request by its handler: the status, a wait, or nothing at all.
Answering = Callable[[BaseHTTPRequestHandler, Request], None]


@dataclass
class Receiver:
    """The requests so far, and the answers to the next ones; later requests get `usual`."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    answers: list[Answering] = field(default_factory=list)
    usual: Answering = field(default_factory=lambda: status(204))

    @property
    def messages(self) -> list[Any]:
        """Returns the received messages, with repeats."""
        return [each.message for each in self.requests]

    @contextmanager
    def up(self, port: int = 0) -> Iterator[Receiver]:
        """Listens within the block."""
        receiver = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, body)
                receiver.requests.append(request)
                answer = receiver.answers.pop(0) if receiver.answers else receiver.usual
                answer(self, request)
                self.close_connection = True

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def status(code: int, **headers: str) -> Answering:
    """Returns an answer with this status."""

    def answer(handler: BaseHTTPRequestHandler, _request: Request) -> None:
        handler.send_response(code)
        handler.send_header("content-length", "0")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    return answer


def closes(handler: BaseHTTPRequestHandler, _request: Request) -> None:
    """Closes the connection without an answer, after the message was processed."""
    handler.close_connection = True


def hangs(until: threading.Event) -> Answering:
    """Returns an answer that sends nothing until an event is set."""

    def answer(_handler: BaseHTTPRequestHandler, _request: Request) -> None:
        until.wait(60)

    return answer


def drips(until: threading.Event) -> Answering:
    """Returns an answer that sends a byte now and then, so that no read times out."""

    def answer(handler: BaseHTTPRequestHandler, _request: Request) -> None:
        handler.wfile.write(b"HTTP/1.1 2")
        while not until.wait(0.05):
            try:
                handler.wfile.write(b"x")
                handler.wfile.flush()
            except OSError:
                return

    return answer


def is_signed(request: Request, key: bytes) -> bool:
    """Returns True if a request has the signature that the text of the standard defines."""
    id_, at = request.headers["webhook-id"], request.headers["webhook-timestamp"]
    content = f"{id_}.{at}.".encode() + request.body
    digest = hmac.new(key, content, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return signature in request.headers["webhook-signature"].split(" ")
