"""The command `kappa attach`: a snippet with which another tool reads a served table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import UsageError, near_or_all
from kappa.commands.snippets import Tool
from kappa.commands.terminal.options import here_of

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext

_NONE_SERVED = "nothing is served yet: kappa deploy"


def attach(
    context: typer.Context,
    tool: Annotated[Tool, typer.Argument(show_default=False, help="the tool that reads")],
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="[TABLE]", show_default=False, help="a served table; the first, if left out"
        ),
    ] = None,
) -> None:
    """Print a program with which another tool reads a served table.

    Save the program in a file, and run the file with Python: `kappa attach polars page_hits >
    read.py`. For a notebook it is an .ipynb file, and for dbt the file of a source.
    """
    from kappa.commands.snippets import snippet_of

    here = here_of(context)
    sys.stdout.write(
        snippet_of(tool, _table_named(here, table, tool), project=str(here.settings.project))
    )


def _table_named(here: ProjectContext, name: str | None, tool: Tool) -> str:
    """Returns the name of a served table whose files the tool can read."""
    from kappa.declare.options import REJECTS
    from kappa.state.build import read_birth
    from kappa.state.journal.events import GenerationMade
    from kappa.state.journal.journal import JournalView

    _, record = JournalView(here.store).last_served()
    event = None if record is None else record.event
    serving = event.serving if isinstance(event, GenerationMade) else {}
    births = [read_birth(here.store, build) for _, build in sorted(serving.items())]
    tables = [each.name for birth in births for each in birth.tables if each.name != REJECTS]
    views = [view for birth in births for view in birth.views]
    if name is None:
        if not tables:
            raise UsageError("no table is served", hint=_NONE_SERVED)
        return tables[0]
    if name in views and tool is not Tool.DBT:
        raise UsageError(
            f"{name} is a view, which is computed at reading and has no files",
            hint=f'kappa query "from {name}" --out {name}.parquet',
        )
    if name not in {*tables, *views}:
        raise UsageError(
            f"no pipeline serves a table {name}",
            hint=near_or_all(name, [*tables, *views], none=_NONE_SERVED),
        )
    return name
