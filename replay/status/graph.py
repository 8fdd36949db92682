"""The lineage of the project: the topics, tables, views and outlets that feed each other.

The lineage contains the builds that serve, the candidates, and the project's boards. Builds are
described by their birth certificates. All functions except `observe_graph` are pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kappa.base.errors import DeclarationError, UsageError, near_or_all
from kappa.base.units import count_of
from kappa.code.names import WrittenPipeline
from kappa.declare.board import Board
from kappa.declare.options import REJECTS
from kappa.replay.rollout.state import State
from kappa.replay.status.status import BuildStatus, Status
from kappa.serving.http.page.formatting import number, per
from kappa.serving.query.render import Listing, printable_text
from kappa.state.build import Birth

if TYPE_CHECKING:
    from kappa.state.table import TableBirth

# The kinds of nodes, in the order of the flow.
KINDS = ("topic", "pipeline", "table", "view", "sink", "alert", "board")
# The ways in which a rollout touches a node.
NEW, REMOVED, CHANGED, REPLAYED, READS = "new", "removed", "changed", "replayed", "reads"
# The id of the node that replaces several pipelines.
JOINED = "pipelines"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the lineage: a topic, pipeline, table, view, sink, alert or board.

    `kind` is one of `KINDS`. `id` is unique in the graph. `detail` is a remark in a few words, such
    as the way of a view. `change` is the effect of a rollout on the node: "new", "removed",
    "changed", "replayed" (the rows of the node are computed again), "reads" (the node reads
    replayed or changed rows), or "" for none. `rollout` is the number of that rollout.
    `is_deployed` is False for a node that only a file of the project declares. `is_folded` is True
    for a pipeline's node that replaces the nodes of its tables, and for the node `JOINED`.
    """

    id: str
    kind: str
    name: str
    pipeline: str = ""
    detail: str = ""
    change: str = ""
    rollout: int | None = None
    is_deployed: bool = True
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A flow of rows or records from the node `source` to the node `target`, both given by id.

    `lag` is the number of offsets of a topic that a pipeline has not folded. `rate` is the growth
    of the topic, in offsets per second. `lag` and `rate` are None if unknown.
    """

    source: str
    target: str
    lag: int | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class ProjectGraph:
    """The lineage of a project: nodes, sorted by kind and name, and the edges between them."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]


def observe_graph(
    birth_of: Callable[[str], Birth],
    state: State,
    status: Status,
    boards: Mapping[str, Board | DeclarationError],
    names_in: Callable[[str], frozenset[str]],
    rates: Mapping[str, float | None],
    written: Iterable[WrittenPipeline] = (),
) -> ProjectGraph:
    """Returns the lineage of the builds that serve and of candidates.

    `birth_of` returns the birth certificate of a build. `boards` are the project's boards, by name.
    `names_in` returns the tables that a query names. `rates` maps each topic to its growth in
    offsets per second. `written` are the pipelines that the project's files declare; pipelines
    without a build are shown as not deployed. Raises Damaged if a birth certificate cannot be read.
    """
    shown = {each.build: each for each in status.builds if _is_shown(each)}
    live = {pipeline: birth_of(build) for pipeline, build in state.serving.items()}
    candidates = {
        each.pipeline: birth_of(each.build) for each in shown.values() if each.rollout is not None
    }
    charts = {
        name: (board.title, frozenset[str]().union(*(names_in(each.sql) for each in board.charts)))
        for name, board in boards.items()
        if isinstance(board, Board)
    }
    return project_graph(live, candidates, status, charts, names_in, rates, written)


