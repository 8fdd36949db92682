"""A cluster whose brokers are all fenced, as clients see a cluster for a moment.

A real controller fences its only broker for some milliseconds, at a moment that a test cannot
choose.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import StreamRequestHandler, ThreadingTCPServer

# Keys and versions of Kafka's protocol. From version 9 on, metadata have another form.
_METADATA, _API_VERSIONS, _NEWEST_METADATA = 3, 18, 8
_UNSUPPORTED_VERSION = 35


@dataclass
class FencedCluster:
    """A listener that answers ApiVersions and Metadata of Kafka's protocol, and knows no topic."""

    server: ThreadingTCPServer
    fenced: bool = False

    @property
    def address(self) -> str:
        """Returns the address as HOST:PORT."""
        return f"127.0.0.1:{self.server.server_address[1]}"

    def answer(self, key: int, version: int) -> bytes:
        """Returns the body of the answer to a request."""
        if key == _API_VERSIONS:
            error = _UNSUPPORTED_VERSION if version else 0
            known = ((_METADATA, 0, _NEWEST_METADATA), (_API_VERSIONS, 0, 0))
            return struct.pack(">hi", error, len(known)) + b"".join(
                struct.pack(">hhh", *each) for each in known
            )
        assert (key, version) == (_METADATA, _NEWEST_METADATA)
        _, port = self.server.server_address[:2]
        brokers = [] if self.fenced else [struct.pack(">i", 1) + _text("127.0.0.1")]
        brokers = [each + struct.pack(">ih", int(port), -1) for each in brokers]
        return (
            struct.pack(">ii", 0, len(brokers))
            + b"".join(brokers)
            + _text("cluster")
            + struct.pack(">iii", -1 if self.fenced else 1, 0, -(1 << 31))
        )


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@contextmanager
def fenced_cluster() -> Iterator[FencedCluster]:
    """Runs a cluster with one broker; a test can set `fenced` to fence that broker."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while size := self.rfile.read(4):
                request = self.rfile.read(*struct.unpack(">i", size))
                key, version, correlation = struct.unpack_from(">hhi", request)
                answer = struct.pack(">i", correlation) + cluster.answer(key, version)
                self.wfile.write(struct.pack(">i", len(answer)) + answer)

    ThreadingTCPServer.daemon_threads = True
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        cluster = FencedCluster(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield cluster
        finally:
            server.shutdown()
