"""Whether this process was told to end: by SIGTERM, by Ctrl-C, or by its terminal being closed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self


class ToldToEnd(BaseException):
    """Raised by a signal where waiting would take long; not an error, so no `except Exception` may take it for one."""


class Told:
    """Whether this process was told to end. A signal only says so, but for where it may interrupt."""

    def __init__(self) -> None:
        """Not told yet, and not listening: that is within `with`."""
        self.to_end = False
        self._interrupts = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Within it, being told to end raises."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Ignored from here on, while all is being ended: who cannot wait has SIGKILL.
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.to_end = True
        if self._interrupts:
            self._interrupts = False
            raise ToldToEnd
