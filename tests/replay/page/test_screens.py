"""Laws of the screens of the graph, topics, alerts and logs."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from journals import READY, numbered
from msgspec import structs
from page_world import EVIL, World
from test_page import got, serving

from kappa.base.errors import Broken
from kappa.base.sections import Role
from kappa.kafka.reader import Record
from kappa.replay.page import routes, topic
from kappa.replay.page.alerts import notice_rows, sorted_alerts
from kappa.replay.page.graph_states import graph_states, with_folded_pipelines, worst_first
from kappa.replay.page.open_matters import OpenMatter, open_matters
from kappa.replay.page.states import Health, alert_health
from kappa.replay.rollout.fold import fold_records
from kappa.replay.status.alerts import AlertState, AlertStatus, ShownNotice
from kappa.replay.status.graph import JOINED, NEW, GraphNode, ProjectGraph
from kappa.replay.status.logs import (
    LogLevel,
    build_logs,
    log_columns,
    log_end,
    log_part,
    place_at,
)
from kappa.replay.status.status import BuildStatus, observe_status
from kappa.replay.status.topics.details import retention_text
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.tokens import TokenFile
from kappa.serving.http.page.formatting import shared_day
from kappa.serving.outlets.alerts.message import Message
from kappa.serving.outlets.alerts.outbox import DeadLetter, put_dead_letter
from kappa.serving.outlets.sinks.sink_status import SinkState, SinkStatus
from kappa.state.build_status import put_stopped
from kappa.state.drift import Drift, DriftKind, put_drifts
from kappa.state.journal.events import CaughtUp, Failed, PromoteAsked, Proved, Staged
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Returns a world for one test that is up and serves nothing yet."""
    made = World(tmp_path)
    made.be_up()
    return made


NODES = (
    *(GraphNode(f"topic:{name}", "topic", name) for name in ("busy", "quiet", "lost", "new")),
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
        {"busy": 0.5, "quiet": 0.0, "new": None},
        [
            SinkStatus(SinkState("out", "hits", "web", "follows"), "follows", 0.0),
            SinkStatus(SinkState("stuck", "hits", "web", "retries", error="no"), "retries", 9.0),
        ],
        [alert("told"), alert("wrong", error="500"), alert("given_up", dead=1200)],
        {("web", "bad"): "no such column"},
    )

    assert {name: (each.word, each.tone) for name, each in states.items()} == {
        "topic:busy": ("Receives records", "ok"),
        "topic:quiet": ("Quiet now", "unknown"),
        "topic:lost": ("Not on the broker", "bad"),
        "pipeline:web": ("Following", "ok"),
        "pipeline:slow": ("Behind", "warn"),
        "table:web.hits": ("Following", "ok"),
        "table:web.bad": ("Broken", "bad"),
        "table:slow.late": ("Behind", "warn"),
        "sink:out": ("Up to date", "ok"),
        "sink:stuck": ("Cannot send", "bad"),
        "alert:told": ("Up to date", "ok"),
        "alert:wrong": ("Cannot send", "bad"),
        "alert:given_up": ("Has dead letters", "bad"),
    }


def test_the_graph_shows_how_each_thing_is(world: World) -> None:
    world.goes_live(world.build("web-1", offset=1234), 1)
    world.alerts()
    with serving(world) as server:
        page, wrong = got(server, "/graph"), got(server, "/graph?only=trouble")

    assert "alert late. Cannot send: canary answered 500" in wrong.text
    assert "/topics/visits" not in {each.get("href") for each in wrong.all("a")}
    assert "table page_hits, folded by key. Up to date" in page.text
    assert "alert late. Cannot send: canary answered 500" in page.text
    # The legend has the words of the states in the picture.
    assert "up to date" in page.text
    assert "cannot send" in page.text


