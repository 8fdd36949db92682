"""A pipeline: a named pure function from a slice of each topic to rows for each table. Pure.

`@pipeline` creates a value, and runs nothing. A wrong declaration raises DeclarationError, with the
user's line. The functions at the end of this file check that the declarations of a pipeline are
consistent with one another.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from kappa.base.errors import DeclarationError, did_you_mean, near_or_all
from kappa.base.source import Source
from kappa.declare.alert import Alert
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.formats.debezium_events import check_operation
from kappa.declare.formats.topic_formats import changes_of
from kappa.declare.options import REJECTS, describe_value, option_text
from kappa.declare.reject_limit import MaxRejects, check_max_rejects
from kappa.declare.sink import Sink
from kappa.declare.table import Table, check_emitted
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.view import View

Written = Table | View | Sink | Alert
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
# The columns beside the event's in the DataFrames of a function: name and Spark's type.
ORIGIN_COLUMNS = (
    ("_topic", "string"),
    ("_partition", "int"),
    ("_offset", "bigint"),
    ("_timestamp", "timestamp"),
    ("_key", "string"),
)
Outlets = tuple[Sink | Alert, ...]


class OnError(StrEnum):
    """The policy for a record on which the function or a step fails.

    With REJECT, the record becomes a reject. With STOP, the job stops.
    """

    REJECT = "reject"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A declared pipeline.

    `inputs` maps the name of each parameter of the function to the topics whose rows this parameter
    receives: one topic, or all topics that have joined one of the `patterns`. `max_rejects` is the
    number or share of records that a candidate may reject (kappa/declare/reject_limit.py); it is
    not part of the version.
    """

    name: str
    function: Callable[..., Mapping[str, Any]] = field(compare=False)
    inputs: Mapping[str, tuple[Topic, ...]]
    topics: tuple[Topic, ...]
    tables: tuple[Table, ...]
    views: tuple[View, ...]
    source: Source = field(compare=False)
    description: str = field(default="", compare=False)
    on_error: OnError = OnError.REJECT
    max_rejects: MaxRejects = field(default=None, compare=False)
    sinks: tuple[Sink, ...] = ()
    alerts: tuple[Alert, ...] = ()
    patterns: tuple[Topic, ...] = field(default=(), compare=False)

    @property
    def input_topics(self) -> tuple[Topic, ...]:
        """Returns the topics whose rows the function receives, without repetitions."""
        return tuple(
            {topic.name: topic for each in self.inputs.values() for topic in each}.values()
        )

    def parameters_of(self, topic: Topic) -> list[str]:
        """Returns the names of the function's parameters that receive a topic's rows, sorted."""
        return sorted(name for name, topics in self.inputs.items() if topic in topics)

    @property
    def function_tables(self) -> tuple[Table, ...]:
        """Returns the tables whose rows the pipeline's function returns."""
        return tuple(table for table in self.tables if table.is_returned)

    @property
    def latest_tables(self) -> tuple[Table, ...]:
        """Returns the tables that contain the latest value for each key of a topic."""
        return tuple(table for table in self.tables if table.latest is not None)

    @property
    def outlets(self) -> tuple[Sink | Alert, ...]:
        """Returns the outlets of the pipeline: first the sinks, then the alerts."""
        return (*self.sinks, *self.alerts)

    @property
    def view_queries(self) -> dict[str, str]:
        """Returns the queries of the views that are not maintained, by the view's name."""
        return {view.name: view.sql for view in self.views if not view.is_maintained}

    def code_roots(self, module: str, attribute: str) -> tuple[tuple[str, str], ...]:
        """Returns (module, name) for each object from which the pipeline's fingerprint begins.

        The fingerprint covers all code that determines rows: it follows the names that these
        objects use. The objects are the pipeline, identified by `module` and `attribute`, and the
        functions that its ordered folds call.
        """
        places = [table.ordered.code_places for table in self.tables if table.ordered is not None]
        return ((module, attribute), *chain.from_iterable(places))

    def columns_of(self, topic: Topic) -> tuple[tuple[str, str], ...]:
        """Returns the names and Spark types of a topic's columns in the function's DataFrame.

        The columns of the event come first, then the columns of the record in Kafka. The log time
        is included only if a fold depends on the order of the log, if a step is woken on time, or
        if rows of a table without `latest` expire.
        """
        event = tuple((column.name, str(column.type)) for column in topic.columns)
        beside = dict(ORIGIN_COLUMNS) | (
            dict(FOLD_ORDER_COLUMNS) if any(table.by_order for table in self.tables) else {}
        )
        return (*event, *beside.items())

    def needs_brokers_time(self, topic: Topic) -> bool:
        """Returns True if rows depend on the broker's timestamps of a topic's records."""
        return topic.needs_brokers_time or (
            topic.kind is TopicKind.RETAINED
            and any(table.expiry is not None for table in self.tables)
        )


