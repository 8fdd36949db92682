"""The help of commands: an example, the usage, the text, and the commands in panels.

The help is plain text. The library Rich is not used for three reasons. Rich would interpret
`[collect]` in a sentence as markup. It would break the lines of a paragraph where the source breaks
them. And importing Rich takes longer than importing all other modules of the help.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from kappa.base.errors import UsageError, did_you_mean
from kappa.commands.examples import EXAMPLES, OF_PANEL
from kappa.commands.terminal.colour import has_colour

Function = TypeVar("Function", bound=Callable[..., Any])

# Typer has no public names for the types of a context and of a formatter.
_WIDTH = 100
_OTHERS = "Commands"


class CommandHelp(TyperCommand):
    """A command whose help begins with an example."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of a command: the example, the usage, the text and the options."""
        _write_example(ctx, formatter)
        super().format_help(ctx, formatter)


class GroupHelp(TyperGroup):
    """A group of commands that prints its help if no command of the group is given.

    The help shows the commands in panels.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments of the group. Prints the help if there are no arguments."""
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the command that the arguments name, in the form that Typer expects.

        Raises UsageError, with the most similar name, if there is no command with that name.
        """
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            raise no_command(args[0], self.commands, ctx.command_path)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Writes the help of a group: example, usage, text, options and commands."""
        _write_example(ctx, formatter)
        super().format_help(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # Typer's
        """Writes a section for each panel, with the panel's commands.

        If an example is defined for the panel, the section ends with the example.
        """
        shown = {name: each for name, each in self.commands.items() if not each.hidden}
        width = max(map(len, shown), default=0)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in shown.items():
            panel = getattr(command, "rich_help_panel", None)
            row = typer.style(name.ljust(width), fg="cyan"), _first_sentence(command.help)
            panels.setdefault(panel if isinstance(panel, str) else _OTHERS, []).append(row)
        for panel, rows in panels.items():
            with formatter.section(typer.style(panel, bold=True)):
                formatter.write_dl(rows)
                if panel in OF_PANEL:
                    formatter.write_paragraph()
                    formatter.write_text(f"Example: {EXAMPLES[OF_PANEL[panel]]}")


class Commands(typer.Typer):
    """A group of commands, each with an example. Without a command, the group prints the help."""

    def __init__(self, *, text: str, cls: type[GroupHelp] = GroupHelp, **options: Any) -> None:
        super().__init__(
            cls=cls,
            help=text,
            rich_markup_mode=None,
            add_completion=False,
            pretty_exceptions_enable=False,
            context_settings={
                "help_option_names": ["-h", "--help"],
                "max_content_width": _WIDTH,
                "color": has_colour(sys.stdout),
            },
            **options,
        )

    def command(self, name: str | None = None, **options: Any) -> Callable[[Function], Function]:
        """Returns a decorator that adds a function as a command.

        The help of the command begins with an example.
        """
        return super().command(name, cls=CommandHelp, **options)


def no_command(name: str, known: Iterable[str], path: str) -> UsageError:
    """Creates the error for an unknown command, with the most similar name as the hint.

    `path` is the command line up to the unknown name.
    """
    near = did_you_mean(name, known)
    return UsageError(f"No such command '{name}' of {path}", hint=f"{near} {path} --help".lstrip())


def _write_example(ctx: Any, formatter: Any) -> None:
    example = EXAMPLES.get(ctx.command_path.partition(" ")[2])
    if example is not None:
        formatter.write(f"Example: {typer.style(example, bold=True)}\n\n")


def _first_sentence(text: str | None) -> str:
    """Returns the first sentence of a command's help text, on one line."""
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return f"{paragraph.partition('. ')[0].rstrip('.')}."
