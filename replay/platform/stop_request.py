"""Handles the signals that ask this process to end: SIGTERM, Ctrl-C, and a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class StopRequested(BaseException):
    """The exception that a signal raises to interrupt a long wait.

    The exception is not an error. The class is not derived from Exception, so that no `except
    Exception` catches it.
    """


class StopRequest:
    """A request to end this process, made by a signal.

    `requested` becomes True when the signal arrives. A signal interrupts the process only within
    the context `may_interrupt`.
    """

    def __init__(self) -> None:
        """Creates a request; `requested` is False. Signals are handled only in the `with` block."""
        self.requested = False
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def may_interrupt(self) -> Iterator[None]:
        """Allows a signal to raise StopRequested within this `with` block.

        Raises StopRequested at once if a signal has arrived already.
        """
        if self.requested:
            raise StopRequested
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def __enter__(self) -> Self:
        # SIGHUP: the terminal was closed.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note_signal)
        return self

    def __exit__(self, *_: object) -> None:
        # Signals are ignored from here on, while all is being ended: an impatient operator has
        # SIGKILL.
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _note_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
        if self._interrupts:
            self._interrupts = False
            raise StopRequested
