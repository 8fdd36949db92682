"""The command `kappa init`: it makes a project from a template."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[
        str, typer.Argument(help="the folder to make; . is this folder", show_default=False)
    ],
    template: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            help="what the project begins with: ads, cdc, connect, empty, fraud, iot, page-hits, "
            "searches, sessions, shop or trending",
        ),
    ] = "page-hits",
) -> None:
    """Make a project: a pipeline, sample events, tests, a board, and notes for CI and assistants.

    Files that exist are never changed: if one of them is there, nothing is written.
    """
    from kappa.code.new_project import create_project, next_commands

    written = create_project(name, template)
    goes = [] if Path(name) == Path() else [f"cd {shlex.quote(name)}"]
    lines = [
        f"made from template {template}:",
        *(f"  {path}" for path in written),
        "",
        "next:",
        *(f"  {command}" for command in (*goes, *next_commands(template))),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