def pipeline(
    *,
    reads: Mapping[str, Topic],
    writes: Sequence[Table | View | Sink | Alert],
    name: str | None = None,
    on_error: str = OnError.REJECT,
    max_rejects: MaxRejects = None,
) -> Callable[[Callable[..., Mapping[str, Any]]], Pipeline]:
    """Declares the decorated function as a pipeline.

    `name` is the name of the pipeline; the default is the name of the function. `reads` maps names
    to topics. Each parameter of the function must have one of these names, and receives the rows of
    the named topic as a DataFrame. `writes` lists tables, views, sinks and alerts. The function
    returns `{table: rows}` for every table that is declared without `latest`, `emitted` or `file`.

    A DataFrame contains the columns of the event, and also the columns of the record in Kafka:
    `_topic`, `_partition`, `_offset`, `_timestamp` and `_key` (as text). If a table has `first`,
    `latest`, `top_k` or `sample`, or an ordered fold with `on_time`, a DataFrame also contains
    `_log_time`. The rows that the function returns for that table must include `_log_time`,
    `_topic`, `_partition` and `_offset`. The rows for a table with another ordered fold must
    include `_topic`, `_partition` and `_offset`.

    `on_error` decides what happens to a record on which the function or a step fails. With
    "reject", the record is left out of all tables and becomes a reject. With "stop", the job ends
    at this record, with an error that identifies it. `max_rejects` limits the records that a
    candidate may reject; a candidate that exceeds the limit is stopped. A whole number is a number
    of records (`100`), and any other number is a share of the records read (`0.01`). Raises
    DeclarationError, with the user's file and line, if the declaration is not valid.

    Example:
        @pipeline(
            reads={"visits": VISITS},
            writes=[
                Table("page_visits", keys=("page",), fold={"visits": count()}),
                Table("slow_visits"),
                View("busy_pages", "select page from page_visits where visits > 100"),
            ],
            max_rejects=0.01,
        )
        def web(visits):
            slow = visits.where("ms > 1000").select("page", "visitor", "_offset")
            return {
                "page_visits": visits,
                "slow_visits": slow.withColumnRenamed("_offset", "offset"),
            }
    """

    def declare_pipeline(function: Callable[..., Mapping[str, Any]]) -> Pipeline:
        source = Source(function.__code__.co_filename, function.__code__.co_firstlineno)
        called = name or function.__name__
        check_shapes(source, called, reads, writes)
        declared = _declared_pipeline(
            function, called, dict(reads), tuple(writes), source, on_error
        )
        check_max_rejects(source, declared.name, max_rejects)
        return replace(declared, max_rejects=max_rejects)

    return declare_pipeline


def _declared_pipeline(
    function: Callable[..., Mapping[str, Any]],
    name: str,
    reads: dict[str, Topic],
    writes: tuple[Written, ...],
    source: Source,
    on_error: str,
) -> Pipeline:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(
            f"{source}: {describe_value(name)} is not a valid pipeline name",
            hint="use lower case letters, digits and underscores, a letter first",
        )
    if on_error not in tuple(OnError):
        raise DeclarationError(
            f"{source}: pipeline {name} has on_error={option_text(on_error)}",
            hint='on_error is "reject" or "stop"',
        )
    for bound, topic in reads.items():
        if not isinstance(topic, Topic):
            raise DeclarationError(
                f"{source}: pipeline {name} reads {bound}, "
                f"which is {describe_value(topic)} and no Topic",
                hint=f'give the topic: reads={{"{bound}": TOPIC}}',
            )
    topics = tuple(each for topic in reads.values() for each in topic.each_topic())
    names = [topic.name for topic in topics]
    if not reads:
        raise DeclarationError(
            f"{source}: pipeline {name} reads no topic", hint='write reads={"events": TOPIC}'
        )
    if len(set(names)) < len(names):
        repeated = next(each for each in names if names.count(each) > 1)
        raise DeclarationError(f"{source}: pipeline {name} reads topic {repeated} twice")
    tables = tuple(each for each in writes if isinstance(each, Table))
    views = tuple(each for each in writes if isinstance(each, View))
    outlets = tuple(each for each in writes if isinstance(each, Sink | Alert))
    other = next((each for each in writes if not isinstance(each, Written)), None)
    if other is not None:
        raise DeclarationError(
            f"{source}: pipeline {name} writes {describe_value(other)}, which is not a Table or "
            "View",
            hint='give tables and views: writes=[Table("...")]; a topic that rows go to is a Sink',
        )
    if not tables:
        raise DeclarationError(
            f"{source}: pipeline {name} writes no table", hint='say writes=[Table("...")]'
        )
    public = [*(table.name for table in tables), *(view.name for view in views)]
    if len(set(public)) < len(public):
        repeated = next(each for each in public if public.count(each) > 1)
        raise DeclarationError(f"{source}: pipeline {name} writes {repeated} twice")
    inputs = _bound_inputs(function, name, reads, source)
    for table in tables:
        if table.latest is not None and table.latest not in reads.values():
            raise DeclarationError(
                f"{table.source}: table {table.name} is the latest of topic {table.latest.name}, "
                f"which pipeline {name} does not read",
                hint=f"add it to reads of {name}",
            )
    used = {topic.name for each in inputs.values() for topic in each} | {
        table.latest.name for table in tables if table.latest is not None
    }
    idle = [topic.name for topic in topics if topic.name not in used]
    if idle:
        raise DeclarationError(
            f"{source}: pipeline {name} reads topic {idle[0]} and does nothing with it",
            hint="make it a parameter of the function, or a table's latest",
        )
    check_emitted(name, tables)
    check_outlets(name, outlets, tables, views, topics)
    check_patterns(tables)
    check_expiries(name, tables, topics)
    return Pipeline(
        name,
        function,
        inputs,
        topics,
        tables,
        views,
        source,
        inspect.getdoc(function) or "",
        OnError(on_error),
        sinks=tuple(each for each in outlets if isinstance(each, Sink)),
        alerts=tuple(each for each in outlets if isinstance(each, Alert)),
        patterns=tuple(topic for topic in reads.values() if topic.pattern is not None),
    )


