"""How long a request's head may take: who sends it drop by drop is left, before anything of it is known. The protocol that uvicorn speaks, with one clock more.

uvicorn times the pause between requests, and gate.py bodies and answers; between the first byte of a head and its end nobody looks. So
the clock runs from the connection's beginning, or the end of the last request, while no head is whole.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


def patient(head_seconds: float) -> type[H11Protocol]:
    """The protocol, for uvicorn's `http`; a head that is not whole after so long ends its connection."""
    return type("Patient", (PatientProtocol,), {"head_seconds": head_seconds})


class PatientProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, whose patience with a head ends."""

    _head_due: asyncio.TimerHandle | None = None
    head_seconds: float

    def connection_made(self, transport: Any) -> None:
        """The clock begins: who connects says what he wants."""
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        """The clock goes on until the head is whole."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """There is nobody to wait for."""
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
