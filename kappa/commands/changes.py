"""The command `kappa changes`: prints all rows of a served table, and then each net change."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kappa.commands.terminal.options import here_of
from kappa.commands.terminal.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kappa.serving.outlets.changes.change_set import ChangeSet, RowChange
    from kappa.serving.outlets.changes.filter import Filter

_WAIT_SECONDS = 1.0
_SIGNS = {"insert": "+", "update": "~", "delete": "-"}


class ChangesForm(StrEnum):
    """The format in which changes are printed."""

    TEXT = "text"
    JSONL = "jsonl"


def changes(
    context: typer.Context,
    table: Annotated[str, typer.Argument(help="a served table, or maintained view")],
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="keep printing each change as it is served")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="CURSOR",
            help="continue after this cursor, the last line of a change set; without a cursor, all "
            "rows come first",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="only rows that meet a condition on columns; a row that begins to meet it is "
            "inserted, and a row that ceases to meet it is deleted",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="COLUMN,...", help="only these columns, and the keys"),
    ] = None,
    output: Annotated[
        ChangesForm, typer.Option("-o", "--output", help="the form of the output")
    ] = ChangesForm.TEXT,
) -> None:
    """Print a table's rows, and then its net changes, also across promotes and undos.

    With -o jsonl, each change set is printed as a line with its head (begin), a line for each
    change, and a line with its cursor (commit).
    """
    from kappa.project.project import Project
    from kappa.serving.outlets.changes.cursor import Cursor
    from kappa.serving.outlets.changes.filter import filter_of

    follower = Project(here_of(context)).follower(
        table,
        since=None if since is None else Cursor.parse(since),
        chosen=filter_of(columns, where),
    )
    write = _write_lines if output is ChangesForm.JSONL else _write_text
    served = True
    while True:
        with follower.next_change_set() as change_set:
            if change_set is not None:
                write(change_set, follower.chosen)
                sys.stdout.flush()
        if served != follower.is_served:
            served = follower.is_served
            say(f"{table} is served{' again' if served else ' no more: kappa history says why'}")
        if not follow:
            return
        while not follower.wait_for_change(_WAIT_SECONDS):
            pass


def _write_lines(change_set: ChangeSet, chosen: Filter | None) -> None:
    head = {**change_set.head.as_document(chosen), "changes": asdict(change_set.counts(chosen))}
    print(json.dumps({"begin": head}, ensure_ascii=False))
    for line in change_set.json_lines(chosen):
        print(line)
    print(json.dumps({"commit": str(change_set.head.cursor)}))


def _write_text(change_set: ChangeSet, chosen: Filter | None) -> None:
    head, counts = change_set.head, change_set.counts(chosen)
    if head.starts_over or counts.row_count or str(head.kind) != "slice":
        build = f"generation {head.cursor.generation}, build {head.cursor.build}"
        say(f"{head.kind} of {head.table}: {counts} ({build}, at {head.offsets})")
    for change in change_set.rows(chosen):
        print(change_text(change))
    say(f"cursor {head.cursor}")


def change_text(change: RowChange) -> str:
    """Formats a change as a line of text: a sign, and then the row's columns with their values."""
    from kappa.serving.query.render import cell_text

    before, after = change.before, change.after
    row: Mapping[str, Any] = after if after is not None else before or {}
    parts = []
    for name, value in row.items():
        old = value if before is None or after is None else before.get(name)
        # A NaN, or a list with one, is not equal to itself in Python.
        is_other = old != value and repr(old) != repr(value)
        changed = f"{cell_text(old)} → " if is_other else ""
        parts.append(f"{name}={changed}{cell_text(value)}")
    times = f" ({change.times} times)" if change.times > 1 else ""
    return f"{_SIGNS[change.op]} {' '.join(parts)}{times}"
