"""Laws of the screens of the graph, topics, alerts and logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_world import World
from test_page import got, serving

from kappa.replay.page.graph_states import graph_states
from kappa.replay.page.overview import Health
from kappa.replay.status.alerts import AlertState, AlertStatus
from kappa.replay.status.graph import NEW, GraphNode, ProjectGraph
from kappa.serving.outlets.sinks.sink_status import SinkState, SinkStatus

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A world of a test's own, that is up and serves nothing yet."""
    made = World(tmp_path)
    made.be_up()
    return made


NODES = (
    *(GraphNode(f"topic:{name}", "topic", name) for name in ("busy", "quiet", "lost")),
    GraphNode("topic:later", "topic", "later", is_deployed=False),
    *(GraphNode(f"pipeline:{name}", "pipeline", name) for name in ("web", "slow", "first")),
    GraphNode("table:web.hits", "table", "hits", "web"),
    GraphNode("table:web.bad", "view", "bad", "web"),
    GraphNode("table:slow.late", "table", "late", "slow"),
    GraphNode("table:slow.new", "table", "new", "slow", change=NEW, rollout=4),
    *(GraphNode(f"sink:{name}", "sink", name) for name in ("out", "stuck")),
    *(GraphNode(f"alert:{name}", "alert", name) for name in ("told", "wrong", "given_up")),
    GraphNode("board:now", "board", "now"),
)
HOW = {"web": Health("Following", "ok"), "slow": Health("Behind", "warn")}


def alert(name: str, *, error: str = "", dead: int = 0) -> AlertStatus:
    counts = (5, 0, (None,) * dead)
    return AlertStatus(  # type: ignore[arg-type]  # only the number of letters counts
        *(name, "web", "hits", "page", AlertState.FOLLOWING, *counts),
        *(None, None, error, None, "1.web.1"),
    )


def test_a_table_is_as_its_pipeline_is() -> None:
    """Unless it is broken or does not serve yet; an outlet that fails says so."""
    states = graph_states(
        ProjectGraph(NODES, ()),
        {name: name for name in HOW},  # type: ignore[misc]  # the name stands for the build
        lambda build: HOW[build],  # type: ignore[index]
        {"busy": 0.5, "quiet": 0.0},
        [
            SinkStatus(SinkState("out", "hits", "web", "follows"), "follows", 0.0),
            SinkStatus(SinkState("stuck", "hits", "web", "retries", error="no"), "retries", 9.0),
        ],
        [alert("told"), alert("wrong", error="500"), alert("given_up", dead=1200)],
        {("web", "bad"): "no such column"},
    )

    assert {name: (each.word, each.tone) for name, each in states.items()} == {
        "topic:busy": ("Receives records", "ok"),
        "topic:quiet": ("No new records", "unknown"),
        "topic:lost": ("Not on the broker", "bad"),
        "pipeline:web": ("Following", "ok"),
        "pipeline:slow": ("Behind", "warn"),
        "table:web.hits": ("Fresh", "ok"),
        "table:web.bad": ("Broken", "bad"),
        "table:slow.late": ("Behind", "warn"),
        "sink:out": ("Sends", "ok"),
        "sink:stuck": ("Cannot send", "bad"),
        "alert:told": ("Follows", "ok"),
        "alert:wrong": ("Cannot send", "bad"),
        "alert:given_up": ("1,200 dead letters", "warn"),
    }


def test_the_graph_shows_how_each_thing_is(world: World) -> None:
    world.goes_live(world.build("web-1", offset=1234), 1)
    world.alerts()
    with serving(world) as server:
        page = got(server, "/graph")

    assert "table page_hits, folded by key. Fresh: Up to date" in page.text
    assert "alert late. Cannot send: canary answered 500" in page.text
    assert "stopped or failing" in page.text
    assert "late or paused" not in page.text