def project_graph(
    live: Mapping[str, Birth],
    candidates: Mapping[str, Birth],
    status: Status,
    charts: Mapping[str, tuple[str, frozenset[str]]],
    names_in: Callable[[str], frozenset[str]],
    rates: Mapping[str, float | None],
    written: Iterable[WrittenPipeline] = (),
) -> ProjectGraph:
    """Returns the lineage of live builds and candidates, both given by pipeline.

    `charts` maps each board to its title and to the tables that its queries name. The other
    parameters are as in `observe_graph`.
    """
    builds = {each.build: each for each in status.builds}
    nodes: dict[str, GraphNode] = {}
    edges: dict[tuple[str, str], GraphEdge] = {}
    for pipeline in sorted({*live, *candidates}):
        before, after = live.get(pipeline), candidates.get(pipeline)
        rollout = None if after is None else builds[after.build].rollout
        # The newer build wins where both have a node, and an edge of either is an edge.
        for birth in (before, after):
            if birth is None:
                continue
            seen = builds.get(birth.build)
            for node in _nodes_of(birth, seen):
                nodes.setdefault(node.id, node)
                if rollout is not None and node.kind != "topic":
                    change = _change_of(node, before, after)
                    nodes[node.id] = replace(node, change=change, rollout=rollout.number)
            for edge in _edges_of(birth, seen, status, names_in, rates):
                edges.setdefault((edge.source, edge.target), edge)
    for declared in written:
        if declared.name not in live and declared.name not in candidates:
            for node in _written_nodes(declared):
                nodes.setdefault(node.id, node)
            for source, target in _written_edges(declared):
                edges[source, target] = GraphEdge(source, target)
    relations = {node.name: node.id for node in nodes.values() if node.kind in {"table", "view"}}
    for name, (title, named) in sorted(charts.items()):
        board = GraphNode(f"board:{name}", "board", name, detail="" if title == name else title)
        nodes[board.id] = board
        for each in sorted(named & relations.keys()):
            edges[relations[each], board.id] = GraphEdge(relations[each], board.id)
    # A sink's topic may be read by a pipeline.
    for node in list(nodes.values()):
        if node.kind == "sink" and (topic := f"topic:{node.name}") in nodes:
            edges[node.id, topic] = GraphEdge(node.id, topic)
    found = sorted(nodes.values(), key=lambda each: (KINDS.index(each.kind), each.name, each.id))
    return _with_readers(kept_part(ProjectGraph(tuple(found), tuple(edges.values())), {*nodes}))


def part_of_graph(graph: ProjectGraph, pipeline: str) -> ProjectGraph:
    """Returns the part of a graph that contains a pipeline, its sources and its readers.

    These are all nodes from which the pipeline can be reached along the edges, and all nodes that
    can be reached from the pipeline. Raises UsageError if the graph has no such pipeline.
    """
    start = f"pipeline:{pipeline}"
    if all(each.id != start for each in graph.nodes):
        known = [each.name for each in graph.nodes if each.kind == "pipeline"]
        raise UsageError(
            f"pipeline {pipeline[:80]} has no build",
            hint=near_or_all(pipeline, known, none="deploy one: kappa deploy"),
        )
    kept = {
        *reached_nodes(start, ((each.source, each.target) for each in graph.edges)),
        *reached_nodes(start, ((each.target, each.source) for each in graph.edges)),
    }
    return kept_part(graph, kept)


def nodes_around(graph: ProjectGraph, ids: Collection[str]) -> ProjectGraph:
    """Returns the part of a graph with these nodes and the nodes that are directly beside them."""
    kept = {*ids}
    for each in graph.edges:
        if each.source in ids or each.target in ids:
            kept |= {each.source, each.target}
    return kept_part(graph, kept)


def outline_of_graph(
    graph: ProjectGraph,
    pipelines: Collection[str] | None = None,
    kept: Collection[str] = frozenset(),
) -> ProjectGraph:
    """Returns a smaller graph, in which a pipeline's node replaces its tables, views and alerts.

    The page shows the smaller graph if the whole graph has too many nodes for a picture. If
    `pipelines` is given, only the nodes of these pipelines are replaced. Nodes whose ids are in
    `kept` stay.
    """
    inside = {
        each.id: f"pipeline:{each.pipeline}"
        for each in graph.nodes
        if each.kind in {"table", "view", "alert"}
        and (pipelines is None or each.pipeline in pipelines)
        and each.id not in kept
    }
    folded: dict[str, Counter[str]] = {}
    for each in graph.nodes:
        if each.id in inside:
            folded.setdefault(inside[each.id], Counter())[each.kind] += 1
    return ProjectGraph(
        tuple(
            replace(each, detail=_counts_text(folded[each.id]), is_folded=True)
            if each.id in folded
            else each
            for each in graph.nodes
            if each.id not in inside
        ),
        _edges_between(graph, inside),
    )