def test_a_graph_of_many_pipelines_folds_the_healthy_ones(world: World) -> None:
    """Links unfold the healthy ones, and then one of these, without scripts."""
    for number in range(1, 9):
        name = f"calm-{number}" if number > 1 else "stopped"
        build = world.build(f"b-{number}", offset=1234, pipeline=name)
        world.goes_live(build, number, pipeline=name)
    put_stopped(world.store, "b-1", Broken("broken"))
    world.be_up()
    with serving(world) as server:
        joined, page = got(server, "/graph?zoom=50"), got(server, "/graph?zoom=50&healthy=each")
        opened = got(server, "/graph?open=calm-2&zoom=50")
        late = got(server, "/graph?only=trouble")
        searched = got(server, f"/graph?search={quote(EVIL)}&open={quote(EVIL)}")

    links = {each.get("href", "") for each in joined.all("a")}
    assert "The 7 pipelines that are healthy are shown as one: show each" in joined.text
    assert "7 pipelines, 7 tables, 2 alerts. Up to date" in joined.text
    assert {"/graph?zoom=50&healthy=each", "/tables/stopped/hits_b-1"} <= links
    assert "/tables#calm-2" not in links
    hrefs = {each.get("href", "") for each in page.all("a")}
    assert "7 healthy pipelines stand for their tables" in page.text
    assert "/graph?zoom=50&healthy=each&open=calm-2" in hrefs
    assert "/graph?zoom=150&healthy=each" in hrefs
    assert "/tables/stopped/hits_b-1" in hrefs
    assert "/tables/calm-2/hits_b-2" not in hrefs
    assert "/tables/calm-2/hits_b-2" in {each.get("href") for each in opened.all("a")}
    assert "hits_b-1" in late.text
    assert "calm-2" not in {each.get("href", "").partition("#")[2] for each in late.all("a")}
    assert "Nothing has this in its name." in searched.text


def test_only_healthy_pipelines_are_folded() -> None:
    """A pipeline that is behind, or whose state is not known, has a node of its own."""
    names = ("fine", "well", "late", "unmeasured", "unknown")
    nodes = tuple(GraphNode(f"pipeline:{name}", "pipeline", name) for name in names)
    ok, late = Health("Up to date", "ok"), Health("Behind", "warn")
    states = {
        **{f"pipeline:{name}": ok for name in ("fine", "well")},
        "pipeline:late": late,
        "pipeline:unmeasured": Health("Measuring", "unknown"),
    }

    found, shown = with_folded_pipelines(
        ProjectGraph(nodes, ()), states, {"pipeline:late"}, (), each=False
    )

    assert {each.name for each in found.nodes} == {"late", "unmeasured", "unknown", "2 pipelines"}
    assert shown[JOINED] == ok


def test_the_worst_pipelines_come_first() -> None:
    """First those with an error, then the late ones by lag, those that wait, and the rest."""
    lags = {"a": 0, "b": 5, "c": 9, "d": 2, "e": 0}
    tones = {"a": "ok", "b": "warn", "c": "warn", "d": "bad", "e": "ok"}
    builds = [
        BuildStatus(name, "live", f"{name}-1", "v", Offsets(), lag, None, 0, 0)
        for name, lag in lags.items()
    ]
    rollout = next(each for each in fold_records(numbered(*READY)).rollouts if each.waits)
    builds.append(replace(builds[-1], role="candidate", rollout=rollout))
    nodes = [GraphNode(JOINED, "pipeline", "2 pipelines", is_folded=True)]
    nodes += [GraphNode(f"pipeline:{name}", "pipeline", name) for name in lags]
    states = {f"pipeline:{name}": Health(tone, tone) for name, tone in tones.items()}

    found = worst_first(ProjectGraph(tuple(nodes), ()), builds, states)

    names = [each.name for each in found.nodes]
    assert names == ["d", "c", "b", "e", "a", "2 pipelines"]


