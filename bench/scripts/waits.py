"""A proxy for a server on this machine that delays all bytes that a client sends.

    python waits.py PORT SERVER_PORT SECONDS

So each request on a persistent connection takes SECONDS longer, and the proxy uses little CPU time.
If a request arrives in several pieces, each piece is delayed. There are two threads per connection,
because an event loop can only wait for whole milliseconds.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from contextlib import suppress

_HOST = "127.0.0.1"
_MOST_BYTES = 1 << 20


def main() -> None:
    port, server_port, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    with socket.create_server((_HOST, port), backlog=128) as server:
        while True:
            client, _ = server.accept()
            try:
                beyond = socket.create_connection((_HOST, server_port))
            except OSError:
                client.close()
                continue
            for each in (client, beyond):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _begin(client, beyond, seconds)
            _begin(beyond, client, 0)


def _begin(source: socket.socket, target: socket.socket, seconds: float) -> None:
    threading.Thread(target=_pass_on, args=(source, target, seconds), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, seconds: float) -> None:
    with suppress(ConnectionError):
        while data := source.recv(_MOST_BYTES):
            if seconds:
                time.sleep(seconds)
            target.sendall(data)
    # The other thread may have ended both.
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


main()