def _bound_inputs(
    function: Callable[..., Mapping[str, Any]], name: str, reads: dict[str, Topic], source: Source
) -> dict[str, tuple[Topic, ...]]:
    inputs: dict[str, tuple[Topic, ...]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in reads:
            near = did_you_mean(parameter.name, reads)
            raise DeclarationError(
                f"{source}: pipeline {name} has a parameter {parameter.name} "
                "that reads does not bind",
                hint=f"{near} reads binds {', '.join(reads)}".lstrip(),
            )
        topic = reads[parameter.name]
        check_input(source, name, topic)
        inputs[parameter.name] = topic.each_topic()
    return inputs


def check_shapes(source: Source, name: str, reads: object, writes: object) -> None:
    """Raises DeclarationError if `reads` is not a mapping from texts, or `writes` is not a list."""
    if not isinstance(reads, Mapping) or not all(isinstance(each, str) for each in reads):
        raise DeclarationError(
            f"{source}: pipeline {name} reads {describe_value(reads)}, which has no parameter's "
            "name",
            hint='name the parameter that gets it: reads={"events": TOPIC}',
        )
    if isinstance(writes, str) or not isinstance(writes, Iterable):
        raise DeclarationError(
            f"{source}: pipeline {name} writes {describe_value(writes)}, which is not in a list",
            hint="put it into a list: writes=[TABLE]",
        )


def check_patterns(tables: Iterable[Table]) -> None:
    """Raises DeclarationError if a table is declared as `latest` of a pattern.

    The topics of a pattern have no order between them, so it is not defined which value of a key is
    the latest.
    """
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
    """Raises DeclarationError, with the outlet's line, if an outlet does not match the pipeline.

    Each sink and each alert must be for a table or a maintained view of the pipeline. A table or
    view with a sink must have keys. No two sinks, and no two alerts, may have the same name, and
    the pipeline must not read the topic of its own sink.
    """
    stored = {table.name: bool(table.keys) or table.latest is not None for table in tables}
    computed = {view.name for view in views if not view.is_maintained}
    stored |= {view.name: bool(view.keys) for view in views if view.is_maintained}
    read = {topic.name for topic in topics}
    known = dict[str, Sink | Alert]()
    for each in outlets:
        what = f"{each.source}: {each.part_name}"
        if (other := known.setdefault(each.part_name, each)) is not each:
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
                f"{what} is of {each.of}, which is not a table of pipeline {pipeline}",
                hint=_near_name(each.of, stored),
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


def _near_name(name: str, stored: Iterable[str]) -> str:
    return near_or_all(name, sorted({*stored} - {REJECTS}))


def check_expiries(pipeline: str, tables: Iterable[Table], topics: Iterable[Topic]) -> None:
    """Raises DeclarationError if rows expire, but the pipeline reads only compacted topics.

    Rows expire by the log's clock, and compaction removes records that would decide the clock.
    """
    expiring = next((table for table in tables if table.expiry is not None), None)
    if expiring is not None and all(topic.kind is TopicKind.COMPACTED for topic in topics):
        raise DeclarationError(
            f"{expiring.source}: the rows of table {expiring.name} expire by the log's clock, and "
            f"pipeline {pipeline} reads compacted topics alone, of which compaction takes records",
            hint="leave expire and after out; or have the pipeline read a retained topic",
        )


def check_input(source: Source, pipeline: str, topic: Topic) -> None:
    """Raises DeclarationError if a pipeline's function cannot receive the rows of a topic.

    A function cannot receive the rows of a compacted topic, because the topic's history cannot be
    replayed. If the topic's records are changes of a database, the topic's event must have a column
    with the operation of a change.
    """
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
