"""Computes the states of a lineage's nodes, such as a late table or a stopped build. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from kappa.replay.page.overview import urgency
from kappa.replay.page.states import (
    Health,
    alert_health,
    broken_health,
    sink_health,
    topic_health,
)
from kappa.replay.status.alerts import AlertStatus
from kappa.replay.status.graph import (
    JOINED,
    NEW,
    GraphNode,
    ProjectGraph,
    outline_of_graph,
    with_joined_pipelines,
)
from kappa.replay.status.status import BuildStatus
from kappa.serving.outlets.sinks.sink_status import SinkStatus

# A larger rank than that of any pipeline.
_LAST = 100
# Fewer pipelines are not joined.
_LEAST_JOINED = 2


def graph_states(
    graph: ProjectGraph,
    live: Mapping[str, BuildStatus],
    health: Callable[[BuildStatus], Health],
    rates: Mapping[str, float | None],
    sinks: Iterable[SinkStatus],
    alerts: Iterable[AlertStatus],
    broken: Mapping[tuple[str, str], str],
) -> dict[str, Health]:
    """Returns the states of nodes by id. Nodes whose state is unknown are left out.

    `live` maps a pipeline to its serving build, and `health` returns the health of a build. A table
    has the state of its pipeline, unless `broken` contains the table; `broken` maps (pipeline,
    table) to the reason. `rates` maps each topic of the broker to its growth in offsets per second,
    or to None if the growth is unknown, and is empty if the broker does not answer.
    """
    pipelines = {pipeline: health(build) for pipeline, build in live.items()}
    sent = {each.known.topic: sink_health(each) for each in sinks}
    told = {each.name: alert_health(each) for each in alerts}
    found: dict[str, Health | None] = {}
    for node in graph.nodes:
        match node.kind:
            case "topic" if node.is_deployed and rates:
                rate, is_there = rates.get(node.name), node.name in rates
                # A rate that is not measured yet is no state.
                found[node.id] = (
                    None if is_there and rate is None else topic_health(rate, is_there=is_there)
                )
            case "pipeline":
                found[node.id] = pipelines.get(node.name)
            case "table" | "view" if node.change != NEW:
                why = broken.get((node.pipeline, node.name), "")
                found[node.id] = broken_health(why) if why else pipelines.get(node.pipeline)
            case "sink":
                found[node.id] = sent.get(node.name)
            case "alert":
                found[node.id] = told.get(node.name)
    return {name: state for name, state in found.items() if state is not None}


def with_folded_pipelines(
    graph: ProjectGraph,
    states: Mapping[str, Health],
    urgent: Collection[str],
    opened: Collection[str],
    *,
    each: bool,
) -> tuple[ProjectGraph, Mapping[str, Health]]:
    """Folds the healthy pipelines of a graph. Returns the graph, and the states of its nodes.

    One node replaces all healthy pipelines. With `each`, each of them has a node of its own, which
    replaces its tables. A pipeline is healthy if the tone of its state is "ok", as on the overview,
    and no rollout touches its node. The nodes in `urgent` stay, and the pipelines in `opened` are
    not folded. Nodes are given by their ids.
    """
    calm = {
        node.name: node.id
        for node in graph.nodes
        if node.kind == "pipeline"
        and node.id in states
        and states[node.id].tone == "ok"
        and not node.change
        and node.name not in opened
    }
    if each or len(calm) < _LEAST_JOINED:
        return outline_of_graph(graph, calm.keys(), urgent), states
    joined = with_joined_pipelines(graph, calm.keys(), urgent)
    return joined, {**states, JOINED: states[next(iter(calm.values()))]}


def worst_first(
    graph: ProjectGraph, builds: Iterable[BuildStatus], states: Mapping[str, Health]
) -> ProjectGraph:
    """Returns the same graph with its nodes in the order of their pipelines, the most urgent first.

    `states` are the states of nodes by id. The node of several pipelines comes last.
    """
    builds = tuple(builds)
    live = {build.pipeline: build for build in builds if build.role == "live"}
    waiting = {
        build.pipeline for build in builds if build.rollout is not None and build.rollout.waits
    }

    def key(node: GraphNode) -> tuple[int, int]:
        name = node.name if node.kind == "pipeline" else node.pipeline
        if name not in live:
            return _LAST if node.id == JOINED else -1, 0
        lag = live[name].lag
        return urgency(states.get(f"pipeline:{name}"), lag, waits=name in waiting)

    return replace(graph, nodes=tuple(sorted(graph.nodes, key=key)))
