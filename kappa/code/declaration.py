"""A pipeline's declared topics, tables, views and outlets, as comparable lines. Pure.

The lines contain all declarations that the fingerprint counts (fingerprint.py), under the same
names. So every change of a version can be shown as a diff. A birth certificate keeps the lines,
since values that code computes cannot be read from the code's source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kappa.base.units import exact_duration
from kappa.declare.alert import OPS, Alert
from kappa.declare.folds.exactness import Exactness
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.view import View

_IDENTITY = "identity "
_CHANGES = "format debezium-"


def declaration_lines(pipeline: Pipeline) -> Mapping[str, str]:
    """Returns the lines of each declared part, by the part's name: `table delays` -> lines."""
    topics = {
        f"topic {topic.name}": "\n".join(_topic_lines(topic, pipeline)) for topic in pipeline.topics
    }
    tables = {f"table {table.name}": "\n".join(_table_lines(table)) for table in pipeline.tables}
    views = {view.part_name: "\n".join(_view_lines(view)) for view in pipeline.views}
    outlets = {each.part_name: "\n".join(_outlet_lines(each)) for each in pipeline.outlets}
    policy = (
        {}
        if pipeline.on_error is OnError.REJECT
        else {"on_error": f"what the function fails on: {pipeline.on_error}"}
    )
    return {**topics, **tables, **views, **outlets, **policy}


def has_identity(lines: str) -> bool:
    """Returns True if a topic's lines declare an identity.

    The records that are folded of this topic depend on the remembered identities, too.
    """
    return any(line.startswith(_IDENTITY) for line in lines.splitlines())


def has_key_format(lines: str) -> bool:
    """Returns True if a topic's lines declare a format of keys, as formats of changes do."""
    return any(line.startswith(("key format ", _CHANGES)) for line in lines.splitlines())


def has_changes(lines: str) -> bool:
    """Returns True if a topic's lines declare records that are changes of a database."""
    return any(line.startswith(_CHANGES) for line in lines.splitlines())


def without_checks(lines: str, checks: Sequence[str]) -> str:
    """Returns a table's lines without the lines of checks, which decide no row."""
    return lines.removesuffix("\n".join(_check_lines(checks))).rstrip("\n")


def _topic_lines(topic: Topic, pipeline: Pipeline) -> Iterator[str]:
    yield f"kind {topic.kind}"
    yield f"partitions {topic.partitions}"
    yield f"key {topic.key or '(none)'}"
    yield from (f"key {line}" for line in topic.key_lines())
    yield from topic.format.declared_lines()
    for column in topic.columns:
        yield f"column {column}"
    if topic.schema is not None:
        yield from topic.schema.place_lines()
    if topic.lateness_ms is not None:
        yield (
            f"late where {topic.event_time} lies more than {exact_duration(topic.lateness_ms)} back"
        )
    if topic.identity:
        yield (
            f"{_IDENTITY}{', '.join(topic.identity)} "
            f"within {exact_duration(topic.identity_horizon_ms)}"
        )
    for parameter in pipeline.parameters_of(topic):
        yield f"given to the function as {parameter}"


def _table_lines(table: Table) -> Iterator[str]:
    if table.latest is not None:
        yield f"latest of topic {table.latest.name}"
    elif table.file is not None:
        yield str(table.file)
    elif table.emitted:
        yield f"rows are emitted: {', '.join(map(str, table.emitted))}"
    elif table.is_append_only:
        yield "rows are appended"
    if table.keys:
        yield f"keys {', '.join(table.keys)}"
    for column, fold in table.fold.items():
        # Whether a sum is exact depends on its type, which is not declared.
        exactness = fold.value_exactness(column, {})
        yield (
            f"{column} = {fold.declared_text(column)}"
            if exactness is Exactness.EXACT
            else f"{column} = {fold.declared_text(column)}, {exactness}"
        )
    if table.ordered is not None:
        yield str(table.ordered)
    if table.expiry is not None:
        yield str(table.expiry)
    yield from _check_lines(table.checks)


def _view_lines(view: View) -> Iterator[str]:
    if view.keys:
        yield f"keys {', '.join(view.keys)}"
    if view.by != view.keys:
        yield f"rows belong together by {', '.join(view.by)}"
    yield view.sql
    yield from _check_lines(view.checks)


def _outlet_lines(outlet: Sink | Alert) -> Iterator[str]:
    yield f"of {outlet.of}"
    if isinstance(outlet, Sink):
        yield f"partitions {outlet.partitions}"
        if outlet.format.text is not None:
            yield f"format {outlet.format.text}"
    else:
        yield f"to {outlet.to}"
        if outlet.on != OPS:
            yield f"on {', '.join(outlet.on)}"
    if outlet.columns is not None:
        yield f"columns {', '.join(outlet.columns)}"
    if outlet.where is not None:
        yield f"where {outlet.where}"


def _check_lines(checks: Sequence[str]) -> Iterator[str]:
    # Checks are a table's last lines.
    yield from (f"check {check}" for check in checks)
