"""Formats a run of the project on its samples as lines for display, each with a style.

All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from kappa.base.units import count_of
from kappa.develop.row_changes import Row, TableChange
from kappa.develop.sample_runs import PipelineRun, ProjectRun
from kappa.replay.rollout.plan.plan import Refusal
from kappa.serving.query.render import cell_text

# In brief: the rows of each kind of a table's change, and the characters of a value.
_FEW_ROWS = 5
_LONGEST = 60


class Style(StrEnum):
    """The style of a line, which decides its colour on a terminal."""

    PLAIN = ""
    TITLE = "bold"
    ADDED = "green"
    REMOVED = "red"
    CHANGED = "yellow"
    REFUSED = "bold red"
    DIM = "dim"


Line = tuple[Style, str]


def run_lines(run: ProjectRun, folder: Path, *, in_full: bool = False) -> Iterator[Line]:
    """Yields the lines of a run: the plan, the rows that change, and the refusals.

    A path in `folder` is shown relative to `folder`. Unless `in_full` is True, only a few added,
    removed and changed rows are shown per table.
    """
    refused = {each.pipeline for each in run.refusals}
    for pipeline in run.pipelines:
        if not pipeline.same or pipeline.name in refused:
            yield from _pipeline_lines(pipeline, in_full=in_full)
    for name in run.gone:
        yield (
            Style.REMOVED,
            f"{name}: gone, no file declares it; boards are checked at the next run",
        )
    for refusal in run.refusals:
        yield from _refusal_lines(refusal, folder)
    same = [each.name for each in run.pipelines if each.same and each.name not in refused]
    if same:
        yield Style.DIM, f"unchanged: {', '.join(same)}"
    if not run.pipelines and not run.refusals:
        yield (
            Style.PLAIN,
            "no pipeline is declared: each is a file in pipelines/, beside kappa.toml",
        )


def _pipeline_lines(run: PipelineRun, *, in_full: bool) -> Iterator[Line]:
    first, *others = run.plan
    yield Style.TITLE, f"{run.name}: {first}"
    for line in others:
        yield Style.PLAIN, f"  {line}"
    if run.changes:
        yield Style.DIM, f"  sample: {'; '.join(each.text for each in run.samples)}"
    same = [each for each in run.changes if each.is_none]
    for change in run.changes:
        if not change.is_none:
            yield from change_lines(change, in_full=in_full)
    if same:
        names = ", ".join(f"{each.table} ({count_of(each.rows, 'row')})" for each in same)
        yield Style.DIM, f"  no row changes: {names}"


def change_lines(change: TableChange, *, in_full: bool) -> Iterator[Line]:
    """Yields the lines that describe the change of a table.

    Unless `in_full` is True, only a few added, removed and changed rows are shown.
    """
    yield Style.PLAIN, f"  {change.table}: {_counts(change)}"
    marked = (
        (
            Style.PLAIN if change.is_new else Style.ADDED,
            " " if change.is_new else "+",
            change.added,
        ),
        (Style.REMOVED, "-", change.removed),
    )
    most = None if in_full else _FEW_ROWS
    for style, mark, rows in marked:
        for row in rows[:most]:
            yield style, f"    {mark} {_row_text(row, row, in_full=in_full)}"
        yield from _more(rows, most, style)
    for before, after in change.changed[:most]:
        yield Style.CHANGED, f"    ~ {_changed_text(before, after, change.keys, in_full=in_full)}"
    yield from _more(change.changed, most, Style.CHANGED)


def _more(rows: Sequence[object], most: int | None, style: Style) -> Iterator[Line]:
    if most is not None and len(rows) > most:
        yield style, f"      and {len(rows) - most:,} more"


def _counts(change: TableChange) -> str:
    if change.is_gone:
        return "the table goes"
    found = [
        f"{len(rows):,} {what}"
        for what, rows in (
            ("added", change.added),
            ("removed", change.removed),
            ("changed", change.changed),
        )
        if rows and not change.is_new
    ]
    return ", ".join([count_of(change.rows, "row"), *found])


def _changed_text(before: Row, after: Row, keys: Iterable[str], *, in_full: bool) -> str:
    columns = [name for name in dict.fromkeys([*before, *after]) if name not in keys]
    differing = [
        f"{name} {_side(before, name, in_full=in_full)} -> {_side(after, name, in_full=in_full)}"
        for name in columns
        if name not in before
        or name not in after
        or cell_text(before[name]) != cell_text(after[name])
    ]
    return f"{_row_text(after, keys, in_full=in_full)}: {', '.join(differing)}"


def _side(row: Row, name: str, *, in_full: bool) -> str:
    return _value_text(row[name], in_full=in_full) if name in row else "(no column)"


def _row_text(row: Row, names: Iterable[str], *, in_full: bool) -> str:
    return " ".join(f"{name}={_value_text(row[name], in_full=in_full)}" for name in names)


def _value_text(value: Any, *, in_full: bool) -> str:
    text = cell_text(value)
    return text if in_full or len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _refusal_lines(refusal: Refusal, folder: Path) -> Iterator[Line]:
    message = refusal.message.replace(f"{folder}/", "")
    yield Style.REFUSED, f"error: {message}"
    if refusal.hint:
        yield Style.PLAIN, f"  hint: {refusal.hint.replace(f'{folder}/', '')}"
