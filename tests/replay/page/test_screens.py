"""Laws of the screens of the graph, topics, alerts and logs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from page_world import World
from test_page import got, serving

from kappa.kafka.reader import Record
from kappa.replay.page import topic
from kappa.replay.page.graph_states import graph_states
from kappa.replay.page.overview import Health
from kappa.replay.status.alerts import AlertState, AlertStatus
from kappa.replay.status.graph import NEW, GraphNode, ProjectGraph
from kappa.serving.outlets.sinks.sink_status import SinkState, SinkStatus
from kappa.state.offsets import Offsets

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


# Topics.


class HoledLog:
    """A log of some partitions with holes, as compaction and transactions leave them."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.kept: dict[int, dict[int, int]] = {}
        for partition in range(chance.randint(1, 5)):
            at, times = 0, dict[int, int]()
            for offset in range(chance.choice([0, 3, 90, 400])):
                at += chance.randint(0, 3)
                if chance.random() < 0.6:
                    times[offset] = at
            self.kept[partition] = times
        self.ends = {part: max(times, default=-1) + 5 for part, times in self.kept.items()}

    def topics(self) -> dict[str, None]:
        return {"visits": None}

    def beginning(self, _: Iterable[str]) -> Offsets:
        return Offsets({"visits": dict.fromkeys(self.ends, 0)})

    def end(self, _: Iterable[str]) -> Offsets:
        return Offsets({"visits": self.ends})

    def records(self, _: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        for name, partition, last in end.items():
            for offset, at in self.kept[partition].items():
                if start.at(name, partition) <= offset < last:
                    value = b"even" if offset % 2 == 0 else b"odd"
                    yield Record(name, partition, offset, at, None, value, ())


def pages_of(log: HoledLog, wanted: topic.RecordSearch) -> list[list[tuple[int, int, int]]]:
    """Returns the places and times on all pages that one turns to from a first page."""
    found, here = list[list[tuple[int, int, int]]](), wanted
    for _ in range(200):
        view = topic._found_records(_NoDesk(), log, "visits", here)  # type: ignore[arg-type]
        found.append([(each.timestamp_ms, each.partition, each.offset) for each in view.records])
        following = view.newer if wanted.is_forward else view.older
        if not following:
            return found
        start, before = (following, "") if wanted.is_forward else ("", following)
        here = topic.RecordSearch(
            None, start, before, wanted.key, wanted.value, "oldest" if start else "newest"
        )
    raise AssertionError("there is no end of pages")


class _NoDesk:
    """What is served while nothing is."""

    def generation(self) -> int:
        return 0


@pytest.mark.parametrize("value", ["", "even", "nothing"])
@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_pages_have_each_record_once(order: str, value: str) -> None:
    """In both directions, across holes, and each page is in the order of time."""
    for seed in range(12):
        log = HoledLog(seed)
        pages = pages_of(log, topic.RecordSearch(value=value, order=order))

        shown = [each for page in pages for each in page]
        wanted = [
            (at, partition, offset)
            for partition, times in log.kept.items()
            for offset, at in times.items()
            if value in ("even" if offset % 2 == 0 else "odd")
        ]
        assert sorted(shown) == sorted(wanted), seed
        for page in pages:
            times = [at for at, _, _ in page]
            assert times == sorted(times, reverse=order == "newest")


def test_a_search_stops_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it looked, and its next page searches from there."""
    monkeypatch.setattr(topic, "_LOOKED_AT", 500)
    log = HoledLog(0)
    log.kept = {0: dict.fromkeys(range(2000), 7)}
    log.ends = {0: 2000}
    view = topic._found_records(
        _NoDesk(),  # type: ignore[arg-type]
        log,  # type: ignore[arg-type]
        "visits",
        topic.RecordSearch(value="nobody has it"),
    )

    assert view.ended
    assert 500 <= view.looked_at < 1500
    assert view.older == f"0:{2000 - view.looked_at}"
    assert not view.newer


def test_a_search_that_takes_too_long_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards, what was not read to its end is not counted as read."""
    monkeypatch.setattr(topic, "_SEARCH_SECONDS", -1.0)
    log = HoledLog(0)
    log.kept = {0: dict.fromkeys(range(2000), 7)}
    log.ends = {0: 2000}
    for search, place in (
        (topic.RecordSearch(value="x"), "0:2000"),
        (topic.RecordSearch(value="x", order="oldest"), "0:1"),
    ):
        view = topic._found_records(_NoDesk(), log, "visits", search)  # type: ignore[arg-type]
        assert view.ended
        assert (view.newer if search.is_forward else view.older) == place
