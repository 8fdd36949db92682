"""Laws of the page: it shows the API's answers, and offers exactly the possible intents.

It escapes all text that strangers have written.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from html.parser import HTMLParser
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from asking import Answered, Server, problem
from journals import READY, numbered, pipeline_retired, staged
from msgspec import structs
from page_world import EVIL, ROWS, World

from kappa.base.errors import Conflict
from kappa.base.sections import Role
from kappa.commands.look import _status_text
from kappa.declare.sink import SinkBirth
from kappa.replay.page import api, build_rates, routes, samples
from kappa.replay.page.build_rates import HistoryPoint, rate_of, rates_over_time
from kappa.replay.page.overview import changes_text, lag_trend
from kappa.replay.page.rollout import actions_of, rollout_view, service_actions
from kappa.replay.page.states import health_of, rollout_health
from kappa.replay.page.table import _reader_processes
from kappa.replay.page.timeline import timeline_moments
from kappa.replay.page.topic import as_text, cut_length, pretty_json, topic_view
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.operator_requests import ask_redrive
from kappa.replay.rollout.verify import diff
from kappa.replay.rollout.verify.diff import Comparison, RowSample
from kappa.replay.status.status import BuildStatus, observe_status
from kappa.replay.status.status_cache import SharedLooks
from kappa.replay.status.status_text import status_document, status_heading, status_listing
from kappa.replay.status.topics.topic_growth import TopicRates
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.tokens import TokenFile
from kappa.serving.http import events, token
from kappa.serving.http.bounds import Bounds
from kappa.serving.http.headers import joined
from kappa.serving.http.page import formatting
from kappa.serving.http.page.render import _pages, page_html, problem_html
from kappa.serving.http.problem import HttpError
from kappa.serving.http.token import COOKIE, COOKIE_SECONDS, cookie_of, is_cookie_of
from kappa.serving.outlets.sinks.sink_status import SinkState, put_sink_state
from kappa.serving.query.render import Form
from kappa.serving.query.sandbox.question import Allowance
from kappa.state import disk_space
from kappa.state.build import folder_of_build, put_birth, read_birth
from kappa.state.build_status import ViewCost, put_stopped, put_view_costs
from kappa.state.drift import Drift, DriftKind, put_drifts
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Difference,
    Event,
    Failed,
    OutcomeCount,
    Paused,
    PipelineRetired,
    PromoteAsked,
    Proved,
    Staged,
    Verified,
)
from kappa.state.journal.journal import acting_as
from kappa.state.journal.projections import Pause
from kappa.state.kept_frontiers import read_kept_frontier
from kappa.state.lease import Lease, Pin
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HTML = "text/html,application/xhtml+xml"
PATHS = (
    *("/", "/tables", "/tables/web/page_hits", "/tables/web/by_page", "/tables/web/rejects"),
    *("/query", "/query?sql=from+page_hits", "/query?sql=select+page,hits+from+by_page"),
    *("/tables?search=hits", "/topics/visits?start=3&key=script&partition=0"),
    *("/topics/visits?value=script&order=oldest&before=0:9,1:7", "/rejects?at=visits:0:7"),
    *(
        "/topics",
        "/topics/visits",
        "/graph",
        "/graph?pipeline=web",
        "/graph?search=script&only=trouble&zoom=50&open=%3Cscript%3E",
        "/rejects",
        "/rejects?reason=no_json",
        "/alerts",
    ),
    *("/history", "/generations/1", "/generations/2", "/rollouts/{candidate}"),
    *("/rollouts/{candidate}/samples", "/rollouts/1", "/rollouts/3", "/rollouts/4"),
    "/rollouts/{candidate}/sends",
)

FAILED = (staged("b1"), CaughtUp(1, Offsets()), Failed(1, "no"))
Lived = tuple[Server, int]
BREAK = "<wbr>"
# A line does not break beside it.
ARROW = "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}"


class Page(HTMLParser):
    """A page as a browser reads it: its elements and its visible text."""

    def __init__(self, answered: Answered) -> None:
        super().__init__()
        self.status = answered.status
        self.headers = answered.headers
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(answered.body.decode())
        # Where a browser may break a name, the text has no space.
        self.text = re.sub(r"\s+", " ", " ".join(self.words).replace(f" {BREAK} ", ""))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "wbr":
            self.words.append(BREAK)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def serving(world: World, token: str | None = None, *, accounts: Accounts | None = None) -> Server:
    routers: Any = {"router": api.router, "more": (events.router, *routes.ROUTERS)}
    given: Any = {"token": token, "accounts": accounts, "desk": world.desk}
    given["counts"] = routes.open_counts
    return Server(world.store, Allowance(at_once=1), **given, **routers)


def got(server: Server, path: str, **headers: str) -> Page:
    return Page(server.ask("GET", path, Accept=HTML, **headers))


def sign_in(server: Server, form: bytes) -> Answered:
    return server.ask("POST", "/login", form, Content_Type="application/x-www-form-urlencoded")


def intents(page: Page) -> list[str | None]:
    return [each["data-intent"] for each in page.all("button") if "data-intent" in each]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    world = World(tmp_path_factory.mktemp("world"))
    candidate = world.lives()
    world.notices()
    world.be_up()
    with serving(world) as server:
        yield server, candidate


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Returns an empty world for one test, which is up."""
    made = World(tmp_path)
    made.be_up()
    return made


@pytest.mark.parametrize("path", PATHS)
def test_strangers_text_runs_on_no_page(lived: Lived, path: str) -> None:
    server, candidate = lived
    page = got(server, path.format(candidate=candidate))

    assert page.status == 200
    # Every script has a source, a file of ours. The page itself has no script, handler or style.
    assert all((each["src"] or "").startswith("/static/") for each in page.all("script"))
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    ["/tables/web/page_hits", "/topics/visits", "/rejects", "/alerts", "/history", "/rollouts/3"],
)
def test_strangers_text_is_told_as_written(lived: Lived, path: str) -> None:
    assert EVIL in got(lived[0], path).text


def test_overview_tells_live_idle_and_candidate(lived: Lived) -> None:
    server, candidate = lived
    page = got(server, "/")

    builds = {each["role"]: each for each in server.ask("GET", "/api/v1/builds").document["builds"]}
    assert {"live", "idle", "candidate"} == set(builds)
    assert all(f"{builds[role]['folded']:,}" in page.text for role in builds)
    assert f"{builds['live']['behind']:,}" in page.text
    button = next(each for each in page.all("a") if each.get("class") == "button main")
    assert button["href"] == f"/rollouts/{candidate}"
    assert any("data-chart" in each for each in page.all("div"))


def test_overview_shows_what_sinks_sent_or_why_not(world: World) -> None:
    world.lives()
    served = current_state(world.store).serving["web"]
    birth = read_birth(world.store, served)
    sinks = (SinkBirth("pages", "page_hits"), SinkBirth("<b>", "page_hits"))
    world.store.delete(f"{folder_of_build(served)}/birth.json")
    put_birth(world.store, structs.replace(birth, sinks=sinks))
    sent = SinkState("pages", "page_hits", "web", "follows", written=1200, deleted=3)
    for each in (sent, SinkState("<b>", "page_hits", "web", "retries", error="no <i> answers")):
        put_sink_state(world.store, each)
    with serving(world) as server:
        overview = got(server, "/")
        asked = json.loads(server.ask("GET", "/api/v1/sinks").body)

    assert "Sink pages of page_hits: 1,200 records written, 3 deleted" in overview.text
    assert "Sink <b> of page_hits: no <i> answers" in overview.text
    status = observe_status(world.store, None)
    document = status_document(status, None, None, None, datetime.now(UTC))
    assert document["failing"] == [
        "sink <b> cannot send: no <i> answers: kappa sinks",
        "alert late cannot send: canary answered 500: kappa alerts list",
    ]
    assert f"WARNING: {document['failing'][0]}\n" in status_heading(status, None, None)
    told = [(each["sink"], each["state"], each["written"]) for each in asked]
    assert told == [("<b>", "waits", 0), ("pages", "waits", 1200)]