def with_joined_pipelines(
    graph: ProjectGraph, pipelines: Collection[str], kept: Collection[str] = frozenset()
) -> ProjectGraph:
    """Returns a smaller graph, in which the node `JOINED` replaces all nodes of these pipelines.

    These nodes are the pipelines with their tables, views and alerts. Nodes whose ids are in `kept`
    stay.
    """
    inside = {
        each.id: JOINED
        for each in graph.nodes
        if each.id not in kept
        and (each.name if each.kind == "pipeline" else each.pipeline) in pipelines
        and each.kind in {"pipeline", "table", "view", "alert"}
    }
    counts = Counter(each.kind for each in graph.nodes if each.id in inside)
    name = count_of(counts.pop("pipeline", 0), "pipeline")
    joined = GraphNode(JOINED, "pipeline", name, detail=_counts_text(counts), is_folded=True)
    left = (each for each in graph.nodes if each.id not in inside)
    return ProjectGraph((*left, joined), _edges_between(graph, inside))


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(count_of(count, kind) for kind, count in counts.items())


def _edges_between(graph: ProjectGraph, inside: Mapping[str, str]) -> tuple[GraphEdge, ...]:
    """Returns the edges of a graph in which other nodes replace the nodes in `inside`.

    If several edges become one edge, this edge has the largest of their lags.
    """
    edges: dict[tuple[str, str], GraphEdge] = {}
    for edge in graph.edges:
        ends = inside.get(edge.source, edge.source), inside.get(edge.target, edge.target)
        if ends[0] == ends[1]:
            continue
        known = edges.get(ends)
        if known is None or (edge.lag or 0) > (known.lag or 0):
            edges[ends] = replace(edge, source=ends[0], target=ends[1])
    return tuple(edges.values())


def flow_texts(edge: GraphEdge) -> tuple[str, str]:
    """Formats the rate and the lag of an edge for display. Each text is "" if unknown or zero."""
    unit, seconds, _ = per(edge.rate)
    return (
        f"{number(edge.rate * seconds)}{unit}" if edge.rate else "",
        f"{number(edge.lag)} behind" if edge.lag else "",
    )


def graph_document(graph: ProjectGraph) -> dict[str, Any]:
    """Returns a graph as a JSON document: nodes, and edges between the ids of nodes."""
    return {
        "nodes": [
            {
                "id": each.id,
                "kind": each.kind,
                "name": each.name,
                "pipeline": each.pipeline or None,
                "detail": each.detail or None,
                "change": each.change or None,
                "rollout": each.rollout,
                "deployed": each.is_deployed,
            }
            for each in graph.nodes
        ],
        "edges": [
            {"source": each.source, "target": each.target, "lag": each.lag, "rate": each.rate}
            for each in graph.edges
        ],
    }


def graph_listing(graph: ProjectGraph) -> Listing:
    """Returns a graph as a listing: a row per node, with the nodes that it reads."""
    names = {each.id: f"{each.kind} {each.name}" for each in graph.nodes}
    reads: dict[str, list[str]] = {}
    for edge in graph.edges:
        flow = ", ".join(filter(None, flow_texts(edge)))
        shown = f" ({flow})" if flow else ""
        reads.setdefault(edge.target, []).append(f"{names[edge.source]}{shown}")
    return Listing(
        ("kind", "name", "detail", "reads", "rollout"),
        tuple(
            (
                each.kind,
                each.name,
                each.detail,
                ", ".join(reads.get(each.id, ())),
                "" if not each.change else f"{each.change} by {each.rollout}",
            )
            for each in graph.nodes
        ),
        is_report=True,
        least=("detail",),
    )


_SHAPES = {
    "topic": ("[/", "/]"),
    "pipeline": ("([", "])"),
    "sink": ("[/", "/]"),
    "alert": (">", "]"),
    "board": ("[[", "]]"),
}


