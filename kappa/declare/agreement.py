"""The agreement of one pipeline's declarations with one another. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.alert import Alert
from kappa.declare.formats.changes import check_operation
from kappa.declare.formats.named import changes_of
from kappa.declare.options import REJECTS
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.topic_kind import TopicKind
from kappa.declare.view import View

Outlets = tuple[Sink | Alert, ...]


def check_patterns(tables: Iterable[Table]) -> None:
    """Raises DeclarationError if a table is the latest of a pattern's topics."""
    for table in tables:
        if table.latest is not None and table.latest.pattern is not None:
            raise DeclarationError(
                f"{table.source}: table {table.name} is the latest of the pattern "
                f"{table.latest.pattern}, whose topics have no order between them",
                hint="make it of one topic, declared by its name",
            )


def check_outlets(
    pipeline: str,
    outlets: Outlets,
    tables: Iterable[Table],
    views: Iterable[View],
    topics: Iterable[Topic],
) -> None:
    """Raises DeclarationError, with the line, for a sink or alert unlike its pipeline.

    What it follows must be a table or maintained view of the pipeline, and have keys for a sink.
    """
    stored = {table.name: bool(table.keys) or table.latest is not None for table in tables}
    computed = {view.name for view in views if not view.is_maintained}
    stored |= {view.name: bool(view.keys) for view in views if view.is_maintained}
    read = {topic.name for topic in topics}
    known = dict[str, Sink | Alert]()
    for each in outlets:
        what = f"{each.source}: {each.part}"
        if (other := known.setdefault(each.part, each)) is not each:
            raise DeclarationError(
                f"{what} is declared twice by pipeline {pipeline}, first at {other.source}",
                hint="give one of them another topic"
                if isinstance(each, Sink)
                else "give one of them another name",
            )
        if each.of in computed:
            raise DeclarationError(
                f"{what} is of view {each.of}, which is computed when it is read, so it has no"
                " changes",
                hint=f'let it be maintained: View("{each.of}", ..., keys=[...])',
            )
        if each.of not in stored:
            raise DeclarationError(
                f"{what} is of {each.of}, which is no table of pipeline {pipeline}",
                hint=_near(each.of, stored),
            )
        if isinstance(each, Sink):
            _check_sink(what, each, read, has_keys=stored[each.of])


def _check_sink(what: str, sink: Sink, read: set[str], *, has_keys: bool) -> None:
    if not has_keys:
        raise DeclarationError(
            f"{what} is of {sink.of}, which has no keys, and a compacted topic has a record"
            " for each key",
            hint=f"give {sink.of} keys, or let a maintained view with keys select its rows",
        )
    if sink.name in read:
        raise DeclarationError(
            f"{what} goes to a topic that its own pipeline reads",
            hint="give the sink a topic of its own",
        )


def _near(name: str, stored: Iterable[str]) -> str:
    there = sorted({*stored} - {REJECTS})
    near = difflib.get_close_matches(name, there, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(there)}"


def check_expiries(pipeline: str, tables: Iterable[Table], topics: Iterable[Topic]) -> None:
    """Raises DeclarationError if rows expire by the clock of a log that compaction thins out."""
    expiring = next((table for table in tables if table.expiry is not None), None)
    if expiring is not None and all(topic.kind is TopicKind.COMPACTED for topic in topics):
        raise DeclarationError(
            f"{expiring.source}: the rows of table {expiring.name} expire by the log's clock, and "
            f"pipeline {pipeline} reads compacted topics alone, of which compaction takes records",
            hint="leave expire and after out; or have the pipeline read a retained topic",
        )


def check_input(source: Source, pipeline: str, topic: Topic) -> None:
    """Raises DeclarationError if a pipeline's function cannot take the rows of a topic."""
    if topic.kind is TopicKind.COMPACTED:
        raise DeclarationError(
            f"{source}: pipeline {pipeline} folds the compacted topic {topic.name}, "
            "whose history cannot be replayed",
            hint=f"use it in a table: Table(..., latest={topic.name}), joined in a View; "
            "or make the topic retained",
        )
    if (form := changes_of(topic.format)) is not None:
        columns = {column.name for column in topic.columns}
        check_operation(source, pipeline, topic.name, form, columns)