def test_notices_are_a_table_with_proof_and_links(lived: Lived) -> None:
    """Each has a state, a time, a sentence with its proof, what it is about, and where to look."""
    page = got(lived[0], "/alerts")

    heads = page.text[page.text.index("Notices about the platform") :]
    assert heads.index("Severity Time Notice About Look at") < heads.index("The disk is full")
    links = {each["href"] for each in page.all("a")}
    assert {"/rollouts/3", "/topics/visits?partition=0&start=7"} <= links
    assert "/rejects?pipeline=web" in links
    assert any((each or "").startswith("/logs/%3Cscript") for each in links)
    assert f"visits:0:7 {EVIL}" in page.text
    assert all("colspan" not in each for each in page.all("td"))


def test_overview_begins_with_what_is_wrong(world: World) -> None:
    """Outlets that cannot send come first, then a waiting rollout, then drift, which is folded."""
    world.lives()
    drifts = [
        Drift(DriftKind.FIELD, "visits", name, f"field {name}", "visits:0:7", EVIL, "then")
        for name in ("a", EVIL)
    ]
    put_drifts(world.store, "web-2", drifts)
    with serving(world) as server:
        page = got(server, "/")

    told = (
        "Alert late cannot send: canary answered 500.",
        "On the way",
        "Waiting for approval",
        "web: events are no longer as declared, in 2 ways",
        "Pipelines",
    )
    places = [page.text.index(each) for each in told]
    assert places == sorted(places)
    assert {"class": "notice bad failing"} in page.all("div")
    # The card of a pipeline does not repeat what is on the way.
    in_sight, _, _ = page.text.partition("that a newer rollout replaced")
    assert in_sight.count("Waiting for approval") == 1
    # Records that were rejected are read, but not folded.
    assert re.search(r"Lag [\d,]+ Records read [\d,]+ Rejected", page.text)
    (drift,) = (each for each in page.all("details") if (each.get("id") or "") == "drift-web")
    assert "open" not in drift
    assert EVIL in page.text
    assert "/rollouts/5" in {each["href"] for each in page.all("a") if each.get("class")}


def test_a_rollouts_card_has_its_impact(world: World) -> None:
    world.lives()
    with serving(world) as server:
        page = got(server, "/")

    assert f"{ROWS} rows change, 2 are added: {ROWS} → {ROWS + 2} rows of page_hits" in page.text
    assert ("code", {}) in page.elements


def test_what_a_promote_changes_is_said_in_a_line() -> None:
    same, new = Difference("a", 3, 3), Difference("b", None, 3, added=3)
    some = Difference("c", 40, 39, changed=7, removed=1)
    more, wider = (
        Difference("d", 8, 9, added=2, removed=1),
        Difference("e", 5, 5, columns_new=("n",)),
    )

    assert changes_text((new,)) == ""
    assert changes_text((same, new)) == "no row changes"
    assert changes_text((same, new), past=True) == "no row changed"
    assert changes_text((same, some)) == f"7 rows change, 1 is removed: 40{ARROW}39 rows of c"
    assert changes_text((some,), past=True) == f"7 rows changed, 1 removed: 40{ARROW}39 rows of c"
    both = f"7 rows change, 2 are added, 2 are removed: 48{ARROW}48 rows in 2 tables"
    assert changes_text((some, more)) == both
    assert changes_text((wider,)) == f"only columns differ: 5{ARROW}5 rows of e"


def test_a_curve_in_a_list_begins_at_zero_and_tells_its_maximum(world: World) -> None:
    for number in range(1, 5):
        name = f"p{number}"
        build = world.build(f"b-{number}", pipeline=name)
        world.goes_live(build, number, pipeline=name, ago=900)
    with serving(world) as server:
        page = got(server, "/")

    assert sum(tag == "polygon" for tag, _ in page.elements) == 4
    labels = [each["aria-label"] or "" for each in page.all("svg") if each.get("role") == "img"]
    assert all(re.search(r"at most 0\.\d+ a second", each) for each in labels)


def test_stopped_jobs_and_failed_rollouts_come_first(world: World) -> None:
    """A failed rollout is told until another one of its pipeline begins."""
    world.lives()
    put_stopped(world.store, "web-2", Conflict(f"no memory {EVIL}", hint="give it more"))
    world.append(Staged("shop", "shop-1", "v", ("new",)))
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, f"check failed {EVIL}", "mend it"))
    with serving(world) as server:
        page = got(server, "/")
        world.append(Staged("shop", "shop-2", "v", ("new",)))
        later = got(server, "/")

    told = (
        f"the job has stopped: no memory {EVIL} (give it more)",
        "Alert late cannot send",
        "of shop failed",
        f": check failed {EVIL}",
        "On the way",
    )
    places = [page.text.index(each) for each in told]
    assert places == sorted(places)
    assert "/logs/web-2" in {each["href"] for each in page.all("a")}
    # Rollout 3 of web failed too, and rollout 5 came after.
    assert page.text.count(" failed ") == 3
    folded = page.text[
        page.text.index("1 failed rollout that a newer rollout replaced Rollout 3 of web, begun") :
    ]
    assert "rollout 5 is newer Waiting for approval" in folded
    assert "of shop failed" not in later.text
    assert later.text.index("On the way") < later.text.index(
        "2 failed rollouts that a newer rollout replaced Rollout 6 of"
    )


def test_the_navigation_counts_what_is_open(world: World) -> None:
    world.lives()
    with serving(world) as server:
        before, overview, after = (got(server, path) for path in ("/history", "/", "/history"))
        alerts, missing = got(server, "/alerts"), got(server, "/nowhere")
        wrong = got(server, "/rollouts/x")

    # No page looks for a count.
    assert "Rejects 2" not in before.text
    # An alert cannot send, and a rollout is waiting.
    for page in (overview, after, alerts, missing, wrong):
        assert "Rejects 2 Alerts 2 History" in page.text
    assert (missing.status, wrong.status) == (404, 400)
    assert "Notices about the platform: 2 open" in alerts.text


def test_each_open_matter_is_counted_shown_and_listed(world: World) -> None:
    """The navigation, the overview and the page of alerts agree, whatever is wrong."""
    world.lives()
    put_stopped(world.store, "web-1", Conflict("no memory"))
    drifts = [
        Drift(DriftKind.FIELD, "visits", name, f"field {name}", "visits:0:7", "{}", "then")
        for name in ("a", "b")
    ]
    put_drifts(world.store, "web-2", drifts)
    world.append(Staged("shop", "shop-1", "v", ("new",)))
    number = max(record.number for record in world.journal.after(0))
    world.append(Failed(number, "check failed", "mend it"))
    world.append(Proved("web", "web-2", Offsets(), "one", 1, None, equal=False, rows=3, hash="h"))
    told = (
        *("alert late", "has stopped: no memory", "field a", "field b", "shop failed"),
        "gives other rows than the tables of pipeline web",
    )
    with serving(world) as server:
        overview, alerts = got(server, "/"), got(server, "/alerts")

    for page in (overview, alerts):
        assert "Alerts 7 History" in page.text
        assert [each for each in told if each.casefold() not in page.text.casefold()] == []
    assert "Notices about the platform: 7 open" in alerts.text
    assert "is waiting for approval" in alerts.text
    assert "Waiting for approval" in overview.text


def test_many_failing_outlets_are_one_notice(world: World) -> None:
    world.lives()
    served = current_state(world.store).serving["web"]
    birth = read_birth(world.store, served)
    names = [f"out{number}" for number in range(7)]
    world.store.delete(f"{folder_of_build(served)}/birth.json")
    sinks = tuple(SinkBirth(name, "page_hits") for name in names)
    put_birth(world.store, structs.replace(birth, sinks=sinks))
    for name in names:
        put_sink_state(world.store, SinkState(name, "page_hits", "web", "retries", error=EVIL))
    drift = Drift(DriftKind.FIELD, "visits", "a", "field a", "visits:0:7", "{}", "then")
    put_drifts(world.store, "web-2", [drift])
    with serving(world) as server:
        page = got(server, "/")
        topics = got(server, "/topics")

    assert "8 sinks and alerts cannot send." in page.text
    assert "And 3 more" in page.text
    assert page.all("div").count({"class": "notice bad failing"}) == 1
    assert "Not declared" in topics.text
    # One drift alone is not folded.
    assert "web: events are no longer as declared." in page.text
    assert not [each for each in page.all("details") if each.get("id") == "drift-web"]