def test_a_calm_graph_has_nothing_that_is_late(world: World) -> None:
    world.goes_live(world.build("web-1", offset=1234), 1)
    world.be_up()
    with serving(world) as server:
        assert "Nothing has a problem." in got(server, "/graph?only=trouble").text


# Topics.


def test_the_list_of_topics_has_size_retention_and_lags(world: World) -> None:
    """The reader that is furthest behind stands first, and readers beyond five are folded."""
    for number in range(1, 8):
        name = f"reader-{number}"
        world.goes_live(world.build(f"b-{number}", offset=1234, pipeline=name), number,
                        pipeline=name)  # fmt: skip
    world.goes_live(world.build("late-1", offset=1000, pipeline="zlate"), 8, pipeline="zlate")
    world.be_up()
    segment = world.store.local.path("broker/data/visits-0/0.log")
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"x" * 3_000)
    with serving(world) as server:
        text = got(server, "/topics").text

    assert "3.0 kB" in text
    assert "7 d" in text
    assert "min ago" in text
    assert text.index("zlate serving 351 behind") < text.index("reader-1 serving 0 behind")
    assert "and 3 other pipelines" in text


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"cleanup.policy": "compact", "retention.ms": "1"}, "latest by key"),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}, "for ever"),
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, "7 d"),
        ({"cleanup.policy": "compact,delete", "retention.ms": "60000"}, "latest by key, 1 min"),
        ({"cleanup.policy": "delete", "retention.bytes": "2000000"}, "2 MB a partition"),
    ],
)
def test_a_retention_is_told_in_words(config: dict[str, str], told: str) -> None:
    assert retention_text(config).replace("2.0", "2") == told


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
    """A desk of a project that serves nothing."""

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


@pytest.mark.parametrize(
    ("times", "day"),
    [
        (["2026-01-31T00:00:00Z", "", "2026-01-31T23:59:59.999Z"], "2026-01-31"),
        (["2026-01-31T23:59:59Z", "2026-02-01T00:00:00Z"], ""),
        (["no time", ""], ""),
        ([""], ""),
        ([], ""),
    ],
)
def test_a_header_has_the_day_of_all_times(times: list[str], day: str) -> None:
    assert shared_day(times) == day


def test_topics_show_lag_and_the_newest_record(world: World) -> None:
    """One link a pipeline, live first; a topic that nobody reads says why it is no link."""
    world.goes_live(world.build("web-1", offset=200), 1)
    world.build("web-2")
    world.waits("web-2", "web-1")
    with serving(world) as server:
        page = got(server, "/topics")

    links = [each["href"] for each in page.all("a") if (each["href"] or "").startswith("/tables#")]
    assert links == ["/tables#web"]
    assert page.text.index("visits retained") < page.text.index("salaries")
    assert "web serving, candidate" in page.text
    assert "1,551" in page.text
    assert "1 min ago" in page.text
    assert "no build, so its records are not shown" in page.text
    assert "measuring" in page.text


def test_a_topic_says_what_it_shows_of_what_there_is(world: World) -> None:
    """The day of all shown records is in the header, and the filter says what is chosen."""
    world.goes_live(world.build("web-1", offset=200), 1)
    with serving(world) as server:
        one = got(server, "/topics/visits?partition=0&start=3")
        whole = got(server, "/topics/visits")

    # A wide window shows all records, and a narrow window the first.
    assert "Offsets 3 to 52 Offsets 3 to 22 of 0 to 1,233, oldest first, of partition 0" in one.text
    assert "Read by web: serving · 1,551 behind" in one.text
    assert "Filter: partition 0, from 3" in one.text
    day = datetime.fromtimestamp(1_790_000_000, UTC).strftime("%Y-%m-%d")
    assert f"Time {day} UTC" in one.text
    assert f"{day} {datetime.fromtimestamp(1_790_000_002, UTC):%H:%M:%S}" not in one.text
    assert "50 20 of 1,851 records, newest first" in whole.text
    # What leads onward is on the right.
    assert "Older Newer" in one.text
    assert "Newer Older" in whole.text
    assert "Filter: all records" in whole.text


