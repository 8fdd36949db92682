"""The command `kappa init`: it makes a project from a template."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from kappa.base.errors import UsageError
from kappa.commands.terminal.options import here_of


def init(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="the folder to make; . is this folder")],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            help="the template: ab-test, ads, cdc, connect, empty, facts, fraud, iot, learner, "
            "operations, page-hits, recommend, searches, sessions, shop or trending",
        ),
    ] = "page-hits",
) -> None:
    """Make a project: a pipeline, sample events, tests, a board, and notes for CI and assistants.

    Existing files are never changed: if one of the files exists, nothing is written.
    """
    from kappa.code.new_project import create_project, next_commands

    here = here_of(context)
    if here.root_flag is not None:
        raise UsageError(
            "a new project has no root yet, so --root names none",
            hint="make the project first, then set root in its kappa.toml",
        )
    written = create_project(name, template, beside=here.start)
    folder = here.start / name
    goes = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    lines = [
        f"made from template {template}:",
        *(f"  {path}" for path in written),
        "",
        "next:",
        *(f"  {command}" for command in (*goes, *next_commands(template))),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
