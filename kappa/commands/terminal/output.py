"""The output of commands: answers on stdout; messages, questions and errors on stderr."""

from __future__ import annotations

import shutil
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

import typer

from kappa.base.errors import ConsentNeeded, KappaError, UsageError
from kappa.commands.terminal.colour import (
    coloured,
    has_colour,
    paint_failure,
    paint_heading,
    paint_plan,
    paint_state,
)
from kappa.serving.query.render import Form, Listing, printable_text, render_listing

if TYPE_CHECKING:
    from rich.console import Console

    from kappa.declare.topic import Topic
    from kappa.project.report import Report
    from kappa.replay.rollout.plan.plan import Plan
    from kappa.replay.status.context import ProjectContext


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


def set_quiet(quiet: bool) -> None:
    """Sets whether this command hides its progress, as the option --quiet does."""
    _quiet.set(quiet)


def is_quiet() -> bool:
    """Returns True if the option --quiet hides the progress of the command."""
    return _quiet.get()


# Cyan, yellow, green, magenta, blue, red.
_COLOURS = ("36", "33", "32", "35", "34", "31")


def say(text: str) -> None:
    """Writes a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def console(*, stderr: bool) -> Console:
    """Returns Rich's console for stderr or stdout."""
    from rich.console import Console

    return Console(stderr=stderr)


def talk() -> Console:
    """Returns the console for progress messages, on stderr."""
    return console(stderr=True)


def print_listing(
    form: Form, listing: Listing, *, document: object = None, heading: str = ""
) -> None:
    """Writes a listing to stdout in the requested format."""
    sys.stdout.write(rendered(form, listing, document=document, heading=heading))


def print_report(form: Form, report: Report) -> None:
    """Writes a report to stdout in the requested format."""
    print_listing(form, report.listing, document=report.document, heading=report.heading)


def rendered(form: Form, listing: Listing, *, document: object = None, heading: str = "") -> str:
    """Renders a listing in the requested format, as text for stdout.

    The text of a table has colours and the width of the terminal if stdout is a terminal.
    `document` replaces the rows if the format is JSON. `heading` is the text above the table.
    """
    is_terminal = form is Form.TABLE and sys.stdout.isatty()
    is_coloured = form is Form.TABLE and has_colour(sys.stdout)
    return render_listing(
        form,
        listing,
        document=document,
        heading=paint_heading(heading) if is_coloured else heading,
        width=shutil.get_terminal_size().columns if is_terminal else None,
        paint=paint_state if is_coloured else None,
    )


def print_plan(plan: Plan, stream: TextIO) -> None:
    """Writes a plan as text, with colours if the stream is a terminal."""
    from kappa.replay.rollout.plan.plan_text import plan_text

    text = plan_text(plan)
    stream.write(paint_plan(text) if has_colour(stream) else text)
    stream.flush()


def readable_topics(here: ProjectContext) -> dict[str, Topic]:
    """Returns the topics that the project declares, by name.

    If a file cannot be loaded, its topics are missing, and an error message is written to stderr.
    """
    for path, error in here.loadable.refused.items():
        say(f"{path} cannot be loaded, and its topics are not known: {error.message}")
    return here.loadable_topics


def write_bytes(content: bytes) -> None:
    """Writes bytes of a log to stdout. Bytes that are not UTF-8 are escaped."""
    sys.stdout.write(content.decode(errors="backslashreplace"))
    sys.stdout.flush()


class LinePrefixes:
    """A writer of the log lines of several processes to stdout.

    Before each line, it writes the name of the process, in a colour of the process.
    """

    def __init__(self, width: int) -> None:
        """Creates a writer whose prefixes are at least `width` characters wide."""
        self._width = width
        self._colours: dict[str, str] = {}

    def write(self, name: str, content: bytes) -> None:
        """Writes lines of the process `name` to stdout. Bytes that are not UTF-8 are escaped."""
        colour = self._colours.setdefault(name, _COLOURS[len(self._colours) % len(_COLOURS)])
        prefix = f"{name.ljust(self._width)} | "
        if has_colour(sys.stdout):
            prefix = coloured(prefix, colour)
        lines = content.splitlines(keepends=True)
        write_bytes(b"".join(prefix.encode() + line for line in lines))


def show_failure(error: KappaError) -> int:
    """Writes an error and its hint to stderr, and returns the exit code of the error.

    If the error contains several mistakes, all of them are written.
    """
    for each in error.each if isinstance(error, UsageError) else (error,):
        message, hint = (
            paint_failure(printable_text(each.message), printable_text(each.hint or ""))
            if has_colour(sys.stderr)
            else (printable_text(f"error: {each.message}"), printable_text(f"hint: {each.hint}"))
        )
        say(message)
        if each.hint:
            say(hint)
    return error.exit_code


def typed(command: str, pipeline: str | None) -> str:
    """Returns a command as a user would type it.

    The result is `command`, followed by `pipeline` if `pipeline` is not None.
    """
    return command if pipeline is None else f"{command} {pipeline}"


def ask_consent(
    command: str,
    *,
    yes: bool,
    question: str = "go on?",
    what: str = "this changes what serves",
    undone: str = "what serves was not changed",
) -> None:
    """Asks the user a yes-no question on the terminal, unless `yes` is True.

    `command` is the command as typed, for the hint. If the answer is no, raises ConsentNeeded with
    the message `undone`. If there is no terminal, raises ConsentNeeded with a message that begins
    with `what`.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConsentNeeded(
            f"{what}, and there is no terminal to ask on",
            hint=f"to continue: kappa {command} --yes",
        )
    if not typer.confirm(question, err=True):
        raise ConsentNeeded(undone, hint=f"to continue: kappa {command}")
