"""The signals that ask this process to end: SIGTERM, Ctrl-C, and a closed terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self


class ToldToEnd(BaseException):
    """Raised by a signal where waiting would take long.

    It is no error, so no `except Exception` may take it for one.
    """


class Told:
    """True once this process was asked to end. A signal only sets it, unless it may interrupt."""

    def __init__(self) -> None:
        """Begins unset, and does not listen yet: that is within `with`."""
        self.to_end = False
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Lets a signal raise ToldToEnd within it."""
        if self.to_end:
            raise ToldToEnd
        self._interrupts = True
        try:
            yield
        finally:
            self._interrupts = False

    def __enter__(self) -> Self:
        # SIGHUP: the terminal was closed.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        # Ignored from here on, while all is being ended: who cannot wait has SIGKILL.
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.to_end = True
        if self._interrupts:
            self._interrupts = False
            raise ToldToEnd