def test_filters_stand_above_the_records(world: World) -> None:
    """An update of the page leaves what one has typed: the filters are in no part of it."""
    world.goes_live(world.build("web-1", offset=200), 1)
    with serving(world) as server:
        page = got(server, "/topics/visits?key=nobody")
        html = server.ask("GET", "/topics/visits", Accept="text/html").body.decode()

    text = page.text
    assert text.index("Read by") < text.index("From an offset") < text.index("records looked at")
    live = html.index('<div id="standing" data-live>'), html.index('<div id="topic" data-live>')
    assert live[0] < html.index('<form class="filter"') < live[1]
    assert "</form>" in html[: live[1]]
    assert html.count("<section") == html.count("</section>")


# Alerts.


def told(kind: str, *, build: str = "web-1", rollout: int | None = None) -> ShownNotice:
    return ShownNotice(
        kind, f"2026-01-01T00:00:0{len(kind) % 10}Z", kind, "", "web", build, rollout, "", None
    )


def test_a_notice_is_open_while_it_holds(world: World) -> None:
    """Open ones come first, critical ones before warnings; a newer rollout settles a failed one.

    A fact that no notice tells has a row too.
    """
    store = world.store
    world.goes_live(world.build("web-1"), 1)
    found = [
        *(told("disk_full"), told("drift"), told("build_stopped"), told("proof_differs")),
        *(told("rollout_failed", rollout=2), told("rollout_waits", rollout=4)),
    ]

    def seen() -> dict[str, str]:
        now, state = datetime.now(UTC), world.here.state()
        matters = open_matters(observe_status(store, None), state, now, supervised=True)
        rows = notice_rows(found, matters)
        assert [row.is_open for row in rows].count(True) == len(matters)
        return {f"{row.notice.kind} {row.notice.rollout or ''}": row.health.word for row in rows}

    world.append(Staged("web", "web-f", "version", ("new",)))
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, "no", ""))
    assert seen()["rollout_failed 2"] == "Critical"
    world.append(Staged("shop", "shop-1", "version", ("new",)))
    world.append(Failed(number + 2, "no", ""))
    world.append(Proved("web", "web-1", Offsets(), "one", 1, None, equal=False, rows=3, hash="h"))
    world.build("web-2")
    world.waits("web-2", "web-1")
    last = world.here.state().rollouts[-1].id
    put_stopped(store, "web-1", Broken("broken"))
    put_drifts(store, "web-1", [Drift(DriftKind.FIELD, "visits", "f", "drift", "", "", "")])
    open_ones = [
        ("rollout_failed 3", "Critical"),
        ("build_stopped ", "Critical"),
        ("proof_differs ", "Critical"),
        ("drift ", "Warning"),
        ("rollout_waits 4", "Warning"),
    ]
    assert sorted(each for each in seen().items() if each[1] != "Resolved") == sorted(open_ones)
    assert list(seen().values())[:6] == [
        *("Critical", "Critical", "Critical", "Warning", "Warning", "Resolved")
    ]

    # The build before stays stopped, and an undo would need it.
    world.append(PromoteAsked(last))
    world.switches(last, "web-2", 2, "web-1")
    still = [kind for kind, word in seen().items() if word != "Resolved"]
    assert still == ["rollout_failed 3", "build_stopped "]


