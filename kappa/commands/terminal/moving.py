"""Progress of steps that take a while: the name of the step, and the seconds so far.

On a terminal a single line moves, and disappears at the end. Elsewhere a plain line is written
after two seconds of the step, and then every five seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from kappa.commands.terminal.output import talk

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_LOOK_SECONDS = 0.2
# A line that appears sooner would only flicker.
_TERMINAL_SECONDS = 0.3
_FIRST_SECONDS = 2.0
_NEXT_SECONDS = 5.0


class PlainLines:
    """The plain lines of a step without a terminal, due by the seconds of the step."""

    def __init__(self) -> None:
        """Begins a step."""
        self._due = _FIRST_SECONDS

    def line(self, text: str, seconds: float) -> str | None:
        """Returns the line to write now, or None if none is due."""
        if seconds < self._due:
            return None
        self._due = seconds + _NEXT_SECONDS
        return with_time(text, seconds)


def with_time(text: str, seconds: float) -> str:
    """Returns the text of a step with the seconds so far."""
    return f"{text} ({seconds:,.0f} s)"


@contextlib.contextmanager
def moving(
    text: str, *, console: Console | None = None, only_terminal: bool = False
) -> Iterator[Callable[[str], None]]:
    """Shows a step on stderr for as long as the block runs.

    Yields a function that changes the text of the step. With `only_terminal`, nothing is written
    where stderr is no terminal: a script that reads both streams gets the answer alone.
    """
    step = _Step(text, console, only_terminal=only_terminal)
    thread = Thread(target=step.run, name="moving", daemon=True)
    thread.start()
    try:
        yield step.update
    finally:
        step.over.set()
        thread.join()


class _Step:
    def __init__(self, text: str, console: Console | None, *, only_terminal: bool) -> None:
        self.over = Event()
        self._only_terminal = only_terminal
        self._text = text
        self._given = console
        self._began = time.monotonic()

    @cached_property
    def _console(self) -> Console:
        # A step that ends at once needs no console.
        return talk() if self._given is None else self._given

    def update(self, text: str) -> None:
        self._text = text

    def run(self) -> None:
        """Shows the text until the step is over."""
        # A terminal that is gone must not stop the command.
        with contextlib.suppress(OSError, ValueError):
            self._show()

    def _show(self) -> None:
        lines, status = PlainLines(), None
        while not self.over.wait(_LOOK_SECONDS):
            seconds = time.monotonic() - self._began
            if self._console.is_terminal:
                status = self._moved(status, seconds)
            elif self._only_terminal:
                return
            elif (line := lines.line(self._text, seconds)) is not None:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if status is not None:
            status.stop()

    def _moved(self, status: Status | None, seconds: float) -> Status | None:
        from rich.text import Text

        if status is None and seconds < _TERMINAL_SECONDS:
            return None
        text = Text(with_time(self._text, seconds), no_wrap=True, overflow="ellipsis")
        if status is None:
            status = self._console.status(text)
            status.start()
        status.update(text)
        return status