def test_a_rollout_shows_its_rows_before_its_progress(lived: Lived) -> None:
    server, candidate = lived
    text = got(server, f"/rollouts/{candidate}").text

    heads = ("Rows that differ", "Verification: passed", "Progress")
    places = [text.rindex(each) for each in heads]
    assert places == sorted(places)


def test_a_topic_says_whose_it_is(world: World) -> None:
    """A sink's topic is marked with its table, and an undeclared topic is marked as such."""
    sinks = (SinkBirth("salaries", "by_page"),)
    world.goes_live(world.build("web-1", sinks=sinks), 1)
    world.log.others = ("strange",)
    with serving(world) as server:
        page = got(server, "/topics")

    assert "salaries Sink of by_page" in page.text
    assert "strange Not declared" in page.text
    assert "visits retained" in page.text


def test_a_record_of_json_opens_with_a_field_a_line(lived: Lived) -> None:
    """Each number stays as it was written. A record that is not JSON has nothing to open."""
    page = got(lived[0], "/topics/visits")

    assert any((each.get("id") or "") == "record-0-1230" for each in page.all("tr"))
    # Of the newest 50 records, in each partition a fourth.
    assert len(page.all("pre")) == 12
    assert pretty_json(b'{"a":1.10,"b":[1e400]}') == '{\n  "a": 1.10,\n  "b": [\n    1e400\n  ]\n}'
    for other in (None, b"", b"12", b"{", b"\xff", b"[" * 19_000, b"[" + b"1," * 20_000 + b"1]"):
        assert pretty_json(other) == ""


def test_who_may_not_sees_what_is_missing(tmp_path: Path) -> None:
    """The page shows the missing right, who can give it, and a way to sign in as somebody else."""
    world = World(tmp_path)
    world.lives()
    file = TokenFile(tmp_path / "tokens.json")
    text = file.add_token("ada", [Role.READ], made_by="me")
    with serving(world, accounts=Accounts(file=file)) as server:
        page = got(server, "/logs", Authorization=f"Bearer {text}")

    assert page.status == 403
    assert "may not inspect: that needs the role stage, and it has read" in page.text
    assert "with the role read" in page.text
    assert "Sign in as somebody else" in page.text
    assert {"method": "post", "action": "/logout"} in page.all("form")


def test_overview_shows_dearest_views(world: World) -> None:
    world.lives()
    served = current_state(world.store).serving["web"]
    birth = read_birth(world.store, served)
    # A maintained view is stored as a table is.
    stored = (
        structs.replace(each, view="from visits" if each.keys else None) for each in birth.tables
    )
    world.store.delete(f"{folder_of_build(served)}/birth.json")
    put_birth(world.store, structs.replace(birth, tables=tuple(stored)))
    costs = {f"v{n}": ViewCost("whole", 9, 3, n / 10, "2026-01-31T14:00:00Z") for n in range(5)}
    put_view_costs(world.store, served, costs)
    with serving(world) as server:
        overview = got(server, "/")

    shown = [f"v{n}" for n in range(5) if f"View v{n} was last computed whole" in overview.text]
    assert shown == ["v2", "v3", "v4"]


def test_overview_shows_first_build_before_it_serves(world: World) -> None:
    world.append(Staged("web", world.build("web-1"), "version-of-web-1", ("new",)))

    with serving(world) as server:
        assert "On the way" in got(server, "/").text


