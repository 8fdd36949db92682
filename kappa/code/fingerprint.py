"""The version of a pipeline: a fingerprint of everything that determines the pipeline's rows.

The version is computed from the code that the function reaches (reach.py), from the topics, tables,
views, sinks and alerts, and from a number that increases when Kappa computes other rows from the
same declarations. Comments, docstrings, layout and annotations do not count. A change of a helper
in another module does count.

The rows version is a fingerprint of only those parts that determine rows. Views that are not
maintained are computed when they are read, and checks, sinks and alerts only read rows. Versions
that differ only in these parts have the same rows version, and can use the same tables. The rows
version is computed from the contents of a birth certificate, so it can also be computed for builds
that are older than rows versions.

All declarations that count are also written as lines of text, so that every change of a version can
be shown as a diff. A birth certificate contains these lines, because values that code computes
cannot be read from the code's source. For each kind of declaration, one function writes the text to
hash, and the next function writes the lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kappa.base.units import exact_duration
from kappa.code.reach import reached_parts
from kappa.code.sources import Find
from kappa.declare.alert import OPS, Alert
from kappa.declare.folds.exactness import Exactness
from kappa.declare.pipeline import OnError, Pipeline
from kappa.declare.sink import Sink
from kappa.declare.table import Table
from kappa.declare.topic import Topic
from kappa.declare.view import View
from kappa.state.build import Birth

# Ten hexadecimal digits: two versions of one pipeline are equal by chance once in 10^12.
_VERSION_DIGITS = 10
_PART_DIGITS = 16
_SEMANTICS = "semantics"
_ON_ERROR = "on_error"
_IDENTITY = "identity "
_CHANGES = "format debezium-"
# Kappa's rules since when a pipeline that says nothing of `on_error` rejects.
_REJECTING = 3
# 3: a sum that does not fit is null and says so by a column of its own. A record that a function
# fails on is a reject, unless `on_error="stop"` is declared. Both stopped the job.
SEMANTICS = 3
_DECIDING_NO_ROWS = frozenset({"view", "sink", "alert"})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A version, and the hashes of the version's parts, by the name of the part.

    The name of a part is, for example, `function pipelines/flights.py:on_time`.
    """

    version: str
    parts: Mapping[str, str]


def compute_fingerprint(pipeline: Pipeline, module: str, attribute: str, find: Find) -> Fingerprint:
    """Returns the fingerprint of the pipeline in the attribute `attribute` of `module`.

    Raises DeclarationError, with the line, if the code imports a module by a computed name.
    """
    code = {
        part: _short_hash(text, _PART_DIGITS)
        for root in pipeline.code_roots(module, attribute)
        for part, text in reached_parts(*root, find).items()
    }
    topics = {
        f"topic {topic.name}": _short_hash(_topic_text(topic, pipeline), _PART_DIGITS)
        for topic in pipeline.topics
    }
    tables = {
        f"table {table.name}": _short_hash(_table_text(table), _PART_DIGITS)
        for table in pipeline.tables
    }
    views = {view.part_name: _short_hash(_view_text(view), _PART_DIGITS) for view in pipeline.views}
    outlets = {
        each.part_name: _short_hash(_outlet_text(each), _PART_DIGITS) for each in pipeline.outlets
    }
    policy = {} if pipeline.on_error is OnError.REJECT else {_ON_ERROR: str(pipeline.on_error)}
    declared = {**topics, **tables, **views, **outlets, **policy}
    parts = {**code, **declared, _SEMANTICS: str(SEMANTICS)}
    return Fingerprint(version_of(parts), parts)


def declaration_lines(pipeline: Pipeline) -> Mapping[str, str]:
    """Returns a description of each declared part of a pipeline, by the name of the part.

    A description is a text with one line for each fact. The name of a part is, for example, `table
    delays`.
    """
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


def as_of_birth(pipeline: Pipeline, parts: Mapping[str, str], semantics: int) -> Pipeline:
    """Returns a pipeline with the policy `on_error` that was in force when its build was born.

    `parts` and `semantics` come from the build's birth certificate. The policy decides what happens
    if the function fails on a record. In old versions of Kappa, a pipeline without a declared
    policy stopped at such a record. Now, such a record is a reject.
    """
    if semantics >= _REJECTING or _ON_ERROR in parts:
        return pipeline
    return replace(pipeline, on_error=OnError.STOP)


def version_of(parts: Mapping[str, str]) -> str:
    """Returns the version of a pipeline: a hash of the names and the hashes of all its parts."""
    return _short_hash(json.dumps(parts, sort_keys=True), _VERSION_DIGITS)


def declared_rows_version(pipeline: Pipeline, parts: Mapping[str, str]) -> str:
    """Returns the rows version of a pipeline that the project declares.

    `parts` contains the hashes of the parts of the pipeline's version.
    """
    checks = {table.name: table.checks for table in pipeline.tables}
    checks |= {view.name: view.checks for view in pipeline.views}
    return _rows_version(parts, declaration_lines(pipeline), checks)


def born_rows_version(birth: Birth) -> str:
    """Returns the rows version of a build, computed from its birth certificate.

    An old birth certificate contains no declarations. Then two builds have the same rows version
    only if they have the same version.
    """
    checks = {table.name: table.checks for table in birth.tables}
    return _rows_version(birth.parts, birth.declarations, checks)


