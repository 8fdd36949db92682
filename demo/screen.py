"""Prints the output of the story: headings, sentences, a live line during waits, findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.syntax import Syntax

from demo.judgement.reckoning import Finding

# Without a terminal to draw on, the live line is printed now and then.
_PRINT_SECONDS = 10.0
_DRAW_SECONDS = 0.25


class Screen:
    """The output of the story, on a terminal or in a file."""

    def __init__(self, console: Console) -> None:
        """Stores the console. The story's time begins now."""
        self.console = console
        self._begun = time.monotonic()

    def heading(self, text: str) -> None:
        """Prints the heading of an act."""
        self.console.print()
        self.console.print(
            Rule(f"[bold]{escape(text)}[/bold]  [dim]{self.elapsed:.0f} s[/dim]", align="left")
        )

    def say(self, text: str) -> None:
        """Prints a sentence."""
        self.console.print(f"[cyan]{escape(text)}[/cyan]", highlight=False, soft_wrap=True)

    def code(self, text: str, language: str) -> None:
        """Prints a piece of a file with syntax highlighting."""
        self.console.print(Syntax(text, language, background_color="default", word_wrap=True))

    @property
    def elapsed(self) -> float:
        """Returns the seconds since the story began."""
        return time.monotonic() - self._begun

    @contextmanager
    def _live(self) -> Iterator[Callable[[str], None]]:
        if self.console.is_terminal:
            with self.console.status("") as status:
                yield lambda text: status.update(escape(text))
            return
        printed = [time.monotonic()]

        def show(text: str) -> None:
            if time.monotonic() - printed[0] >= _PRINT_SECONDS:
                printed[0] = time.monotonic()
                self.console.print(text, highlight=False, soft_wrap=True)

        yield show

    def wait(
        self, until: Callable[[], bool], line: Callable[[], str], *, patience_seconds: float
    ) -> bool:
        """Displays a line, and updates it, until `until` returns True.

        `line` returns the text to display. Returns False if `until` has not returned True after
        `patience_seconds`.
        """
        deadline = time.monotonic() + patience_seconds
        with self._live() as show:
            while not until():
                if time.monotonic() > deadline:
                    return False
                show(line())
                time.sleep(_DRAW_SECONDS)
        return True

    def findings(self, findings: Sequence[Finding]) -> None:
        """Prints the findings: each condition, whether it was met, and the observation."""
        for finding in findings:
            mark = "[green]yes[/green]" if finding.held else "[bold red]NO [/bold red]"
            self.console.print(
                f"{mark}  {escape(finding.what)}: [dim]{escape(finding.seen)}[/dim]",
                highlight=False,
                soft_wrap=True,
            )