@pytest.mark.parametrize("path", ["/", "/alerts"])
def test_a_page_of_open_matters_finds_them_once(
    world: World, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The number in the navigation is of the same matters."""
    world.goes_live(world.build("web-1"), 1)
    world.build("web-2")
    world.waits("web-2", "web-1")
    found = []

    def find(*values: Any, **named: Any) -> tuple[OpenMatter, ...]:
        found.append(open_matters(*values, **named))
        return found[-1]

    monkeypatch.setattr(routes, "open_matters", find)
    with serving(world) as server:
        page = got(server, path)

    (matters,) = found
    assert "rollout_waits" in {each.kind for each in matters}
    assert f"Alerts {len(matters)} History" in page.text


def test_the_worst_alert_comes_first() -> None:
    alerts = [alert("a"), alert("b", dead=1), alert("c", error="500"), alert("d")]

    assert [each.name for each in sorted_alerts(alerts)] == ["b", "c", "a", "d"]
    assert [alert_health(each).tone for each in alerts] == ["ok", "bad", "bad", "ok"]


def test_an_alert_shows_its_condition_and_the_command(world: World) -> None:
    """The notices about the platform are no alert of a table."""
    world.goes_live(world.build("web-1"), 1)
    world.waits(world.build("web-2"), "web-1")
    world.alerts()
    world.notices()
    with serving(world) as server:
        page = got(server, "/alerts")
        html = server.ask("GET", "/alerts", Accept="text/html").body.decode()

    assert "hits > 9" in page.text
    assert "on insert, update, delete" in page.text
    assert "kappa alerts retry late" in page.text
    assert page.text.index("late Cannot send") < page.text.index("busy Nothing sent yet")
    # One button sends the dead letter of an alert, and the time of a failure is known.
    letters = [each for each in page.all("button") if "data-letters" in each]
    assert [each.get("data-letter") for each in letters] == [None]
    section = page.text[page.text.index("Dead letters of late") :]
    assert section.index("Send the dead letter again…") < section.index("Given up Tries Reason")
    # The notice leads to the row of the alert.
    assert "#alert-late" in {each.get("href") for each in page.all("a")}
    assert "alert-late" in {each.get("id") for each in page.all("tr")}
    assert re.search(
        r"canary answered 500 Began to fail (\d+ s ago|just now) Next try in", page.text
    )
    # Commands of hints are code; no hint leads to the page itself.
    assert "<code>kappa promote web</code>" in html
    assert "kappa alerts list" not in page.text
    assert re.search(r"Critical (\d+ s ago|just now) Alert late cannot send", page.text)
    folded = {each.get("id") for each in page.all("details") if "open" not in each}
    assert "newest" in folded
    assert "letters-1" not in folded


def test_a_message_is_shown_as_fields_which_open_to_its_json(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    world.alerts()
    row = {"op": "insert", "key": {"page": "/cart"}, "after": {"page": "/cart", "hits": 5}}
    for id_, body in (("msg_8", json.dumps(row)), ("msg_9", "no json")):
        put_dead_letter(world.store, "late", DeadLetter(Message(id_, body), "refused", 3, "now"))
    with serving(world) as server:
        page = got(server, "/alerts")

    assert f"insert · page /cart · hits 5 {json.dumps(row)}" in page.text
    assert "no json" in page.text
    assert "message-msg_9" not in {each.get("id") for each in page.all("details")}


@pytest.mark.parametrize(("letters", "is_open"), [(5, True), (6, False)])
def test_few_dead_letters_are_open(world: World, letters: int, is_open: bool) -> None:
    """One button is for all, and each letter has its own."""
    world.goes_live(world.build("web-1"), 1)
    world.alerts()
    for number in range(2, letters + 1):
        letter = DeadLetter(Message(f"msg_{number}", "{}"), "refused", 3, "2026-01-01T00:00:00Z")
        put_dead_letter(world.store, "late", letter)
    with serving(world) as server:
        page = got(server, "/alerts")

    (found,) = [each for each in page.all("details") if each.get("id") == "letters-1"]
    assert ("open" in found) == is_open
    assert f"Send {letters} dead letters again…" in page.text
    assert sum("data-letter" in each for each in page.all("button")) == letters
    assert "kappa the platform" not in page.text


# Logs.

BEGUN = datetime(2026, 12, 1, 8, tzinfo=UTC)


def written_log(path: Path, seed: int) -> list[tuple[datetime, str]]:
    """Writes a log, and returns the lines, each with the time of itself or of the line before."""
    chance, at = random.Random(seed), BEGUN
    lines: list[tuple[datetime, str]] = []
    for number in range(chance.choice([0, 1, 7, 300])):
        at += timedelta(seconds=chance.randint(0, 3))
        level = chance.choice(["INFO", "WARN", "ERROR"])
        stamp = at.strftime("%Y-%m-%dT%H:%M:%S.123Z")
        lines.append((at, f"{stamp} {level} kappa: line {number} {'x' * chance.randint(0, 99)}"))
        lines += [(at, "  more of it")] * chance.choice([0, 0, 2])
    path.write_text("".join(f"{line}\n" for _, line in lines))
    return lines


@pytest.mark.parametrize("least", [None, LogLevel.ERROR])
def test_parts_of_a_log_have_each_line_once(tmp_path: Path, least: LogLevel | None) -> None:
    """From the end to the begin, and from the begin to the end."""
    path, bounds = tmp_path / "log", {"most_lines": 40, "most_bytes": 5000}
    for seed in range(12):
        lines = written_log(path, seed)
        backward, forward = list[str](), list[str]()
        part = log_part(path, least=least, **bounds)
        while True:
            backward = [line for _, line in part.lines] + backward
            if part.begin == 0:
                break
            part = log_part(path, least=least, before=part.begin, **bounds)
        part = log_part(path, least=least, start=0, **bounds)
        while True:
            forward += [line for _, line in part.lines]
            if part.end == part.size:
                break
            part = log_part(path, least=least, start=part.end, **bounds)

        wanted = [line for _, line in lines if least is None or " ERROR " in line]
        assert [each for each in backward if least is None or each[:1] != " "] == wanted
        assert [each for each in forward if least is None or each[:1] != " "] == wanted


def test_a_log_opens_at_a_time(tmp_path: Path) -> None:
    """At the first line since then, wherever it is."""
    path = tmp_path / "log"
    for seed in range(12):
        lines = written_log(path, seed)
        for seconds in (-5, 0, 1, 100, 250, 9999):
            moment = BEGUN + timedelta(seconds=seconds)
            later = [line for at, line in lines if at >= moment]
            found = path.read_bytes()[place_at(path, moment) :].decode().splitlines()
            # Lines without a time before it are of the line before.
            assert found == later


def test_a_huge_log_is_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(b"\n2026-12-01T08:00:00Z INFO kappa: the end\n")
    part = log_part(path, most_lines=500, most_bytes=1 << 20)

    assert [line for _, line in part.lines] == ["2026-12-01T08:00:00Z INFO kappa: the end"]
    assert log_part(path, before=part.begin, most_lines=500, most_bytes=1 << 20).begin < part.begin
    assert 0 <= place_at(path, BEGUN) <= path.stat().st_size


def test_the_logs_of_all_builds_are_listed(world: World) -> None:
    """The serving build comes first, then the candidate, the idle build, and earlier builds."""
    candidate = world.lives()
    world.append(Staged("shop", "shop-1", "version", ("new",)))
    for build in ("web-1", "web-2", "web-3", "web-f", "web-a", "shop-1", "unknown"):
        write_log(world, build, f"12:00 INFO kappa: {build} begins")
    with serving(world) as server:
        page, failed, one = (got(server, f"/logs/{name}") for name in ("web", "web-f", candidate))

    assert [each.build for each in build_logs(world.store, world.here.state())] == [
        *("shop-1", "web-2", "web-3", "web-1", "web-a", "web-f")
    ]
    listed = "web-2 serving web-3 candidate web-1 kept web-a abandoned web-f failed"
    assert f"shop shop-1 candidate web {listed}" in page.text
    for shown, build in ((page, "web-3"), (failed, "web-f"), (one, "web-3")):
        current = [each["href"] for each in shown.all("a") if each.get("aria-current") == "page"]
        assert current == ["/logs", f"/logs/{build}"]
        assert f"{build} begins" in shown.text


def test_a_phone_leaves_out_fractions_and_the_constant_word_of_log_lines(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    write_log(world, "web-1", "2026-12-01T08:00:00.123Z INFO kappa: it begins")
    with serving(world) as server:
        html = server.ask("GET", "/logs/web-1", Accept="text/html").body.decode()

    assert '08:00:00<span class="spared">.123</span></time>' in html
    assert '<span class="spared">kappa: </span>it begins' in html


def test_of_many_logs_some_are_folded(world: World) -> None:
    """The log on the page stays in sight; each build is listed once beside it."""
    for number in range(5):
        build = world.build(f"p-{number}", pipeline=f"p{number}")
        world.goes_live(build, number + 1, pipeline=f"p{number}")
        write_log(world, f"p-{number}", "12:00 INFO kappa: begins")
    for number in range(9):
        world.append(Staged("p0", f"old-{number}", "version", ("new",)))
        begun = max(record.number for record in world.journal.after(0))
        world.append(Failed(begun, "no", ""))
        write_log(world, f"old-{number}", "12:00 INFO kappa: begins")
    with serving(world) as server:
        page, other = got(server, "/logs/old-1"), got(server, "/logs/p-1")

    near = "old-8 failed old-7 failed old-6 failed old-5 failed old-4 failed old-1 failed"
    assert f"p0 p-0 serving {near} 4 earlier builds old-3 failed" in page.text
    assert "4 other pipelines p1 p-1 serving p2" in page.text
    assert "p1 p-1 serving 4 other pipelines p0 p-0 serving old-8" in other.text


TRACE = (
    "Traceback (most recent call last):",
    '  File "pipelines/web.py", line 3, in web',
    "    return {'page_hits': visits.select('page.path')}",
    f"ValueError: no field page.path {EVIL}",
)


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        (TRACE, TRACE[-1]),
        ((*TRACE, *(f"2026-12-01T08:00:00Z INFO kappa: end {n}" for n in range(20))), TRACE[-1]),
        ((*TRACE, "2026-12-01T08:00:00Z ERROR kappa: <no> disk", "  for it"), "<no> disk"),
        ((*TRACE, "2026-12-01T08:00:00Z ERROR SparkContext: lost"), "SparkContext: lost"),
        (("2026-12-01T08:00:00Z INFO kappa: ended",), ""),
        ((), ""),
    ],
)
def test_the_end_of_a_log_has_its_last_error(
    tmp_path: Path, lines: tuple[str, ...], error: str
) -> None:
    """However large the log is; the last ten lines follow."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write("".join(f"\n{line}" for line in ("begin", *lines)).encode())
    found = log_end(path)

    assert found.error == error
    assert [line for _, line in found.lines if "\0" not in line] == ["begin", *lines][-10:]


def died(world: World) -> None:
    """Makes rollout 2 of web fail, since the job of its build web-f died, and writes its log."""
    world.goes_live(world.build("web-1"), 1)
    world.append(Staged("web", "web-f", "version", ("new",)))
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, "the job of build web-f died 3 times in a row", "mend it"))
    write_log(world, "web-f", *TRACE)


