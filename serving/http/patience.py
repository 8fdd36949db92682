"""The time limit of a request's head: uvicorn's HTTP protocol with one more timer.

uvicorn times the pause between requests, and gate.py times bodies and answers. Neither times a
head between its first byte and its end, so a client could send it drop by drop. This timer runs
from the connection's beginning, or the end of the last request, until a head is complete.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def patient(head_seconds: float) -> type[H11Protocol]:
    """Returns the protocol, for uvicorn's setting `http`.

    It closes a connection whose head is incomplete after `head_seconds`.
    """
    return type("Patient", (PatientProtocol,), {"head_seconds": head_seconds})


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with a time limit for a request's head."""

    _head_due: asyncio.TimerHandle | None = None
    head_seconds: float

    def connection_made(self, transport: Any) -> None:
        """Starts the timer: a client that connects must send a request."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """Keeps the timer running until the head is complete."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._stop()
        super().connection_lost(exc)

    def _look(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(self.head_seconds, self._leave)

    def _stop(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def _leave(self) -> None:
        self._head_due = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.write(
                b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            )
            self.transport.close()
