"""The signals that ask this process to end: SIGTERM, Ctrl-C, and a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class StopRequested(BaseException):
    """An exception that a signal raises during a long wait.

    This is not an error. The class is not derived from Exception, so that no `except Exception`
    catches it.
    """


class StopRequest:
    """The request to end this process, made by a signal. `requested` is True after the signal.

    A signal interrupts the process only within `may_interrupt`.
    """

    def __init__(self) -> None:
        """Creates a request that no signal has made yet. Signals are handled only within `with`."""
        self.requested = False
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def may_interrupt(self) -> Iterator[None]:
        """Lets a signal raise StopRequested within the block.

        Raises StopRequested at once if a signal has come already.
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