def write_log(world: World, build: str, *lines: str) -> None:
    path = world.store.local.path(f"logs/{build}.log")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def test_a_rollout_whose_job_died_shows_the_end_of_its_log(world: World) -> None:
    """Whoever may not read logs sees none of the log."""
    died(world)
    file = TokenFile(world.here.settings.project / "tokens.json")
    texts = {role: file.add_token(role, [role], made_by="me") for role in (Role.READ, Role.STAGE)}
    with serving(world, accounts=Accounts(file=file)) as server:
        read, stage = (
            got(server, "/rollouts/2", Authorization=f"Bearer {texts[role]}") for role in texts
        )

    box = "Failed in the stage Replay: the job of build web-f died 3 times in a row Mend it "
    assert f"{box}{TRACE[-1]} The last lines of its log {TRACE[0]}" in stage.text
    assert "Nothing has changed for readers" in stage.text[stage.text.index("Log of its job") :]
    # One link leads to the log, and a dotted name breaks after its dot.
    assert [each["href"] for each in stage.all("a")].count("/logs/web-f") == 1
    assert len(stage.all("wbr")) == 1
    assert read.status == 200
    assert "page.path" not in read.text


def test_a_failed_verification_shows_no_log(world: World) -> None:
    """Its checks tell why it failed, and not its job."""
    world.goes_live(world.build("web-1"), 1)
    world.append(Staged("web", "web-f", "version", ("new",)))
    number = max(record.number for record in world.journal.after(0))
    verdict = structs.replace(world.verified(number, "web-1"), verdict="failed", reason="no")
    world.append(CaughtUp(number, Offsets()), verdict)
    write_log(world, "web-f", *TRACE)
    with serving(world) as server:
        page = got(server, "/rollouts/2")

    assert "Failed in the stage Verify: no" in page.text
    assert "page.path" not in page.text


