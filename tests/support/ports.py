"""Ports of this machine on which nobody listens."""

from __future__ import annotations

import socket


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """Returns a port of this machine on which nobody listens."""
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