def mermaid_text(graph: ProjectGraph) -> str:
    """Returns a graph as the text of a Mermaid flowchart. The text ends with a line break."""
    ids = {each.id: f"n{number}" for number, each in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        begin, end = _SHAPES.get(node.kind, ("[", "]"))
        words = [f"{node.kind} {node.name}", node.detail]
        label = "<br>".join(_mermaid_escaped(each) for each in words if each)
        touched = f":::{node.change}" if node.change else ""
        lines.append(f'  {ids[node.id]}{begin}"{label}"{end}{touched}')
    for edge in graph.edges:
        flow = ", ".join(filter(None, flow_texts(edge)))
        shown = f'|"{flow}"|' if flow else ""
        lines.append(f"  {ids[edge.source]} -->{shown} {ids[edge.target]}")
    lines += [
        "  classDef new,changed,replayed fill:#eceefb,stroke:#3d4fd1,color:#1c1e22",
        "  classDef removed fill:#fdeceb,stroke:#b1241d,color:#1c1e22",
        "  classDef reads stroke:#3d4fd1,stroke-dasharray:4",
    ]
    return "\n".join(lines) + "\n"


def _mermaid_escaped(text: str) -> str:
    """Replaces the special characters of a text with character codes, so that none is markup."""
    return re.sub(r"[^\w .,:-]", lambda sign: f"#{ord(sign[0])};", printable_text(text))


def _is_shown(build: BuildStatus) -> bool:
    return build.role == "live" or build.rollout is not None


def _written_nodes(pipeline: WrittenPipeline) -> Iterator[GraphNode]:
    said = "not deployed"
    for topic in pipeline.topics:
        yield GraphNode(f"topic:{topic}", "topic", topic, detail="declared", is_deployed=False)
    name = pipeline.name
    yield GraphNode(f"pipeline:{name}", "pipeline", name, name, said, is_deployed=False)
    for kind, relation in pipeline.relations:
        yield GraphNode(_table_id(name, relation), kind, relation, name, said, is_deployed=False)


def _written_edges(pipeline: WrittenPipeline) -> Iterator[tuple[str, str]]:
    for topic in pipeline.topics:
        yield f"topic:{topic}", f"pipeline:{pipeline.name}"
    for _, relation in pipeline.relations:
        yield f"pipeline:{pipeline.name}", _table_id(pipeline.name, relation)


def _table_id(pipeline: str, name: str) -> str:
    return f"table:{pipeline}.{name}"


def _nodes_of(birth: Birth, seen: BuildStatus | None) -> Iterator[GraphNode]:
    pipeline = birth.pipeline
    for topic in birth.topics:
        detail = f"by pattern {topic.pattern}" if topic.pattern else topic.kind
        yield GraphNode(f"topic:{topic.name}", "topic", topic.name, detail=detail)
    phase = "" if seen is None or seen.rollout is None else f"rollout: {seen.rollout.phase_text}"
    yield GraphNode(f"pipeline:{pipeline}", "pipeline", pipeline, pipeline, phase)
    costs = {} if seen is None else seen.view_costs
    for table in birth.tables:
        if table.name != REJECTS:
            way = costs[table.name].way if table.name in costs else "maintained"
            kind, detail = ("table", "") if table.view is None else ("view", way)
            yield GraphNode(
                _table_id(pipeline, table.name), kind, table.name, pipeline, detail or _fold(table)
            )
    for view in birth.views:
        yield GraphNode(_table_id(pipeline, view), "view", view, pipeline, "at each read")
    for sink in birth.sinks:
        yield GraphNode(f"sink:{sink.topic}", "sink", sink.topic, pipeline)
    for alert in birth.alerts:
        yield GraphNode(f"alert:{alert.name}", "alert", alert.name, pipeline)


def _fold(table: TableBirth) -> str:
    """Describes in a few words how the rows of a table are computed."""
    if table.file is not None:
        return "rows of a file"
    if table.latest is not None:
        return f"latest of {table.latest}"
    if table.steps_over:
        return "folded by a step"
    return "folded by key" if table.fold else "rows as they come"


def _edges_of(
    birth: Birth,
    seen: BuildStatus | None,
    status: Status,
    names_in: Callable[[str], frozenset[str]],
    rates: Mapping[str, float | None],
) -> Iterator[GraphEdge]:
    pipeline = f"pipeline:{birth.pipeline}"
    for topic in birth.topics:
        lag = None
        if seen is not None and status.end is not None:
            ends = status.end.only({topic.name}).items()
            lag = sum(max(0, end - seen.offsets.at(name, part)) for name, part, end in ends)
        yield GraphEdge(f"topic:{topic.name}", pipeline, lag, rates.get(topic.name))
    own = {each.name for each in birth.tables} | {*birth.views}
    reads: dict[str, Iterable[str]] = {view: names_in(sql) for view, sql in birth.views.items()}
    for table in birth.tables:
        if table.view is not None:
            reads[table.name] = table.reads
        elif table.name != REJECTS:
            yield GraphEdge(pipeline, _table_id(birth.pipeline, table.name))
    for view, named in reads.items():
        for each in sorted({*named} & own - {view}):
            # The rejects are no node: a view of them reads the pipeline.
            source = pipeline if each == REJECTS else _table_id(birth.pipeline, each)
            yield GraphEdge(source, _table_id(birth.pipeline, view))
    for sink in birth.sinks:
        yield GraphEdge(_table_id(birth.pipeline, sink.of), f"sink:{sink.topic}")
    for alert in birth.alerts:
        yield GraphEdge(_table_id(birth.pipeline, alert.of), f"alert:{alert.name}")


def _change_of(node: GraphNode, before: Birth | None, after: Birth | None) -> str:
    """Returns the effect that a rollout has on a node, such as `changed`, or "" for none.

    `before` is the birth certificate of the build that serves now, or None, and `after` is that of
    the rollout's build.
    """
    assert after is not None, "a rollout has a build"
    if before is None:
        return NEW
    if node.kind == "pipeline":
        return CHANGED
    old, new = _declared(node, before), _declared(node, after)
    if old is None or new is None:
        return NEW if old is None else REMOVED
    if old != new:
        return CHANGED
    is_computed = node.kind in {"table", "view"} and after.tables_of is None
    return REPLAYED if is_computed else ""


def _declared(node: GraphNode, birth: Birth) -> object:
    """Returns the declaration of a node in a build, or None if the build does not declare it."""
    match node.kind:
        case "sink":
            return next((each for each in birth.sinks if each.topic == node.name), None)
        case "alert":
            return next((each for each in birth.alerts if each.name == node.name), None)
        case _:
            table = next((each for each in birth.tables if each.name == node.name), None)
            return birth.views.get(node.name) if table is None else table


def _with_readers(graph: ProjectGraph) -> ProjectGraph:
    """Marks the sinks, alerts, boards and views that read tables affected by a rollout."""
    nodes = {each.id: each for each in graph.nodes}
    # Another pipeline takes what a sink sends as records like any others.
    ways = [
        (each.source, each.target)
        for each in graph.edges
        if nodes[each.target].kind not in {"topic", "pipeline"}
    ]
    for each in graph.nodes:
        if each.kind not in {"table", "view"} or not each.change:
            continue
        for reader in reached_nodes(each.id, ways):
            if not nodes[reader].change:
                nodes[reader] = replace(nodes[reader], change=READS, rollout=each.rollout)
    return ProjectGraph(tuple(nodes.values()), graph.edges)


def reached_nodes(start: str, ways: Iterable[tuple[str, str]]) -> set[str]:
    """Returns `start` and all nodes that can be reached from `start`, by id.

    `ways` are the edges of the graph, as (id of the source, id of the target).
    """
    after: dict[str, list[str]] = {}
    for source, target in ways:
        after.setdefault(source, []).append(target)
    found, open_ = {start}, [start]
    while open_:
        for each in after.get(open_.pop(), ()):
            if each not in found:
                found.add(each)
                open_.append(each)
    return found


def kept_part(graph: ProjectGraph, kept: set[str]) -> ProjectGraph:
    """Returns the nodes of a graph whose ids are in `kept`, and the edges between these nodes."""
    return ProjectGraph(
        tuple(each for each in graph.nodes if each.id in kept),
        tuple(each for each in graph.edges if {each.source, each.target} <= kept),
    )
