"""The lineage of columns: the columns and topic fields from which values are computed.

If a pipeline's function computes a column, Spark determined the column's lineage at the deploy, and
the birth certificate of the build contains it. If a view computes a column, its lineage follows
from the parsed query. So no Spark is needed here. If a query uses a column only to select or join
rows, the column is not a source of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kappa.base.errors import UsageError, near_or_all
from kappa.base.sql import lowered, quoted
from kappa.declare.options import REJECTS
from kappa.replay.status.graph import (
    KINDS,
    GraphEdge,
    GraphNode,
    ProjectGraph,
    kept_part,
    reached_nodes,
)
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.views import make_views
from kappa.state.build import Birth
from kappa.state.table import TableBirth
from kappa.tables.views.column_sources import column_sources
from kappa.tables.views.served_rows_sql import read_sql

_NOT_KNOWN = "sources not known"
# The reason for a build that an older version of Kappa has made.
UNKNOWN_YET = "not known before the next deploy"


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """A column of a table or view, or a field of a topic. `kind` is "table", "view" or "topic"."""

    kind: str
    relation: str
    column: str

    @property
    def name(self) -> str:
        """Returns the name for display, such as `page_hits.hits`."""
        return f"{self.relation}.{self.column}"


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """The sources from which a column's values are computed.

    `how` describes the computation in a few words, or is "". `why_not` is the reason why the
    sources are not known, or "". Some columns have no source, for example a count of rows.
    """

    sources: tuple[ColumnPlace, ...] = ()
    how: str = ""
    why_not: str = ""

    @property
    def text(self) -> str:
        """Returns the sources as one line for display, or the reason why they are not known."""
        return self.why_not or ", ".join(each.name for each in self.sources)


def column_origins(birth: Birth) -> Mapping[str, Mapping[str, ColumnOrigin]]:
    """Returns the origins of all columns that readers see, by table or view and then by column."""
    found = {
        table.name: dict(_table_origins(birth, table))
        for table in birth.tables
        if table.view is None and table.name != REJECTS
    }
    queries = {table.name: table.view for table in birth.tables if table.view is not None}
    queries |= birth.views
    return {**found, **_view_origins(birth, queries)} if queries else found


def column_graph(births: Mapping[str, Birth], name: str) -> ProjectGraph:
    """Returns a column with all its sources, and with all columns that are computed from it.

    Args:
        births: The birth certificates of the builds, by pipeline.
        name: The column, as `TABLE.COLUMN` or `PIPELINE.TABLE.COLUMN`.

    If a sink sends a column, the graph continues in the pipelines that read the sink's topic.
    Raises UsageError if no table has such a column, or if several pipelines have one.
    """
    pipeline = _pipeline_with(births, name)
    nodes: dict[str, GraphNode] = {}
    edges: dict[tuple[str, str], GraphEdge] = {}
    start = ""
    for each in sorted(_joined_by_sinks(births, pipeline)):
        birth = births[each]
        for relation, columns in column_origins(birth).items():
            for column, origin in columns.items():
                node = _column_node(birth, relation, column, origin)
                nodes[node.id] = node
                if each == pipeline and name in {node.name, f"{pipeline}.{node.name}"}:
                    start = node.id
                for source in origin.sources:
                    source_id = _node_id(birth, source)
                    edges[source_id, node.id] = GraphEdge(source_id, node.id)
                    if source.kind == "topic":
                        nodes.setdefault(source_id, GraphNode(source_id, "topic", source.name))
        for sink in birth.sinks:
            for field in _sent_columns(birth, sink.of, sink.columns):
                source_id = _node_id(birth, ColumnPlace(_kind_of(birth, sink.of), sink.of, field))
                field_id = f"topic:{sink.topic}.{field}"
                edges[source_id, field_id] = GraphEdge(source_id, field_id)
    if not start:
        raise _no_column(births, pipeline, name)
    # A sink may send columns that no pipeline of the project reads.
    ways = [each for each in edges if {*each} <= nodes.keys()]
    kept = {
        *reached_nodes(start, ways),
        *reached_nodes(start, ((target, source) for source, target in ways)),
    }
    found = sorted(nodes.values(), key=lambda each: (KINDS.index(each.kind), each.name, each.id))
    return kept_part(ProjectGraph(tuple(found), tuple(edges.values())), kept)


def _table_origins(birth: Birth, table: TableBirth) -> Iterator[tuple[str, ColumnOrigin]]:
    """Yields the columns of a table that is not a view, each with its origin."""
    for column, _ in table.served:
        if table.latest is not None:
            place = ColumnPlace("topic", _topic_name(birth, table.latest), column)
            yield column, ColumnOrigin((place,), "latest")
        elif table.file is not None:
            yield column, ColumnOrigin(how="of a file")
        elif table.name not in birth.lineage:
            yield column, _unknown_origin(birth)
        elif table.steps_over and column not in table.keys:
            # A step is Python, and may use all that it gets.
            rows = [name for name, _ in table.steps_over if not name.startswith("_")]
            yield column, _returned_origin(birth, table, rows, "by a step")
        elif column in table.fold:
            kind, of = table.fold[column]
            inputs = table.folds[column].input_columns
            yield column, _returned_origin(birth, table, inputs, f"{kind}({of or ''})")
        else:
            yield (
                column,
                _returned_origin(birth, table, (column,), "key" if column in table.keys else ""),
            )


def _unknown_origin(birth: Birth) -> ColumnOrigin:
    """Returns the origin of a column in a table without recorded lineage.

    If the build has lineage for other tables, the step of an ordered fold has emitted this table,
    and its columns have no known sources. If the build has no lineage at all, because an older
    Kappa created the build, the origin contains this reason.
    """
    if birth.lineage:
        return ColumnOrigin(how="emitted by a step")
    return ColumnOrigin(why_not=UNKNOWN_YET)


def _returned_origin(
    birth: Birth, table: TableBirth, columns: Iterable[str], how: str
) -> ColumnOrigin:
    """Returns the origin of a value that is computed from columns of the function's rows.

    `how` describes the computation in a few words.
    """
    known = birth.lineage[table.name]
    places = {
        ColumnPlace("topic", topic, field): None
        for column in columns
        for topic, field in known.get(column, ())
    }
    return ColumnOrigin(tuple(places), how)


def _topic_name(birth: Birth, name: str) -> str:
    """Returns the name by which a topic is declared.

    This is the name of the pattern that the topic has joined, or the topic's own name.
    """
    return next((each.pattern or name for each in birth.topics if each.name == name), name)


def _view_origins(birth: Birth, queries: Mapping[str, str]) -> dict[str, dict[str, ColumnOrigin]]:
    """Returns the origins of views' columns. A view that cannot be created has no columns."""
    spelled = {
        lowered(table.name): {lowered(column): column for column, _ in table.served}
        for table in birth.tables
    }
    kinds = {
        lowered(table.name): {lowered(column): kind for column, kind in table.served}
        for table in birth.tables
    }
    with open_reader(None, served=True) as reader:
        for table in birth.tables:
            reader.run_command(
                f"create view {quoted(table.name)} as {read_sql(table, (), clock=None)}"
            )
        refused = make_views(reader, birth.views)
        for view in birth.views.keys() - refused.keys():
            columns, types = reader.describe_columns(f"from {quoted(view)}")
            spelled[lowered(view)] = {lowered(each): each for each in columns}
            kinds[lowered(view)] = dict(zip(map(lowered, columns), types, strict=True))
        names = {lowered(each): each for each in (*queries, *(t.name for t in birth.tables))}
        found: dict[str, dict[str, ColumnOrigin]] = {}
        for view, sql in queries.items():
            if view in refused:
                continue
            query = reader.only_select(sql)
            columns, _ = reader.describe_columns(reader.declared_sql(sql))
            sources = column_sources(reader.parser_tree(query), kinds)
            if sources is None or len(sources) != len(columns):
                sources = [None] * len(columns)
            found[view] = {
                column: ColumnOrigin(why_not="not known: the query is not followed")
                if each is None
                else ColumnOrigin(
                    tuple(
                        ColumnPlace(
                            _kind_of(birth, names[relation]),
                            names[relation],
                            spelled[relation][of],
                        )
                        for relation, of in sorted(each)
                    )
                )
                for column, each in zip(columns, sources, strict=True)
            }
    return found


