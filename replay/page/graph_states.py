"""The states of a lineage's nodes, such as a fresh table, a late table or a stopped build. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kappa.replay.page.overview import Health
from kappa.replay.status.alerts import AlertState, AlertStatus
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
    table) to the reason. `rates` maps each topic of the broker to its growth, and is empty if the
    broker does not answer.
    """
    pipelines = {pipeline: health(build) for pipeline, build in live.items()}
    sent = {each.known.topic: _sink_state(each) for each in sinks}
    told = {each.name: _alert_state(each) for each in alerts}
    found: dict[str, Health | None] = {}
    for node in graph.nodes:
        match node.kind:
            case "topic" if node.is_deployed:
                found[node.id] = _topic_state(node.name, rates)
            case "pipeline":
                found[node.id] = pipelines.get(node.name)
            case "table" | "view" if node.change != NEW:
                why = broken.get((node.pipeline, node.name), "")
                state = pipelines.get(node.pipeline)
                found[node.id] = Health("Broken", "bad", why) if why else _table_state(state)
            case "sink":
                found[node.id] = sent.get(node.name)
            case "alert":
                found[node.id] = told.get(node.name)
    return {name: state for name, state in found.items() if state is not None}


def _topic_state(name: str, rates: Mapping[str, float | None]) -> Health | None:
    if not rates:
        return None
    if name not in rates:
        return Health("Not on the broker", "bad")
    rate = rates[name]
    if rate is None:
        return Health("Measuring", "unknown", "its rate is not known yet")
    return Health("Receives records", "ok") if rate else Health("No new records", "unknown")


def _table_state(state: Health | None) -> Health | None:
    if state is None or state.tone != "ok":
        return state
    return Health("Fresh", "ok", state.word)


def _sink_state(sink: SinkStatus) -> Health:
    if sink.known.error:
        return Health("Cannot send", "bad", sink.known.error)
    if sink.state in {"off", "waits", "fenced", "ended"}:
        return Health(sink.state.capitalize(), "warn")
    return Health("Sends" if sink.state == "follows" else sink.state.capitalize(), "ok")


def _alert_state(alert: AlertStatus) -> Health:
    if alert.error:
        return Health("Cannot send", "bad", alert.error)
    if alert.dead:
        return Health(f"{len(alert.dead):,} dead letters", "warn")
    if alert.state is AlertState.OFF:
        return Health("Off", "warn")
    if alert.state is AlertState.NEW:
        return Health("Nothing sent yet", "unknown")
    return Health("Follows", "ok")
