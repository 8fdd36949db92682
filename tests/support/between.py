"""A proxy in front of an S3 server. It counts requests, and loses, delays or changes answers."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

from http_server import QuietHandler

from kappa.base.sections import StorageSettings
from kappa.kafka.broker_requests import wait_until

_ERROR = "<Error><Code>{}</Code><Message>The proxy of a test says so.</Message></Error>"
_SLOW_DOWN, _BUSY, _FORBIDDEN = "SlowDown", 503, 403
# Of one connection, and not of the answer.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the server; `length` is the declared length if it differs from the real one."""

    status: int
    headers: dict[str, str]
    content: bytes
    length: int | None = None


def unchanged(_request: str, answer: Answer) -> Answer:
    """Returns an answer unchanged."""
    return answer


@dataclass
class Between:
    """A proxy on this machine; `storage` contains settings that name the proxy as the server."""

    storage: StorageSettings
    server: str
    # `PUT /bucket/name`, in the order of arrival.
    requests: list[str] = field(default_factory=list)
    # How long each request waits.
    delay_seconds: float = 0.0
    # How many of the next requests are refused because there are too many.
    refused: int = 0
    # The code with which each request is refused meanwhile: "" for none.
    denied: str = ""
    # The answer of each so-many-th request is swallowed; 0: of none.
    losing_each: int = 0
    # Beginnings and ends of requests, of which the server gets half of the next body.
    _halving: list[tuple[str, str]] = field(default_factory=list)
    # Takes a request as `requests` have it and its answer, and returns what the client gets.
    changing: Callable[[str, Answer], Answer] = unchanged
    # Beginnings and ends of requests whose next answer is swallowed.
    _losing: list[tuple[str, str]] = field(default_factory=list)
    # Beginnings and ends of requests, and what is done before the next such one is sent on.
    _before: list[tuple[str, str, Callable[[str], None]]] = field(default_factory=list)
    _changes: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def losing(self, method: str, name: str = "") -> Iterator[None]:
        """Loses one answer to a matching request, which must come within the block."""
        loss = (f"{method} ", name)
        self._losing.append(loss)
        yield
        assert loss not in self._losing, f"no {method} of {name} came: {self.requests}"

    @contextmanager
    def halving(self, method: str, name: str = "") -> Iterator[None]:
        """Breaks off one matching request in its body; it must come within the block."""
        half = (f"{method} ", name)
        self._halving.append(half)
        yield
        assert half not in self._halving, f"no {method} of {name} came: {self.requests}"

    def takes_half(self, line: str) -> bool:
        """Returns True if the server gets only half of this request's body."""
        with self._changes:
            path = line.partition("?")[0]
            for half in self._halving:
                if line.startswith(half[0]) and path.endswith(half[1]):
                    self._halving.remove(half)
                    return True
        return False

    def before(self, method: str, name: str, act: Callable[[str], None]) -> None:
        """Calls `act` with the path when the next matching request arrives, once.

        The request is forwarded after that.
        """
        self._before.append((f"{method} ", name, act))

    @contextmanager
    def counting(self, *, wait_for: int = 0) -> Iterator[list[str]]:
        """Yields a list that contains the block's requests after the block.

        The block ends once at least `wait_for` requests have come.
        """
        found: list[str] = []
        before = len(self.requests)
        yield found
        wait_until(lambda: len(self.requests) >= before + wait_for, f"{wait_for} requests")
        found += self.requests[before:]

    def arrives(self, line: str) -> tuple[str, bool]:
        """Records a request. Returns the code of its refusal, and whether its answer is lost."""
        with self._changes:
            self.requests.append(line)
            if self.denied:
                return self.denied, False
            if self.refused:
                self.refused -= 1
                return _SLOW_DOWN, False
            if self.losing_each and not len(self.requests) % self.losing_each:
                return "", True
            path = line.partition("?")[0]
            for each in [*self._before]:
                if line.startswith(each[0]) and path.endswith(each[1]):
                    self._before.remove(each)
                    each[2](path.split()[1])
            for loss in self._losing:
                if line.startswith(loss[0]) and path.endswith(loss[1]):
                    self._losing.remove(loss)
                    return "", True
        return "", False


@contextmanager
def proxy_before(storage: StorageSettings) -> Iterator[Between]:
    """Runs a proxy in front of a server for as long as the block lasts."""
    assert storage.endpoint is not None

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        # An answer is sent in two writes, and the second would wait for 40 ms.
        disable_nagle_algorithm = True

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            refused, lost = between.arrives(f"{self.command} {self.path}")
            time.sleep(between.delay_seconds)
            if refused:
                status = _BUSY if refused == _SLOW_DOWN else _FORBIDDEN
                told = _ERROR.format(refused).encode()
                self._answer(Answer(status, {"Content-Type": "application/xml"}, told))
                return
            try:
                answer = between.changing(f"{self.command} {self.path}", self._asked(body))
            except OSError:
                lost = True
            if lost:
                with suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
            self._answer(answer)

        def _asked(self, body: bytes) -> Answer:
            """Forwards the request byte for byte, because the signature covers the headers."""
            connection = http.client.HTTPConnection(between.server, timeout=60)
            try:
                connection.putrequest(
                    self.command, self.path, skip_host=True, skip_accept_encoding=True
                )
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                if body and between.takes_half(f"{self.command} {self.path}"):
                    connection.endheaders(body[: len(body) // 2])
                    raise ConnectionAbortedError
                connection.endheaders(body)
                answer = connection.getresponse()
                headers = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP}
                if self.command == "HEAD":
                    headers["Content-Length"] = answer.headers.get("Content-Length", "0")
                return Answer(answer.status, headers, answer.read())
            finally:
                connection.close()

        def _answer(self, answer: Answer) -> None:
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if self.command == "HEAD":
                # A body here would be taken for the next answer.
                self.end_headers()
                return
            whole = len(answer.content) if answer.length is None else answer.length
            self.send_header("Content-Length", str(whole))
            self.end_headers()
            self.wfile.write(answer.content)
            self.close_connection |= whole != len(answer.content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815  # as it is called

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Writes nothing, because a client may leave in the middle of an answer."""

    with Server(("127.0.0.1", 0), Handler) as listening:
        between = Between(
            StorageSettings(endpoint=f"http://127.0.0.1:{listening.server_port}"),
            urlsplit(storage.endpoint).netloc,
        )
        thread = threading.Thread(target=listening.serve_forever, name="between", daemon=True)
        thread.start()
        try:
            yield between
        finally:
            listening.shutdown()
            thread.join()
