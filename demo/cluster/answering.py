"""Checks whether a server on this machine answers over HTTP."""

from __future__ import annotations

import http.client

from kappa.kafka.broker.broker import HOST

_PATIENCE_SECONDS = 5


def answers(port: int, path: str) -> bool:
    """Returns True if a server on this machine answers a GET request with the status 200."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
