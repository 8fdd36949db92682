"""Computes the states of a lineage's nodes, such as a late table or a stopped build. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kappa.replay.page.states import (
    Health,
    alert_health,
    broken_health,
    sink_health,
    topic_health,
)
from kappa.replay.status.alerts import AlertStatus
from kappa.replay.status.graph import NEW, ProjectGraph
from kappa.replay.status.status import BuildStatus
from kappa.serving.outlets.sinks.sink_status import SinkStatus


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
    and is empty if the broker does not answer.
    """
    pipelines = {pipeline: health(build) for pipeline, build in live.items()}
    sent = {each.known.topic: sink_health(each) for each in sinks}
    told = {each.name: alert_health(each) for each in alerts}
    found: dict[str, Health | None] = {}
    for node in graph.nodes:
        match node.kind:
            case "topic" if node.is_deployed and rates:
                is_there = node.name in rates
                found[node.id] = topic_health(rates.get(node.name), is_there=is_there)
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