def test_a_live_job_that_stopped_shows_the_end_of_its_log(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    put_stopped(world.store, "web-1", Broken("broken"))
    write_log(world, "web-1", *TRACE)
    with serving(world) as server:
        page = got(server, "/")

    assert f"broken Log {TRACE[-1]} The last lines of its log {TRACE[0]}" in page.text


@pytest.mark.parametrize(
    ("line", "columns"),
    [
        (
            "2026-12-01T08:00:00.123Z WARN kappa: a  b",
            ("2026-12-01T08:00:00.123Z", "WARN", "kappa: a  b"),
        ),
        ("2026-12-01T08:00:00Z  INFO <b>", ("2026-12-01T08:00:00Z", "INFO", "<b>")),
        ("  at java.Main WARN x", ("", "", "  at java.Main WARN x")),
        ("", ("", "", "")),
    ],
)
def test_a_log_line_has_columns(line: str, columns: tuple[str, str, str]) -> None:
    """A line without a time and a level, as of a trace, is text as a whole."""
    assert log_columns(line) == columns


def test_a_log_is_followed_paged_and_downloaded(world: World) -> None:
    """Whoever reads an older part is left alone; the chips count, and filter."""
    world.goes_live(world.build("web-1"), 1)
    path = world.store.local.path("logs/web-1.log")
    path.parent.mkdir(exist_ok=True)
    text = "".join(
        f"2026-12-01T08:00:00Z {'ERROR' if number % 9 == 0 else 'INFO'} kappa: line {number}\n"
        for number in range(900)
    )
    path.write_text(text)
    with serving(world) as server:
        page, still = got(server, "/logs/web-1"), got(server, "/logs/web-1?follow=no")
        wrong = got(server, "/logs/web-1?at=yesterday")
        older = next(
            each["href"] or "" for each in page.all("a") if "before=" in (each["href"] or "")
        )
        before = got(server, older)
        file = server.ask("GET", "/logs/web-1/file")

    def is_live(page: object) -> bool:
        return any(each.get("id") == "log" and "data-live" in each for each in page.all("div"))  # type: ignore[attr-defined]

    assert "500 lines of the last 900" in page.text
    assert "2026-12-01 UTC" in page.text
    assert "2026-12-01 08:00:00" not in page.text
    assert "Errors 100" in page.text
    assert "web web-1 serving" in page.text
    assert "Pipeline web , serving build · Rollout 1" in page.text
    assert "line 399 " in f"{before.text} "
    assert [is_live(each) for each in (page, still, before)] == [True, False, False]
    assert "is not a time" in wrong.text
    assert file.body.decode() == text
    assert file.headers["content-disposition"] == 'attachment; filename="web-1.log"'
