"""Events by UDP, one per datagram.

A datagram is `TOPIC EVENT`, or `TOPIC TOKEN EVENT` if tokens are needed. Datagrams get no answer.
If a datagram's event is not valid, or its caller is not allowed, the datagram is only counted.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

from kappa.base.errors import Conflict, KappaError
from kappa.serving.access.roles import Act, may
from kappa.serving.collect.app_state import CollectorStand
from kappa.serving.collect.fire_and_forget import OneWay
from kappa.serving.http.address import HttpAddress
from kappa.serving.http.problem import problem_of

_WAY = "udp"
# The kernel's room for datagrams that arrive while the loop is busy; the kernel may give less.
_RECEIVE_BYTES = 4 << 20
_LONGEST_WORD = 512


def datagrams_at(address: HttpAddress) -> socket.socket:
    """Opens the socket for datagrams. Raises Conflict if the port is taken."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_DGRAM)
    try:
        found.bind((address.host, address.port))
    except OSError as error:
        found.close()
        raise Conflict(
            f"nothing can receive datagrams at {address.host}:{address.port}: {error.strerror}",
            hint="set collect.udp in kappa.toml to another place",
        ) from error
    found.settimeout(0)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    return found


class Datagrams(asyncio.DatagramProtocol):
    """A receiver of datagrams that contain events."""

    def __init__(self, stand: CollectorStand, one_way: OneWay) -> None:
        self._stand = stand
        self._one_way = one_way

    def datagram_received(self, data: bytes, _address: Any) -> None:
        """Puts the event of a datagram into the spool, or counts the datagram as refused."""
        name, _, event = data.partition(b" ")
        token = b""
        if self._stand.callers.asks_for_tokens:
            token, _, event = event.partition(b" ")
        try:
            caller = self._stand.callers.known(token[:_LONGEST_WORD].decode("latin-1"))
            topic = self._stand.topic(name.decode("latin-1"))
        except KappaError as error:
            self._stand.counts.request(_WAY, problem_of(error).status)
            return
        if caller is None or not may(caller.identity, Act.COLLECT, topic.name):
            self._stand.counts.request(_WAY, 401 if caller is None else 403)
            return
        if caller.rate.take(1, time.monotonic()):
            self._stand.counts.request(_WAY, 429)
            self._stand.counts.events(topic.name, _WAY, {"dropped": 1})
            return
        self._one_way.take(topic, event, _WAY)
