"""The terminal: stdout has the answer; talk, questions and errors are on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

import typer

from kappa.base.errors import ConsentNeeded, KappaError
from kappa.serving.query.render import Form, Listing, printable_text, render_listing

if TYPE_CHECKING:
    from rich.console import Console


_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "red")


def say(text: str) -> None:
    """Writes a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def console(*, stderr: bool) -> Console:
    """Returns Rich's console for stderr or stdout."""
    from rich.console import Console

    return Console(stderr=stderr)


def talk() -> Console:
    """Returns the console for progress, on stderr."""
    return console(stderr=True)


def print_listing(
    form: Form, listing: Listing, *, document: object = None, heading: str = ""
) -> None:
    """Writes a listing to stdout in the requested form."""
    sys.stdout.write(render_listing(form, listing, document=document, heading=heading))


def write_bytes(content: bytes) -> None:
    """Writes bytes of a log to stdout, and escapes bytes that are no UTF-8."""
    sys.stdout.write(content.decode(errors="backslashreplace"))
    sys.stdout.flush()


class LinePrefixes:
    """The lines of several processes on stdout: each begins with its process, in a colour."""

    def __init__(self, width: int) -> None:
        """Begins without a process; names are padded to a width."""
        self._width = width
        self._colours: dict[str, str] = {}

    def write(self, name: str, content: bytes) -> None:
        """Writes the lines of a process, and escapes bytes that are no UTF-8."""
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        prefix = f"{name.ljust(self._width)} | "
        if has_colours(sys.stdout):
            prefix = typer.style(prefix, fg=colour)
        lines = content.splitlines(keepends=True)
        write_bytes(b"".join(prefix.encode() + line for line in lines))


def has_colours(stream: TextIO | None) -> bool:
    """Returns True for a terminal that shows colours, unless the user wants none."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain


def show_failure(error: KappaError) -> int:
    """Writes an error with its hint to stderr. Returns the exit code."""
    say(printable_text(f"error: {error.message}"))
    if error.hint:
        say(printable_text(f"hint: {error.hint}"))
    return error.exit_code


def typed(command: str, pipeline: str | None) -> str:
    """Returns a command as a user would type the command."""
    return command if pipeline is None else f"{command} {pipeline}"


def ask_consent(
    command: str,
    *,
    yes: bool,
    question: str = "go on?",
    what: str = "this changes what serves",
    undone: str = "what serves was not changed",
) -> None:
    """Asks for consent once, on a terminal, unless `yes` was given.

    Raises ConsentNeeded if the answer is no, or if there is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConsentNeeded(
            f"{what}, and there is no terminal to ask on", hint=f"to go on: kappa {command} --yes"
        )
    if not typer.confirm(question, err=True):
        raise ConsentNeeded(undone, hint=f"to go on: kappa {command}")