def _kind_of(birth: Birth, relation: str) -> str:
    is_table = any(each.name == relation and each.view is None for each in birth.tables)
    return "table" if is_table else "view"


def _node_id(birth: Birth, place: ColumnPlace) -> str:
    return f"topic:{place.name}" if place.kind == "topic" else f"{birth.pipeline}.{place.name}"


def _column_node(birth: Birth, relation: str, column: str, origin: ColumnOrigin) -> GraphNode:
    place = ColumnPlace(_kind_of(birth, relation), relation, column)
    detail = _NOT_KNOWN if origin.why_not else origin.how
    return GraphNode(_node_id(birth, place), place.kind, place.name, birth.pipeline, detail)


def _sent_columns(birth: Birth, of: str, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the columns of the table `of` that a sink sends as fields.

    `chosen` are the columns that the sink declares, or None for all.
    """
    if chosen is not None:
        return chosen
    table = next((each for each in birth.tables if each.name == of), None)
    return () if table is None else tuple(column for column, _ in table.served)


def _joined_by_sinks(births: Mapping[str, Birth], pipeline: str) -> set[str]:
    """Returns a pipeline and all pipelines that are connected to it through topics of sinks."""
    readers: dict[str, list[str]] = {}
    for birth in births.values():
        for topic in birth.topics:
            readers.setdefault(topic.name, []).append(birth.pipeline)
    ways = [
        (birth.pipeline, reader)
        for birth in births.values()
        for sink in birth.sinks
        for reader in readers.get(sink.topic, ())
    ]
    return reached_nodes(pipeline, [*ways, *((after, before) for before, after in ways)])


def _relations(birth: Birth) -> tuple[str, ...]:
    return (*(each.name for each in birth.tables if each.name != REJECTS), *birth.views)


def _pipeline_with(births: Mapping[str, Birth], name: str) -> str:
    """Returns the pipeline that serves the table of a column.

    `name` is the column, as in `column_graph`. Raises UsageError if no pipeline serves the table,
    or if several pipelines serve it.
    """
    found = [
        (pipeline, relation)
        for pipeline, birth in sorted(births.items())
        for relation in _relations(birth)
        if name.startswith((f"{relation}.", f"{pipeline}.{relation}."))
    ]
    if not found:
        known = sorted({each for birth in births.values() for each in _relations(birth)})
        table = name.split(".")[-2] if "." in name else name
        raise UsageError(
            f"no pipeline serves a table with the column {name[:80]}",
            hint=f"write TABLE.COLUMN; {near_or_all(table, known, none='nothing is served yet')}",
        )
    pipelines = sorted({pipeline for pipeline, _ in found})
    if len(pipelines) > 1:
        raise UsageError(
            f"{len(pipelines)} pipelines serve a table with the column {name[:80]}",
            hint=f"name one: {', '.join(f'{each}.{name[:80]}' for each in pipelines)}",
        )
    return pipelines[0]


def _no_column(births: Mapping[str, Birth], pipeline: str, name: str) -> UsageError:
    birth = births[pipeline]
    origins = column_origins(birth)
    known = [
        f"{relation}.{column}"
        for relation in _relations(birth)
        if name.startswith((f"{relation}.", f"{pipeline}.{relation}."))
        for column in origins.get(relation, ())
    ]
    return UsageError(
        f"pipeline {pipeline} serves no column {name[:80]}",
        hint=near_or_all(name.removeprefix(f"{pipeline}."), known, none="its view cannot be read"),
    )
