"""Shows the progress of steps that take a while.

On a terminal, a single line describes the step and the seconds so far, and disappears at the end of
the step. If stderr is not a terminal, each new description of the step is written as a plain line.
A step that counts records has a bar and a rate, but only on a terminal. With --quiet, nothing is
shown.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING

from kappa.base.units import growth
from kappa.commands.terminal.output import is_quiet, talk

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

_LOOK_SECONDS = 0.2
# A line that appears sooner would only flicker.
_TERMINAL_SECONDS = 0.3
_FIRST_SECONDS = 2.0
_COUNT = re.compile(r"\d[\d,.]*")


class PlainLines:
    """The lines that describe a step if stderr is not a terminal: one line for each new state."""

    def __init__(self) -> None:
        """Creates the object at the beginning of a step, before any line is written."""
        self._states: set[str] = set()

    def line(self, text: str, seconds: float) -> str | None:
        """Returns the line to write now, or None if no line is needed.

        `text` describes the step, and `seconds` is the duration of the step so far. No line is
        needed in the first two seconds, or if a line was already written for the same state. Texts
        that differ only in their counts describe the same state.
        """
        state = _COUNT.sub("", text)
        if seconds < _FIRST_SECONDS or state in self._states:
            return None
        self._states.add(state)
        return text


@contextlib.contextmanager
def moving(
    text: str, *, on_terminal: bool = False, console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """Shows the text of a step, with the seconds so far, on stderr while the block runs.

    With `on_terminal`, the step is shown only if stderr is a terminal. Yields a function that
    changes the text of the step.
    """
    if is_quiet() or (on_terminal and not sys.stderr.isatty()):
        yield lambda text: None  # noqa: ARG005  # nobody looks
        return
    step = _Step(text, console)
    thread = Thread(target=step.run, name="moving", daemon=True)
    thread.start()
    try:
        yield step.update
    finally:
        step.over.set()
        thread.join()


class _Step:
    def __init__(self, text: str, console: Console | None) -> None:
        self.over = Event()
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
        """Shows the text of the step until the step is over."""
        # A terminal that is gone must not stop the command.
        with contextlib.suppress(OSError, ValueError):
            self._show()

    def _show(self) -> None:
        lines, status = PlainLines(), None
        while not self.over.wait(_LOOK_SECONDS):
            seconds = time.monotonic() - self._began
            if self._console.is_terminal:
                status = self._moved(status, seconds)
            elif (line := lines.line(self._text, seconds)) is not None:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        if status is not None:
            status.stop()

    def _moved(self, status: Status | None, seconds: float) -> Status | None:
        from rich.text import Text

        if status is None and seconds < _TERMINAL_SECONDS:
            return None
        text = Text(f"{self._text} ({seconds:,.0f} s)", no_wrap=True, overflow="ellipsis")
        if status is None:
            status = self._console.status(text)
            status.start()
        status.update(text)
        return status


@contextlib.contextmanager
def bar(
    text: str, total: int | None, *, console: Console | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on stderr while the block runs, if stderr is a terminal.

    Yields a function. Call this function with the number of records acknowledged so far, and the
    part of `total` that has been read. If `total` is None, the bar shows activity without a
    percentage. The bar disappears at the end of the block. With --quiet, no bar is shown.
    """
    on = talk() if console is None else console
    if is_quiet() or not on.is_terminal:
        yield lambda count, taken: None  # noqa: ARG005  # nobody looks
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=on, transient=True) as progress:
        task = progress.add_task(text, total=total)

        def show(count: int, taken: int) -> None:
            rate = growth(0, count, max(time.monotonic() - began, 0.001))
            progress.update(
                task,
                completed=taken,
                description=f"{text}: {count:,} acknowledged, {rate:,.0f} a second",
            )

        yield show
