"""The command `kappa export`: copies served tables to a folder, for other engines."""

from __future__ import annotations

import time
from contextlib import nullcontext
from threading import Event
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.commands.terminal.options import Quiet, here_of
from kappa.commands.terminal.output import say
from kappa.commands.terminal.progress import moving

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext
    from kappa.serving.outlets.export.exporter import CopiedTable, ExportSwitch

_LONGEST_PAUSE = 60.0


def export(
    context: typer.Context,
    tables: Annotated[
        list[str], typer.Argument(metavar="TABLE...", help="served tables, or maintained views")
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="an empty folder, the folder of the last export, or s3://BUCKET/PREFIX",
        ),
    ],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="keep the copies as the tables are served")
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0, help="the shortest time between copies"),
    ] = 10.0,
    iceberg: Annotated[
        bool,
        typer.Option(
            "--iceberg", help="as Iceberg tables, too, over the same files; needs kappa[iceberg]"
        ),
    ] = False,
    _quiet: Quiet = False,
) -> None:
    """Copy served tables to a folder, as plain Delta tables for Spark, Trino, Polars and others.

    Each copy is at FOLDER/TABLE, and has exactly the rows that readers see. All copies are of one
    snapshot, which the file FOLDER/kappa-export.json describes. Replaced files stay for an hour.
    """
    from kappa.base.errors import KappaError
    from kappa.base.process import set_by_interrupt
    from kappa.project.project import Project

    here = here_of(context)
    with (
        # A library that is interrupted half way may swallow Ctrl-C, or wait for ever at the end.
        set_by_interrupt() if follow else nullcontext(Event()) as ended,
        Project(here).exporter(*tables, to=to, iceberg=iceberg) as exporter,
    ):
        say(_cost_text(here, tables, to, every if follow else None))
        failed, pause = "", 0.0
        while not ended.wait(pause):
            began = time.monotonic()
            try:
                with moving("copying"):
                    switch = exporter.next_switch()
                    exporter.tidy()
            except KappaError as error:
                if not follow:
                    raise
                if str(error) != failed:
                    failed = str(error)
                    say(f"{error}; the copies stay as they are, and it is tried again")
                pause = min(_LONGEST_PAUSE, max(every, 1.0))
                continue
            failed = ""
            if switch is not None:
                say(_switch_text(switch))
            elif not follow:
                say("the copies are as served already")
            if not follow:
                return
            pause = max(0.05, every - (time.monotonic() - began))
    raise KeyboardInterrupt


def _cost_text(here: ProjectContext, tables: list[str], to: str, every: float | None) -> str:
    """Describes in a sentence how many bytes the copies of served tables will have.

    `every` is the shortest time between copies in seconds, or None for a single copy.
    """
    from kappa.base.units import size
    from kappa.serving.query.tables import served_table

    sizes = {
        name: served_table(here.store, name, lease_seconds=here.lease_seconds)[1].bytes
        for name in tables
    }
    total = size(sum(sizes.values()))
    often = "once" if every is None else f"at each change, at most every {every:g} s"
    return (
        f"copies {', '.join(tables)} to {to} {often}: about {total} of files, and for an hour the "
        "files that a change replaces; a promote or an undo writes all rows anew"
    )


def _switch_text(switch: ExportSwitch) -> str:
    versions = switch.record.tables
    parts = (
        f"{each.name} {_copied_text(each)} (version {versions[each.name].version})"
        for each in switch.tables
    )
    return f"switched to generation {switch.record.generation}: {', '.join(parts)}"


def _copied_text(table: CopiedTable) -> str:
    from kappa.base.units import count_of

    if table.kind == "same":
        return "as before"
    rows = count_of(table.rows, "row")
    return f"written anew, {rows}" if table.kind == "anew" else f"{rows} changed"