def test_full_disk_is_on_page_and_in_status(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.lives()
    monkeypatch.setattr(disk_space, "free_bytes", lambda _store: 0)

    with serving(world) as server:
        page = got(server, "/")
    told = status_heading(observe_status(world.store, None, reserve=1), None, None)

    assert "The disk is full: 0 B are free" in page.text
    assert "WARNING: the disk is full: 0 B are free" in told


def test_overview_shows_unread_topics_of_patterns(world: World) -> None:
    """The overview shows an unread topic that matches a pattern, with the command to join it."""
    world.append(Staged("web", world.build("web-1", pattern="visit.*"), "version", ("new",)))
    world.log.others = ("visits<b>", "_visits")

    with serving(world) as server:
        page = got(server, "/").text

    assert "Topic visits<b> matches the pattern visit.* of pipeline web, and is not read." in page
    assert "kappa topics join 'visit.*'" in page
    assert "_visits" not in page


def test_waiting_candidate_offers_intents_and_diff(lived: Lived) -> None:
    server, candidate = lived
    page = got(server, f"/rollouts/{candidate}")

    assert intents(page) == ["promote", "verify", "abandon"]
    buttons = [each for each in page.all("button") if "data-intent" in each]
    assert {each["data-rollout"] for each in buttons} == {str(candidate)}
    assert "kappa promote web" in page.text
    assert [each["data-generation"] for each in page.all("body")] == ["2"]
    assert "kappa undo web goes back to generation 2" in page.text
    samples = got(server, f"/rollouts/{candidate}/samples")
    assert len(samples.all("del")) == len(samples.all("ins")) == 5
    assert (
        "page_hits 5 of 40 changed, 2 added, largest differences first · Show more" in samples.text
    )
    before, after = sum(range(1, 41)), 2 * sum(range(1, 43))
    assert f"Sum of hits over all rows: {before:,} → {after:,}" in samples.text
    # The zone of times is in the header alone.
    assert samples.text.count("UTC") == 1
    assert [each["class"] for each in samples.all("tr") if "class" in each] == [
        *(*5 * ["changed"], *2 * ["added"])
    ]
    (more,) = [each["href"] for each in samples.all("a") if "long" in (each["href"] or "")]
    shown = got(server, str(more))
    assert len(shown.all("ins")) == 40
    assert "page_hits 40 changed, 2 added" in shown.text


def test_sums_are_shown_to_the_last_digit(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    server, candidate = lived
    sums = {
        "cents": (Decimal("1234567.85"), Decimal("1234567.86")),
        "tiny": (Decimal("0.00000001"), Decimal("0.00000001")),
    }
    comparison = Comparison(
        (Difference("page_hits", 1, 1, changed=1),),
        {"page_hits": (RowSample("changed", {"cents": 5}, {"cents": 6}),)},
        *((), ()),
        sums={"page_hits": sums},
    )
    monkeypatch.setattr(routes, "samples_of", lambda *_, **__: comparison)

    cents = "Sum of cents over all rows: 1,234,567.85 → 1,234,567.86"
    text = got(server, f"/rollouts/{candidate}/samples").text
    assert f"{cents}; of tiny: 0.00000001 in both builds" in text


def test_rejects_of_a_rollout_are_told_once() -> None:
    counts = (
        *(OutcomeCount("a", "duplicate", 1, 2), OutcomeCount("a", "rejected", 4, 3)),
        OutcomeCount("b", "rejected", 1, 1),
        *(OutcomeCount("a", "rejected as no_json", 4, 3), OutcomeCount("b", "rejected as x", 1, 1)),
    )
    events = (
        structs.replace(each, counts=counts) if isinstance(each, Verified) else each
        for each in READY
    )
    state = fold_records(numbered(*events))
    view = rollout_view(state, state.rollout(9), None, None)

    assert view.counts == (
        "Rejects: 5 before, 4 after (a no_json 4 → 3)",
        "a: duplicate: 1 before, 2 after",
    )


def test_past_generation_shows_its_way_back(lived: Lived) -> None:
    first, second = (got(lived[0], f"/generations/{number}") for number in (1, 2))

    assert "web-1" in first.text
    assert f"{ROWS}" in first.text
    assert intents(second) == []
    # The possible intents are those on the live builds: the page links to them.
    assert any(each.get("id") == "generation" and "data-live" in each for each in first.all("div"))


def test_records_are_shown_of_read_topics_alone(lived: Lived) -> None:
    server, _ = lived
    found = got(server, "/topics/salaries")
    assert (found.status, EVIL in found.text) == (404, False)
    listed = got(server, "/topics")
    assert "salaries" in listed.text
    links = [each["href"] or "" for each in listed.all("a")]
    assert [each for each in links if each.startswith("/topics/")] == ["/topics/visits"]


def test_of_many_partitions_the_first_are_read(world: World) -> None:
    world.lives()
    world.log.partitions = 40
    found = topic_view(world.desk, "visits")

    assert len(found.partitions) == 40
    assert {each.partition for each in found.records} <= {*range(found.shown)}
    assert found.shown == 16
    with serving(world) as server:
        page, other = got(server, "/topics/visits"), got(server, "/topics/visits?partition=39")
    assert "the first 16 partitions" in page.text
    assert any((each.get("id") or "").startswith("record-39-") for each in other.all("tr"))


def test_samples_are_found_once_and_block_nobody(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who comes while samples are found does not wait; they are found once."""
    world.lives()
    samples._lock.acquire()
    try:
        assert samples.samples_of(world.desk, "web-2", "web-3") is None
        with serving(world) as server:
            page = got(server, "/rollouts/5/samples")
        assert "are being compared" in page.text
        assert any("data-again" in each for each in page.all("div"))
    finally:
        samples._lock.release()

    tried: list[int] = []

    def fails(*_: object, **__: object) -> None:
        tried.append(1)
        raise Conflict("no equal offsets")

    monkeypatch.setattr(samples, "pin_equal", fails)
    for _ in range(3):
        with pytest.raises(Conflict, match="no equal"):
            samples.samples_of(world.desk, "web-1", "web-3")
    assert tried == [1]


def test_too_long_comparison_is_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kappa.toml").write_text("[serve]\ncompare_seconds = 0.3\n")
    world = World(tmp_path)
    world.lives()
    # As tables are that have billions of rows.
    large = "(select large.* from {}.{} as large, range(4000000000))"
    monkeypatch.setattr(diff, "_qualified_table", large.format)
    with serving(world) as server:
        begun = time.monotonic()
        page = got(server, "/rollouts/5/samples")
        assert "compared for 0.3 s" in page.text
        assert "kappa diff web web-2 web-3" in page.text
        # A second look gets the same answer, and begins nothing anew.
        monkeypatch.setattr(samples, "pin_equal", None)
        assert "compared for 0.3 s" in got(server, "/rollouts/5/samples").text
    assert time.monotonic() - begun < 20


def test_what_was_kept_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.build("web-1")
    look = mock.Mock(side_effect=read_kept_frontier)
    monkeypatch.setattr(build_rates, "read_kept_frontier", look)
    trails = build_rates.BuildHistories(world.store)

    # The world has a frontier every 90 seconds; those of the last 20 minutes are used.
    assert [len(trails.points_of("web-1", world.now)) for _ in range(3)] == [14] * 3
    assert [each.args[2] for each in look.call_args_list] == [40]


def test_a_table_leads_to_all_around_it(lived: Lived) -> None:
    server, candidate = lived
    page = got(server, "/tables/web/page_hits")

    hrefs = {each["href"] for each in page.all("a")}
    assert {"/graph?pipeline=web", "/topics/visits", "/rejects?pipeline=web"} <= hrefs
    assert {"/tables/web/by_page", f"/rollouts/{candidate}"} <= hrefs
    assert "one row for each page, minute" in page.text
    assert "which is waiting for approval, would change 40 rows and add 2 rows." in page.text
    assert "hits > 0 Passed 40 rows" in page.text
    assert {"#schema", "#checks"} <= hrefs
    assert "not known before the next deploy" not in page.text
    view = got(server, "/tables/web/by_page")
    assert "Made of page_hits" in view.text
    assert "would change" not in view.text


@pytest.mark.parametrize(
    "path",
    [
        *("/rollouts/999", "/rollouts/999/samples", "/rollouts/x", "/generations/99"),
        *("/tables/web/nothing", "/topics/nothing", "/nowhere"),
    ],
)
def test_missing_page_says_what_to_do(lived: Lived, path: str) -> None:
    page = got(lived[0], path)

    assert page.status in {400, 404}
    assert "To the overview" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert lived[0].ask("GET", path).headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("kappa deploy", ("/", "/tables", "/history")),
        ("kappa up -d", ("/topics",)),
        ("Nothing is served yet", ("/rejects", "/alerts")),
    ],
)
def test_before_anything_serves_pages_say_what_to_type(
    tmp_path: Path, typed: str, paths: tuple[str, ...]
) -> None:
    with serving(World(tmp_path)) as server:
        pages = [got(server, path) for path in paths]

    assert all(page.status == 200 and typed in page.text for page in pages)


def test_token_is_asked_for_once_and_no_cookie_has_it(tmp_path: Path) -> None:
    with serving(World(tmp_path), token="s3cret") as server:
        sent = server.ask("GET", "/history?x=1", Accept=HTML)
        assert (sent.status, sent.headers["location"]) == (303, "/login?next=%2Fhistory%3Fx%3D1")
        assert server.ask("GET", "/api/v1/history").status == 401
        assert "Token" in got(server, sent.headers["location"]).text
        assert server.ask("GET", "/static/kappa.css").status == 200

        wrong = sign_in(server, b"token=wrong&next=%2Fhistory")
        assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
        right = sign_in(server, b"token=s3cret&next=%2Fhistory")
        assert (right.status, right.headers["location"]) == (303, "/history")
        given = right.headers["set-cookie"]
        assert "HttpOnly" in given
        assert "samesite=strict" in given.lower()
        assert "s3cret" not in given

        cookie = given.partition(";")[0]
        assert is_cookie_of("s3cret", cookie.partition("=")[2], time.time())
        assert got(server, "/history", Cookie=cookie).status == 200
        assert "Sign out" in got(server, "/history", Cookie=cookie).text
        assert server.ask("GET", "/history", Accept=HTML, Cookie=f"{COOKIE}=guessed").status == 303
        for known in (cookie, f"{COOKIE}={cookie_of('s3cret', 0)}"):
            left = server.ask("POST", "/logout", b"", Cookie=known, Sec_Fetch_Site="same-origin")
            assert left.headers["set-cookie"].startswith(f'{COOKIE}=""')
        evil = server.ask("POST", "/logout", b"", Origin="http://evil.example")
        assert "set-cookie" not in evil.headers


def test_guessers_wait_and_who_knows_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: Future[None] = Future()
    wait = token.WaitingLine.wait

    async def held(line: token.WaitingLine) -> None:
        """Waits until the known clients were admitted, however slow this machine is."""
        await asyncio.wrap_future(known)
        await wait(line)

    monkeypatch.setattr(token.WaitingLine, "wait", held)
    world = World(tmp_path)
    limits = {"token": "s3cret", "more": routes.ROUTERS, "bounds": Bounds(wrong_seconds=0.2)}
    cookie = f"{COOKIE}={cookie_of('guess', time.time())}"
    with (
        Server(world.store, Allowance(at_once=1), **limits) as server,
        ThreadPoolExecutor(12) as guessers,
    ):
        guesses = (
            partial(sign_in, server, b"token=guess"),
            partial(server.query, "select 1", Authorization="Bearer guess"),
            partial(server.query, "select 1", Cookie=cookie),
        )
        guessed = [guessers.submit(guess) for guess in guesses for _ in range(4)]
        try:
            assert sign_in(server, b"token=s3cret").status == 303
            assert server.query("select 1", Authorization="Bearer s3cret").status == 200
            assert server.query("select 1").status == 401
            assert not any(each.done() for each in guessed)
        finally:
            begun = time.monotonic()
            known.set_result(None)
        assert {each.result().status for each in guessed} == {401}

        assert time.monotonic() - begun >= len(guessed) * 0.2


def test_the_line_of_those_who_guess_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token, "_LONGEST_LINE", 2)

    async def guess() -> list[BaseException | None]:
        line = token.WaitingLine(0.01)
        found = await asyncio.gather(*(line.wait() for _ in range(3)), return_exceptions=True)
        # After their refusal the line has room again.
        await line.wait()
        return found

    first, second, third = asyncio.run(guess())
    assert (first, second) == (None, None)
    assert isinstance(third, HttpError)
    assert (third.status, third.headers["Retry-After"]) == (429, "60")


@pytest.mark.parametrize(
    "others",
    ['other={"a":1}; ', "bad[key]=1; ", "a b=1;", "=;;; ", 'kappa=stale; x="; ', "kappa2=1; "],
)
def test_cookies_of_other_servers_lock_nobody_out(tmp_path: Path, others: str) -> None:
    cookie = f"{COOKIE}={cookie_of('s3cret', time.time())}"
    with serving(World(tmp_path), token="s3cret") as server:
        assert server.ask("GET", "/history", Cookie=f"{others}{cookie}").status == 200
        assert server.ask("GET", "/history", Cookie=f"{cookie}; {others}").status == 200
        assert server.ask("GET", "/api/v1/history", Cookie=others).status == 401


@pytest.mark.parametrize("token", ["s3cret", None])
def test_no_host_and_no_origin_is_askers_mistake(tmp_path: Path, token: str | None) -> None:
    known = {"Authorization": f"Bearer {token}"} if token else {}
    with serving(World(tmp_path), token=token) as server:
        assert problem(server.ask("GET", "/history", Host="[", **known))[0] == 400
        assert problem(server.ask("GET", "/history", Origin="http://[", **known))[0] == 400
        assert problem(server.ask("POST", "/login", b"", Host="[::1"))[0] == 400


def test_cookie_is_for_pages_of_this_server(tmp_path: Path) -> None:
    with serving(World(tmp_path), token="s3cret") as server:
        cookie = f"{COOKIE}={cookie_of('s3cret', time.time())}"
        for headers, status in (
            ({}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec_Fetch_Site": "cross-site"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{server.port}"}, 200),
            ({"Sec_Fetch_Site": "same-origin"}, 200),
        ):
            assert server.query("select 1 as n", Cookie=cookie, **headers).status == status
        assert server.query("select 1 as n", Authorization="Bearer s3cret").status == 200


@pytest.mark.parametrize(
    "meant",
    [
        *("//evil.example", "/\\evil.example", "https://evil.example"),
        *("javascript:alert(1)", "/a\r\nSet-Cookie: x=y"),
    ],
)
def test_signing_in_sends_nobody_elsewhere(tmp_path: Path, meant: str) -> None:
    with serving(World(tmp_path), token="t") as server:
        answered = sign_in(server, f"token=t&next={meant}".encode())
        assert answered.headers["location"].startswith("/")
        assert not answered.headers["location"].startswith(("//", "/\\"))
        assert "x=y" not in answered.headers.get("set-cookie", "")


def test_files_are_of_a_list_and_sent_once(lived: Lived) -> None:
    server, _ = lived
    found = server.ask("GET", "/static/live.js")
    assert (found.status, found.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert server.ask("GET", "/static/live.js", If_None_Match=found.headers["etag"]).status == 304
    for path in ("../render.py", "%2e%2e/render.py", "vendor/uPlot.LICENSE", "", "/etc/passwd"):
        assert server.ask("GET", f"/static/{path}").status == 404


def test_progress_events_come_on_request_without_id(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lives()
    with serving(world) as server:
        told = [HTTPConnection("127.0.0.1", server.port, timeout=20) for _ in range(2)]
        for connection, query in zip(told, ("?progress=true", ""), strict=True):
            connection.request("GET", f"/api/v1/events{query}")
        streams = [connection.getresponse() for connection in told]
        for stream in streams:
            begun = [stream.readline()[:6], stream.readline()[:3], stream.readline()]
            assert begun == [b"retry:", b"id:", b"\n"]
        frontiers = Frontiers(world.store, "web-2")
        newest = frontiers.newest()
        # The first look is the one to compare with: it is made at once, and again within a second
        # or so.
        for number in range(41, 45):
            offsets = Offsets({"visits": {0: number * 100, 1: 500}})
            at = datetime.now(UTC).isoformat()
            frontiers.publish(
                structs.replace(newest, number=number, offsets=offsets, published_at=at)
            )
            time.sleep(0.6)

        told_of = [streams[0].readline() for _ in range(3)]
        assert told_of == [b"event: progress\n", b"data: {}\n", b"\n"]
        world.append(Abandoned(14, "enough"))
        assert [streams[1].readline()[:3], streams[1].readline()] == [b"id:", b"event: abandoned\n"]
        for connection in told:
            connection.close()


# The following tests need no server.


def test_a_cookie_is_of_one_token_and_ends() -> None:
    given = cookie_of("s3cret", 1_000.0)

    assert is_cookie_of("s3cret", given, 1_000 + COOKIE_SECONDS - 1)
    assert not is_cookie_of("s3cret", given, 1_000 + COOKIE_SECONDS)
    assert not is_cookie_of("another", given, 1_000)
    # A cookie with a later time lacks the signature for it.
    assert not is_cookie_of("s3cret", given.replace("1000", "9999999"), 9_999_999)
    for odd in ("", ".", given.partition(".")[2], "x.y", "\u0661.y", "9" * 20 + ".y", given + "é"):
        assert not is_cookie_of("s3cret", odd, 1_000)


def test_header_of_several_lines_is_read_whole() -> None:
    lines = [(b"Cookie", b"a=1"), (b"COOKIE", b"kappa=2"), (b"accept", b"text/html")]
    together = {"cookie": "a=1; kappa=2", "accept": "text/html, */*"}
    assert joined([*lines, (b"Accept", b"*/*")]) == together


def build(**changes: Any) -> BuildStatus:
    at = NOW - timedelta(seconds=60)
    return replace(BuildStatus("web", "live", "b1", "v1", Offsets(), 0, at, 100, 0), **changes)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "Up to date"),
        ({"lag": 5}, "Behind"),
        ({"lag": 90, "fresh_at": NOW}, "Following"),
        # More than it folds in a minute.
        ({"lag": 91, "fresh_at": NOW}, "Behind"),
        ({"lag": 5, "rests": True}, "At rest"),
        ({"rests": True}, "Up to date"),
        ({"lag": None}, "Lag unknown"),
        ({"trouble": "its job died"}, "In trouble"),
        ({"lag": 5, "pause": Pause("2026-01-01T11:00:00Z", "ada")}, "Paused"),
    ],
)
def test_how_a_build_is_is_said_in_a_word(changes: dict[str, Any], word: str) -> None:
    assert health_of(build(**changes), NOW, rate=1.5).word == word
    assert health_of(build(), NOW, rate=1.5, supervised=False).word == "Not running"


def test_a_lag_that_is_not_known_to_shrink_is_not_green() -> None:
    lags = build(lag=651, fresh_at=NOW)
    new, stands = health_of(lags, NOW, rate=None), health_of(lags, NOW, rate=0.0)
    assert (new.word, new.tone) == ("Measuring", "unknown")
    assert (stands.word, stands.tone) == ("Behind", "warn")


def test_a_lag_has_a_trend_if_both_rates_are_known() -> None:
    assert lag_trend(6_000, 150.0, 50.0) == "1 min left"
    assert lag_trend(6_000, 50.0, 150.0) == "grows by 100/s"
    assert lag_trend(6_000, 0.0, 0.05) == "grows by 3/min"
    for rate, arrivals in ((None, 5.0), (5.0, None), (5.0, 5.0)):
        assert lag_trend(6_000, rate, arrivals) == ""


def steps(*points: tuple[float, int]) -> list[HistoryPoint]:
    return [HistoryPoint(NOW - timedelta(seconds=ago), offset) for ago, offset in points]


def test_a_rate_is_over_the_window_of_its_curve() -> None:
    assert rate_of([], NOW) is None
    assert rate_of(steps((6000, 0), (3000, 900)), NOW) == 0
    assert rate_of(steps((900, 0), (300, 6000)), NOW) == 10
    assert rate_of(steps((20, 0), (10, 100)), NOW) == 5
    assert rate_of(steps((0.1, 100)), NOW) is None
    assert rate_of(steps((20, 100), (10, 0)), NOW) == 0


def test_chart_adds_up_to_what_was_folded() -> None:
    """The chart has no spike where only one frontier per minute is kept."""
    points = ((3540 - 60 * number, 600 * number) for number in range(60))
    times, found = rates_over_time(steps(*points), NOW)

    assert len(times) == len(found)
    assert times == sorted(times)
    assert all(rate == pytest.approx(10, abs=0.5) for rate in found[1:-2])
    assert rates_over_time([], NOW) == ([], [])


def test_a_curve_falls_only_if_the_build_stands_still() -> None:
    """Between two frontiers nothing is known, so nothing is drawn."""
    at_work = steps(*((ago, 6000 - 10 * ago) for ago in range(600, 30, -10)))
    _, found = rates_over_time(at_work, NOW)
    assert min(found) == pytest.approx(10, abs=0.5)
    still = steps(*((ago, 6000 - 10 * ago) for ago in range(600, 190, -10)))
    _, found = rates_over_time(still, NOW)
    assert found[-1] == 0


@pytest.mark.parametrize(
    ("number", "events", "possible", "standings"),
    [
        (9, READY, "promote verify abandon", "done done now next next"),
        (9, (*READY, PromoteAsked(9)), "abandon", "done done done now next"),
        (
            1,
            (staged("b1"), CaughtUp(1, Offsets()), Failed(1, "no")),
            "",
            "done ended next next next",
        ),
    ],
    ids=["ready", "asked", "failed"],
)
def test_rollout_shows_its_intents_and_its_stage(
    number: int, events: tuple[Event, ...], possible: str, standings: str
) -> None:
    state = fold_records(numbered(*events))
    rollout = state.rollout(number)
    stages = rollout_view(state, rollout, None, None).stages

    assert [deed.intent for deed in actions_of(state, rollout)] == possible.split()
    assert [stage.standing for stage in stages] == standings.split()
    assert stages[2].name == "Approval"


def test_a_failed_rollout_shows_its_stage_its_check_and_the_way_on(world: World) -> None:
    """The failed check comes first. Once another rollout begins, no retry is possible."""
    world.build("web-1")
    world.goes_live("web-1", 1)
    world.append(Staged("web", "web-f", "version-of-it", ("function web changed",)))
    rollout = max(record.number for record in world.journal.after(0))
    verdict = world.verified(rollout, "web-1")
    at = "2026-01-01T08:00:00Z"
    samples = ((EVIL, None, at), *((f"/{n}", f"{n}", at) for n in (1, 2, 3, 4)))
    failing = structs.replace(
        verdict.checks[1], failing=7, columns=("page", "hits", "minute"), samples=samples
    )
    world.append(
        CaughtUp(rollout, Offsets()),
        structs.replace(
            verdict, verdict="failed", reason=f"3 rows {EVIL}", checks=(verdict.checks[0], failing)
        ),
    )
    with serving(world) as server:
        failed = got(server, "/rollouts/2")
        world.append(Staged("web", "web-2", "version-of-it", ("function web changed",)))
        later = got(server, "/rollouts/2")

    assert f"Failed in the stage Verify: 3 rows {EVIL}" in failed.text
    assert "Nothing has changed for readers: build web-1 · versio… serves" in failed.text
    assert failed.text.count("not reached") == 3
    checks = failed.text[failed.text.index("Check Table Condition") :]
    assert checks.index("Failed page_hits") < checks.index("Passed page_hits")
    assert "7 16 %" in checks
    evidence = (
        "Failing rows of page_hits a sample of 5 of 7, which is all that is kept page hits minute",
        f"{EVIL} null 2026-01-01 08:00 /1 1",
        "Check Table",
        "Compared with build web-1",
    )
    places = [failed.text.index(each) for each in evidence]
    assert places == sorted(places)
    assert "Start the same code again, as a new build: kappa retry web" in failed.text
    assert "kappa retry web" not in later.text
    assert "kappa deploy web" in failed.text
    assert "kappa deploy web" not in later.text
    assert "Rollout 3 replaced it: Replaying" in later.text


@pytest.mark.parametrize(
    ("number", "events", "word", "tone"),
    [
        (1, (staged("b1"),), "Replaying", "busy"),
        (9, READY, "Waiting for approval", "warn"),
        (9, (*READY, PromoteAsked(9)), "Switching", "busy"),
        (1, FAILED, "Failed", "bad"),
        (1, (staged("b1"), Abandoned(1, "no")), "Abandoned", "unknown"),
    ],
)
def test_a_phase_has_one_word_on_all_pages(
    number: int, events: tuple[Event, ...], word: str, tone: str
) -> None:
    health = rollout_health(fold_records(numbered(*events)).rollout(number))
    assert (health.word, health.tone) == (word, tone)


def test_what_serves_is_called_so_on_all_pages(lived: Lived) -> None:
    """Rollout 2 made generation 2, which serves; a sentence has the tense of its state."""
    server, _ = lived
    now = {path: got(server, path).text for path in ("/rollouts/2", "/generations/2", "/history")}
    then = {path: got(server, path).text for path in ("/rollouts/1", "/generations/1")}

    assert re.search("web became .{,40} Serving ", now["/rollouts/2"])
    assert "Generation 2 Serving" in now["/generations/2"]
    assert "Generation 2 Serving" in now["/history"]
    assert "Builds that serve Pipeline" in now["/generations/2"]
    assert "Builds that served Pipeline" in then["/generations/1"]
    assert "as this generation shows them" in now["/generations/2"]
    assert "as this generation showed them last" in then["/generations/1"]
    assert "web became" in then["/rollouts/1"]
    assert "web did not become" in got(server, "/rollouts/3").text
    assert "Generation 1 Served" in then["/generations/1"]


def test_an_alert_has_one_state_on_all_pages(lived: Lived) -> None:
    texts = [got(lived[0], path).text for path in ("/", "/alerts", "/graph")]

    for text in texts:
        assert "cannot send" in text.casefold()
        assert "Retrying" not in text
        assert "cannot be delivered" not in text


def test_page_shows_what_a_promote_sends(tmp_path: Path) -> None:
    """The messages of a promote are shown on the page, in the plan, the status and the receipt."""
    world, sink = World(tmp_path), SinkBirth("page-hits", "page_hits")
    for number in (1, 2):
        world.build(f"web-{number}", sinks=(sink,))
    world.goes_live("web-1", 1)
    candidate = world.waits("web-2", "web-1")
    status, is_damaged = _status_text(world.here, Form.TABLE)
    world.be_up()
    sent = (
        "2 inserts, 40 updates to page-hits",
        "up to 42 messages of alert busy (only rows that its condition selects)",
        "42 messages of alert late",
    )
    with serving(world) as server:
        before = got(server, f"/rollouts/{candidate}")
        wanted = {"intent": "promote", "pipelines": ["web"], "dry_run": True}
        would = server.ask("POST", "/api/v1/rollouts", wanted, If_Match="*").document["would"]
        (rollout,) = current_state(world.store).active_rollouts
        world.append(PromoteAsked(rollout.id))
        world.switches(rollout.id, "web-2", 2, "web-1")
        after = got(server, f"/rollouts/{candidate}")
        receipt = got(server, "/generations/2")

    # What a promote does stands above the buttons and the evidence.
    changes = "40 rows change, 2 are added: 40 → 42 rows of page_hits"
    told = f"{changes} Also changes view by_page Checks 2 of 2 passed A promote sends"
    told = f"{told} {' '.join(sent)}"
    assert before.text.index(told) < before.text.index("Rows that differ")
    assert before.text.count("A promote sends") == 1
    assert would.endswith(f"(version versio…), and send {', '.join(sent)}")
    shown = "".join(f"  sends: {each}\n" for each in sent)
    assert f"rollout 2 of pipeline web waits for: kappa promote web\n{shown}" in status
    assert not is_damaged
    # A bound of what was sent helps nobody.
    for page in (after, receipt):
        assert f"Sent at the switch {sent[0]} {sent[2]}" in page.text
        assert "up to 42" not in page.text


def test_rows_that_differ_after_a_switch_have_the_numbers_of_the_verification(
    world: World,
) -> None:
    """Both builds go on, so the numbers of now alone would seem to contradict the verification."""
    for number, rows in ((1, ROWS), (2, ROWS + 1)):
        world.build(f"web-{number}", hits=number, rows=rows)
    world.goes_live("web-1", 1)
    world.waits("web-2", "web-1")
    with serving(world) as server:
        before = got(server, "/rollouts/2/samples").text
        (rollout,) = current_state(world.store).active_rollouts
        world.append(PromoteAsked(rollout.id))
        world.switches(rollout.id, "web-2", 2, "web-1")
        after = got(server, "/rollouts/2/samples").text
        generations = [got(server, f"/generations/{number}").text for number in (1, 2)]

    assert "page_hits 5 of 40 changed, 1 added, largest differences first · Show more" in before
    changed = "40 changed now (40 when verified), 5 shown"
    assert (
        f"page_hits {changed}; 1 added now (2 when verified), largest differences first · Show more"
        in after
    )
    # The rows of a generation that serves are those of now.
    assert ["Rows now" in each for each in generations] == [False, True]


def test_a_rollout_begins_with_its_evidence(tmp_path: Path) -> None:
    """The code and the progress follow; the progress is folded once all records are folded."""
    pages = []
    for offset in (1234, 1000):
        folder = tmp_path / str(offset)
        folder.mkdir()
        world = World(folder)
        # Without a broker, it is unknown how many records are left.
        world.be_up()
        world.goes_live(world.build("web-1"), 1)
        number = world.waits(world.build("web-2", offset=offset), "web-1")
        with serving(world) as server:
            pages.append(got(server, f"/rollouts/{number}"))

    told = ("Promote", "Rows that differ", "Code that changed", "Verification: passed", "Progress")
    for page in pages:
        places = [page.text.index(each) for each in told]
        assert places == sorted(places)
    folds = [
        [each for each in page.all("details") if each.get("class") == "fold"] for page in pages
    ]
    assert [["open" in each for each in found] for found in folds] == [[False], [True]]
    assert "Progress of the replay 100 %" in pages[0].text


def test_the_messages_of_a_condition_are_counted_by_a_comparison(tmp_path: Path) -> None:
    """Before the comparison, the number is a bound. Then page and dialog have the same number.

    Of 40 rows, 31 have more than 9 hits before, and 38 of 42 rows have after.
    """
    world = World(tmp_path)
    world.lives()
    world.be_up()
    wanted = {"intent": "promote", "pipelines": ["web"], "dry_run": True}
    with serving(world) as server:
        page = got(server, "/rollouts/5")
        counted = got(server, "/rollouts/5/sends")
        would = server.ask("POST", "/api/v1/rollouts", wanted, If_Match="*").document["would"]
        again = got(server, "/rollouts/5")

    assert "up to 42 messages of alert busy (only rows that its condition selects)" in page.text
    # A person who promotes knows that the messages will wait.
    why = "the alert can send again; now it cannot send: canary answered 500"
    waits = f"42 messages of alert late once {why}"
    assert waits in page.text
    loads = [each.get("data-load") for each in page.all("dl") if each.get("id") == "sends"]
    assert loads == ["/rollouts/5/sends?after=0"]
    sent = f"A promote sends 38 messages of alert busy {waits}"
    assert sent in counted.text
    assert would.endswith("and send 38 messages of alert busy, 42 messages of alert late")
    assert sent in again.text


def test_history_names_builds_alike(lived: Lived) -> None:
    told = [each.get("title") for each in got(lived[0], "/history").all("span")]

    # As generation 1, as the build that generation 2 replaced, and as the build of an undo.
    assert told.count("build web-1, version version-of-web-1") == 3


@pytest.mark.parametrize(
    ("path", "build"),
    [
        *(("/", "web-2"), ("/", "web-3"), ("/history", "web-3"), ("/rollouts/{}", "web-2")),
        *(("/rollouts/{}", "web-3"), ("/generations/2", "web-1"), ("/generations/2", "web-2")),
        *(("/tables", "web-2"), ("/tables/web/page_hits", "web-2"), ("/alerts", "web-3")),
        ("/topics/visits", "web-3"),
    ],
)
def test_a_build_has_one_name_on_all_pages(lived: Lived, path: str, build: str) -> None:
    server, candidate = lived

    assert f"{build} · versio…" in got(server, path.format(candidate)).text


def test_a_sentence_of_a_command_has_the_times_of_a_page() -> None:
    told = formatting.times(
        "paused since 2026-01-31T14:05:00Z by ada, 2026-01-31T14:05:00.25+00:00"
    )
    assert told == "paused since 2026-01-31 14:05:00 UTC by ada, 2026-01-31 14:05:00 UTC"
    assert formatting.times("record 2026-01-31T14") == "record 2026-01-31T14"


def test_failing_rows_have_the_times_of_a_page() -> None:
    """A text that only looks like a time stays a text."""
    rows = [["/a", "2026-01-01T08:00:00Z", "2026-99-01T08:00:00Z", 3, None]]
    (row,) = formatting.with_times(rows)

    # Numbers are aligned like numbers, although a verdict has texts.
    texts = [["/a", "12", None, "3"], ["/b", "-1.5", None, "b"], [None, None, None, "4"]]
    assert formatting.number_columns(texts) == (False, True, False, False)
    assert [formatting.value(each) for each in row] == [
        *("/a", "2026-01-01 08:00:00 UTC", "2026-99-01T08:00:00Z", "3", "null")
    ]


def test_timeline_has_generations_and_rollouts_newest_first() -> None:
    """A rollout that led to a generation is not listed in addition to the generation."""
    state = fold_records(numbered(*READY))
    found = timeline_moments(state)

    assert [each.number for each in found] == sorted((each.number for each in found), reverse=True)
    assert [each.generation for each in found if each.generation] == [2, 1]
    # Both generations have switched a pipeline that still serves so.
    assert [each.now for each in found if each.generation] == [True, True]
    assert sorted(each.rollout.id for each in found if each.rollout is not None) == [9, 12]
    numbers = [each.number for each in found]
    assert [each.number for each in timeline_moments(state, most=2)] == numbers[:2]
    later = timeline_moments(state, before=numbers[1], most=2)
    assert [each.number for each in later] == numbers[2:4]


@pytest.mark.parametrize(
    ("events", "possible"),
    [
        (READY[:4], ["pause", "retire"]),
        ((*READY[:4], Paused("flights")), ["resume", "retire"]),
        (READY, []),
        ((*READY[:4], Paused("flights"), pipeline_retired("a", 2)), ["resume"]),
    ],
    ids=["live", "paused", "underway", "retired"],
)
def test_pipeline_offers_what_may_be_asked(events: tuple[Event, ...], possible: list[str]) -> None:
    state = fold_records(numbered(*events))
    assert [deed.intent for deed in service_actions(state, "flights")] == possible


def test_timeline_has_retirements_and_pauses() -> None:
    retired = fold_records(numbered(*READY[:4], Paused("flights"), pipeline_retired("a", 2)))
    newest, before, _ = timeline_moments(retired)
    assert (newest.generation, newest.now) == (2, True)
    assert "pipeline flights was retired: flights_table left" in newest.detail
    assert before.detail == "pipeline flights was paused"


def test_a_redrive_is_in_every_history(world: World) -> None:
    """It names whoever asked, the records and the pipeline. A kind of entries selects redrives."""
    world.build("web-1")
    world.goes_live("web-1", 1)
    with acting_as("token <b>"):
        ask_redrive(world.store, {"web": {"visits": 2, "clicks": 1}})
    with serving(world) as server:
        whole, only = got(server, "/history"), got(server, "/history?kind=redrives")
        other = got(server, "/history?kind=pauses")
        rows = server.ask("GET", "/api/v1/history").document

    told = "token <b> Redrive of 1 record of topic clicks, 2 records of topic visits for pipeline"
    assert f"{told} web" in whole.text
    assert told in only.text
    assert "Generation 1" not in only.text
    assert told not in other.text
    assert {name: rows[-1][name] for name in ("by", "pipeline", "what", "state", "why")} == {
        "by": "token <b>",
        "pipeline": "web",
        "what": "redrive",
        "state": "asked",
        "why": "1 record of topic clicks, 2 records of topic visits",
    }


def test_pages_show_pauses_retirements_and_ways_back(world: World) -> None:
    world.build("web-1")
    world.goes_live("web-1", 1)
    world.append(Paused("web"))
    with serving(world) as server:
        overview = got(server, "/")
        assert "Paused" in overview.text
        assert "web: paused since" in overview.text
        assert intents(overview) == ["resume", "retire"]

    left = ("page_hits", "by_page")
    world.append(PipelineRetired("web", "web-1", 2, {}, left, Offsets(), 3600, 1))
    # The desk looks once a second: another one looks at once.
    world.desk = SharedLooks(world.here, connect=lambda: world.log)  # type: ignore[arg-type, return-value]
    with serving(world) as server:
        overview = got(server, "/")
        assert "Out of service" in overview.text
        assert "It was retired at generation 2 by" in overview.text
        assert intents(overview) == ["undo", "resume"]
        assert "pipeline web was retired: page_hits, by_page left" in got(server, "/history").text
        assert "page_hits, by_page left" in got(server, "/generations/2").text
        assert got(server, "/tables").status == 200


def test_readers_of_a_table_hold_its_build_pinned() -> None:
    holders = ((7, "ada", "b1"), (7, "ada", "b1"), (8, "bob", "b1"), (9, "eve", "b2"))
    leases = [Lease(pid, by, 1.0, {build: Pin(1, {})}) for pid, by, build in holders]
    found = [(each.by, each.pid, each.leases) for each in _reader_processes(leases, "b1")]
    assert found == [("ada", 7, 2), ("bob", 8, 1)]


def test_bytes_that_are_no_text_are_told_by_their_digits() -> None:
    assert (as_text(b"a"), as_text(b"\xff\x00"), as_text(None)) == ("a", "hex ff 00", None)


def test_a_long_value_keeps_its_beginning_and_is_cut_between_characters() -> None:
    assert as_text(b"x" * 500) == "x" * 500
    assert as_text(b"x" * (1 << 20)) == "x" * 500 + "…"
    assert as_text(("x" * 499 + "é" * 9).encode()) == "x" * 499 + "…"
    assert (as_text(b"\xff" * 1000) or "").count("ff") == 500
    # The text is cut at 400 characters, and the bytes at 500.
    long = [b"x" * 401, b"x" * 501, ("é" * 251).encode(), b"\xff" * 200]
    for content in (*long, ("x" * 450 + "…").encode()):
        assert cut_length(content) == len(content)
    for content in (None, b"", b"x" * 400, "{…".encode(), b"\xff" * 9):
        assert cut_length(content) is None


def test_a_topics_rate_is_of_what_comes_and_not_of_what_retention_takes() -> None:
    paces = TopicRates()
    assert paces.update_rates({"a": 1000, "b": 0}, 0.0) == {"a": None, "b": None}
    assert paces.update_rates({"a": 1050, "b": 0}, 10.0) == {"a": 5.0, "b": 0.0}
    # After a pause, the last known rate stays until there is a new one.
    assert paces.update_rates({"a": 1060, "b": 0}, 90.0) == {"a": 5.0, "b": 0.0}
    assert paces.update_rates({"a": 1060, "b": 0}, 92.0) == {"a": 0.0, "b": 0.0}
    # Deleted and made again.
    assert paces.update_rates({"a": 7}, 93.0) == {"a": None}


def test_progress_is_of_what_a_job_has_to_read() -> None:
    """Progress counts the records that a job has to read; it is unknown without the log's end.

    The job of a branch at 900, of a log that begins at 400, has 100 records to read, and has read
    50.
    """
    state = fold_records(numbered(staged("b1")))
    offsets, reads_from, end = (Offsets({"t": {0: offset}}) for offset in (950, 900, 1000))
    read = {"offsets": offsets, "reads_from": reads_from, "topics": frozenset({"t"}), "lag": 50}
    candidate = build(
        role="candidate", rollout=state.rollout(1), folded=550, begun_with=500, **read
    )
    known = rollout_view(state, state.rollout(1), candidate, end)
    unknown = rollout_view(state, state.rollout(1), replace(candidate, lag=None), None)

    assert (known.build.read, [each.read for each in known.partitions]) == ((50, 100), [(50, 100)])
    assert [each.read for each in unknown.partitions] == [None]
    progress = _pages.get_template("parts.html").module.progress  # type: ignore[attr-defined]
    assert 'value="50" max="100"' in progress((50, 100))
    assert "50 %" in progress((50, 100))
    assert "100 %" in progress((0, 0))
    assert "value" not in progress(None)
    assert "—" in progress(None)


@pytest.mark.parametrize(
    ("changes", "left"),
    [({}, 5), *(({change: value}, None) for change in ("lag", "rate") for value in (None, -50.0))],
)
def test_time_left_is_what_is_missing_at_its_rate(changes: dict[str, Any], left: int) -> None:
    state = fold_records(numbered(staged("b1"), CaughtUp(1, Offsets())))
    candidate = build(role="candidate", rollout=state.rollout(1), lag=50, rate=10.0)
    assert replace(candidate, **changes).eta_seconds == left


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        *((0.42, "0.4 s"), (42, "42 s"), (59.4, "59 s"), (59.6, "1 min"), (180, "3 min")),
        (7500, "2 h 5 min"),
        *((90_000, "1 d 1 h"), (436_000_000, "13 y 301 d"), (None, "—")),
    ],
)
def test_a_duration_is_told_in_two_units_at_most(seconds: float | None, told: str) -> None:
    assert formatting.duration(seconds) == told


def test_times_are_told_relative_and_exact_and_what_is_no_time_as_it_is() -> None:
    assert formatting.relative(NOW - timedelta(minutes=3), NOW) == "3 min ago"
    assert formatting.relative(NOW + timedelta(seconds=90), NOW) == "in 1 min"
    assert formatting.relative(NOW, NOW) == "just now"
    assert formatting.exact(NOW) == "2026-01-01 12:00:00 UTC"
    assert formatting.moment("then") is None


@pytest.mark.parametrize(
    ("found", "told"),
    [
        *((None, "null"), ("null", "null"), (1234567, "1,234,567"), (2013, "2013")),
        *((True, "true"), ({"a": [1]}, '{"a": [1]}'), ("x" * 900, "x" * 400 + "…")),
    ],
)
def test_a_value_is_told_in_one_way(found: object, told: str) -> None:
    assert formatting.value(found) == told


def test_a_problem_is_a_page_too_and_what_it_says_is_escaped() -> None:
    html = problem_html({"title": "request", "status": 404, "detail": EVIL, "hint": EVIL})
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "{{ 7*7 }}" in html


def test_a_template_that_misses_something_fails() -> None:
    with pytest.raises(Exception, match="undefined"):
        page_html("problem")


def test_broken_view_is_named_where_people_look(world: World) -> None:
    world.goes_live(world.build("web-1", by_page="select pag from page_hits"), 1)
    named = "view by_page of pipeline web cannot be read"

    status = observe_status(world.store, None)
    (row,) = status_listing(status, NOW).row_objects()
    assert named in str(row["broken"])
    assert named in row["note"]
    assert f"WARNING: {named}" in status_heading(status, None, None)
    with serving(world) as server:
        assert named in got(server, "/").text
        assert '"pag" not found' in got(server, "/tables").text
        assert "It cannot be read" in got(server, "/tables/web/by_page").text
        assert "cannot be read" not in got(server, "/tables/web/page_hits").text