def _rows_version(
    parts: Mapping[str, str],
    declared: Mapping[str, str],
    checks: Mapping[str, tuple[str, ...]],
) -> str:
    deciding = {}
    for part, hashed in parts.items():
        kind, name = part.split(" ")[0], part.split(" ")[-1]
        if kind in {"table", "maintained"} and part in declared:
            deciding[part] = without_checks(declared[part], checks.get(name, ()))
        elif kind not in _DECIDING_NO_ROWS:
            deciding[part] = hashed
    return version_of(deciding)


def changed_parts(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the parts in which two versions differ.

    The parts of the code come first, then the declarations, and then the part that stands for the
    rules of Kappa itself.
    """
    return tuple(
        part for part in sorted({*old, *new}, key=_part_rank) if old.get(part) != new.get(part)
    )


def version_differences(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a sentence for each part in which two versions differ.

    An example is `function f in pipelines/a.py changed`.
    """
    sentences = []
    for part in changed_parts(old, new):
        if part not in old:
            sentences.append(f"{part_name(part)} is new")
        elif part not in new:
            sentences.append(f"{part_name(part)} is gone")
        else:
            sentences.append(
                f"{part_name(part)} changed ({old[part]} to {new[part]})"
                if part == _SEMANTICS
                else f"{part_name(part)} changed"
            )
    return tuple(sentences)


def part_name(part: str) -> str:
    """Returns the name of a part for display: `function on_time in pipelines/flights.py`."""
    kind, _, rest = part.partition(" ")
    path, colon, name = rest.rpartition(":")
    if part == _SEMANTICS:
        return "what Kappa means by a valid record and a fold"
    if part == _ON_ERROR:
        return "the policy on_error"
    if kind == "statements":
        return f"what importing {rest} does"
    return f"{kind} {name} in {path}" if colon else f"{kind} {rest}"


def _part_rank(part: str) -> tuple[int, str]:
    # The user's own edits first: code, then declarations, then what the platform changed.
    order = (
        "function",
        "class",
        "value",
        "statements",
        "module",
        "topic",
        "table",
        "maintained",
        "view",
        "sink",
        "alert",
        _ON_ERROR,
        _SEMANTICS,
    )
    kind = part.partition(" ")[0]
    return order.index(kind) if kind in order else len(order), part


def has_identity(lines: str) -> bool:
    """Returns True if the lines of a topic's declaration contain an identity.

    Then the rows also depend on the identities that the build remembers.
    """
    return any(line.startswith(_IDENTITY) for line in lines.splitlines())


def has_key_format(lines: str) -> bool:
    """Returns True if the lines of a topic's declaration determine the format of the keys.

    A format of database changes also determines the format of the keys.
    """
    return any(line.startswith(("key format ", _CHANGES)) for line in lines.splitlines())


def has_changes(lines: str) -> bool:
    """Returns True if, by the lines of a topic's declaration, its records are database changes."""
    return any(line.startswith(_CHANGES) for line in lines.splitlines())


def without_checks(lines: str, checks: Sequence[str]) -> str:
    """Returns the lines of a table's declaration without the lines of its `checks`.

    Checks do not affect rows.
    """
    return lines.removesuffix("\n".join(_check_lines(checks))).rstrip("\n")


def _topic_text(topic: Topic, pipeline: Pipeline) -> str:
    # The topic's config is left out: it decides how Kafka keeps records, not their meaning.
    # The parameters count: they decide which argument gets the topic's rows.
    parameters = pipeline.parameters_of(topic)
    decided: list[object] = [
        topic.kind,
        topic.partitions,
        topic.key,
        [str(column) for column in topic.columns],
        parameters,
    ]
    # Only if declared, so that topics older than these options keep their version.
    if declared := [*topic.format.declared_lines()]:
        decided.append({"format": declared})
    if keyed := topic.key_lines():
        decided.append({"key_format": keyed})
    if topic.schema is not None:
        decided.append([*topic.schema.place_lines()])
    if topic.lateness_ms is not None:
        decided.append({"event_time": topic.event_time, "lateness_ms": topic.lateness_ms})
    if topic.identity:
        decided.append({"identity": topic.identity, "horizon_ms": topic.identity_horizon_ms})
    return json.dumps(decided)


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


def _table_text(table: Table) -> str:
    # Checks count: they bind the rows for as long as the version serves. Thresholds do not: they
    # compare a candidate with its predecessor once, which is no reason to replay.
    means = [
        table.keys,
        [(column, fold.declared_text(column)) for column, fold in table.fold.items()],
        table.latest.name if table.latest else None,
        table.checks,
    ]
    # Later options are added only if used, so that older declarations keep their version.
    later = [
        str(each)
        for each in (table.ordered, *table.emitted, table.file, table.expiry)
        if each is not None
    ]
    return json.dumps([*means, later] if later else means)


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


def _view_text(view: View) -> str:
    return json.dumps(
        [view.sql, view.keys, view.by, view.checks] if view.is_maintained else view.sql
    )


def _view_lines(view: View) -> Iterator[str]:
    if view.keys:
        yield f"keys {', '.join(view.keys)}"
    if view.by != view.keys:
        yield f"rows belong together by {', '.join(view.by)}"
    yield view.sql
    yield from _check_lines(view.checks)


def _outlet_text(outlet: Sink | Alert) -> str:
    more = outlet.partitions if isinstance(outlet, Sink) else [outlet.to, outlet.on]
    return json.dumps([outlet.of, more, outlet.columns, outlet.where])


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


def _short_hash(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
