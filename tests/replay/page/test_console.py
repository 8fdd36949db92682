"""Laws of the page as a console: project, lists, search, queries, code, durations, dialogs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from asking import Answered, Server
from journals import READY, held, numbered, served, staged, switch_asked, verified
from msgspec import structs
from page_world import EVIL, World
from test_page import HTML, Page, got, intents, serving
from typing_in import typist

from kappa.base.errors import UsageError
from kappa.code.names import WrittenPipeline
from kappa.declare.board import ChartKind, board_of
from kappa.declare.sink import SinkBirth
from kappa.kafka.producer import ProducedRecord
from kappa.replay.page.boards import DrawnBars, typed_rows
from kappa.replay.page.build_rates import HistoryPoint, joined_points, rates_over_time
from kappa.replay.page.code_changes import changed_parts_shown
from kappa.replay.page.first_steps import first_steps, sample_board
from kappa.replay.page.overview import PipelineCard, pipeline_list
from kappa.replay.page.queries import (
    draw_rows,
    marked_query,
    mended_query,
    ordered_rows,
    queried_tables,
    sample_queries,
)
from kappa.replay.page.rollout import changed_views, stage_seconds, undo_offer
from kappa.replay.page.samples import KindCount, sampled_tables
from kappa.replay.page.states import health_of
from kappa.replay.page.timeline import timeline_moments
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.plan.code_diff import PartDiff
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff import Comparison, RowSample
from kappa.replay.status.logs import last_lines, level_of
from kappa.replay.status.status import BuildStatus, Status, observe_status
from kappa.replay.status.status_text import status_listing
from kappa.serving.http.page import formatting
from kappa.serving.outlets.alerts.outbox import delete_request_to_send_again, ids_to_send_again
from kappa.serving.query.redrive import Redrive, settle_drifts
from kappa.serving.query.rejects import Reject, RejectFilter, newest_rejects
from kappa.serving.query.tables import ServedTable
from kappa.state.build_status import StepTimes, put_step_times
from kappa.state.drift import Drift, DriftKind, put_drifts, read_drifts
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Difference,
    Event,
    PromoteAsked,
    Staged,
    VerifyAsked,
)
from kappa.state.journal.journal import JournalRecord
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOARD = 'title = "Now"\n[[chart]]\ntitle = "a"\nkind = "table"\nsql = "from by_page"\n'


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    world = World(tmp_path_factory.mktemp("world"))
    world.lives()
    world.be_up()
    with serving(world) as server:
        yield server


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Returns a world for one test that is up and serves nothing yet."""
    made = World(tmp_path)
    made.be_up()
    return made


@pytest.mark.parametrize("path", ["/", "/query", "/history", "/topics/visits", "/nowhere"])
def test_each_page_names_its_project(lived: Server, path: str) -> None:
    page = got(lived, path)

    assert "· shop · Kappa" in page.text
    assert "Project shop · root" in page.text
    assert "· host canary" in page.text
    assert {"/", "/query", "/tables", "/history"} <= {each["href"] for each in page.all("a")}


def test_the_sign_in_names_the_project_alone(tmp_path: Path) -> None:
    with serving(World(tmp_path), token="s3cret-and-long-enough") as server:
        page = got(server, "/login")

    assert "Sign in · shop · Kappa" in page.text
    assert str(tmp_path) not in page.text


def test_an_address_without_a_page_says_so(lived: Server) -> None:
    page = got(lived, "/nowhere")

    assert page.status == 404
    assert "Nothing is here" in page.text
    assert "There is no page /nowhere. To the overview" in page.text


def test_the_time_of_the_last_record_is_shown(world: World) -> None:
    """While a build rests, readers have all records as of now; the newest record may be older."""
    world.goes_live(world.build("web-1"), 1)
    (live,) = observe_status(world.store, None).builds
    assert abs((world.now - live.last_record_at).total_seconds() - 90) < 1

    with serving(world) as server:
        # A pipeline that is behind has not read the newest record.
        assert "Read up to 1 min ago" in got(server, "/").text
        table = got(server, "/tables/web/page_hits").text
    assert "Its newest record came 1 min ago" in table
    assert "Complete as of" in table


def test_a_log_time_of_no_calendar_is_no_time(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    frontiers = Frontiers(world.store, "web-1")
    last = frontiers.newest()
    frontiers.publish(structs.replace(last, number=41, log_time={"visits": {0: 1 << 62}}))

    assert observe_status(world.store, None).builds[0].last_record_at is None


def test_the_graph_links_each_thing_with_its_lag(world: World) -> None:
    """The graph works without scripts. A thing that does not serve yet links to its rollout."""
    world.goes_live(world.build("web-1", offset=200, sinks=(SinkBirth("out", "by_page"),)), 1)
    world.build("web-2", by_page="select 1 as more")
    candidate = world.waits("web-2", "web-1")
    world.declares_board("now", BOARD)
    with serving(world) as server:
        page, wrong = got(server, "/graph"), got(server, "/graph?pipeline=nope")

    links = {each["href"] for each in page.all("a")}
    assert {"/topics/visits", f"/rollouts/{candidate}", "/tables/web/page_hits"} <= links
    assert {"/tables/web/by_page", "/boards/now", "/alerts"} <= links
    assert "1,551 behind" in page.text
    assert "reads visits (1,551 behind)" in page.text
    assert "computed anew" in page.text
    assert f"leaves with rollout {candidate}" in page.text
    assert f"Rollout {candidate} of web Waiting for approval" in page.text
    assert "pipeline nope has no build" in wrong.text


def test_drift_is_shown_with_its_first_record(world: World) -> None:
    """Drift is shown on the overview, in the status and in the metrics, with a stranger's texts."""
    world.goes_live(world.build("web-1"), 1)
    text = f"topic visits has a field {EVIL} that is not declared"
    found = Drift(DriftKind.FIELD, "visits", EVIL, text, "visits:1:17", EVIL, "2026-01-01T00:00Z")
    put_drifts(world.store, "web-1", [found] * 7)
    with serving(world) as server:
        page = got(server, "/")
        metrics = server.ask("GET", "/metrics").body.decode()
    (build,) = observe_status(world.store, None).builds
    (row,) = status_listing(Status(1, (build,)), NOW).row_objects()

    assert "web: events are no longer as declared, in 7 ways" in page.text
    assert text in page.text
    assert "2 older drifts" in page.text
    assert "/topics/visits?partition=1&start=17" in {each["href"] for each in page.all("a")}
    assert 'topic="visits",kind="undeclared_field"} 7' in metrics
    assert f"drift: {text}, first in visits:1:17, and 6 other drifts" in row["note"]
    assert row["drift"][0]["proof"] == "visits:1:17"
    assert "value" not in row["drift"][0]


def test_freshness_is_shown_by_step(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    put_step_times(world.store, "web-1", StepTimes({"wait": 0.25, "read": 1.5}, 3, "then"))
    with serving(world) as server:
        page = got(server, "/")

    assert "Freshness by step: wait 250 ms, read 1,500 ms" in page.text


# Lists.


def card(name: str, *, lag: int = 0, rate: float = 0.0, trouble: str = "") -> PipelineCard:
    live = BuildStatus(name, "live", "b", "v", Offsets(), lag, NOW, 1, 0, trouble=trouble)
    health, chart = health_of(live, NOW, rate=rate), {"x": [], "y": []}
    return PipelineCard(name, live, None, None, health, rate, chart, 0.0, 1, None)


def test_many_pipelines_are_a_list_with_search_and_order() -> None:
    cards = [card("a", lag=5), card("B", rate=2.0), card("c", trouble="died"), card("ab", lag=9)]

    def names(search: str, sort: str) -> list[str]:
        return [each.pipeline for each in pipeline_list(cards, search, sort).rows]

    assert names("", "") == names("", "nonsense") == names("", "state") == ["c", "ab", "a", "B"]
    assert names("", "name") == ["a", "B", "c", "ab"]
    assert names("b", "") == ["ab", "B"]
    assert names("", "lag") == ["ab", "a", "B", "c"]
    assert names("", "rate")[0] == "B"
    assert names("", "state")[0] == "c"
    assert pipeline_list(cards, "", "").dense
    assert not pipeline_list(cards[:3], "", "").dense
    assert pipeline_list(cards, "zz", "").total == 4


def test_the_healthy_pipelines_of_a_list_are_folded() -> None:
    """Only if there are others, in the order by state, and while nothing is searched."""
    cards = [card("a"), card("b", lag=9), card("c", rate=2.0), card("d", trouble="died")]
    found = pipeline_list(cards, "", "")

    assert [each.pipeline for each in found.rows] == ["d", "b", "a", "c"]
    assert found.folded == 2
    for search, sort in (("", "name"), ("", "lag"), ("a", "")):
        assert pipeline_list(cards, search, sort).folded == 0
    calm = [card(each) for each in "abcd"]
    assert pipeline_list(calm, "", "").folded == 0


def test_a_list_of_pipelines_is_on_the_overview(world: World) -> None:
    names = ("web", "shop", "fraud", "orders")
    for number, name in enumerate(names, start=1):
        world.build(f"b{number}", pipeline=name)
        world.goes_live(f"b{number}", number, pipeline=name, ago=1800)
    with serving(world) as server:
        whole, some = got(server, "/"), got(server, "/?search=SHO&sort=lag")

    assert "4 pipelines" in whole.text
    rows = [each["id"] for each in whole.all("tr") if "id" in each]
    assert rows == sorted(f"pipe-{name}" for name in names)
    assert len(whole.all("polyline")) == 4
    # The pipeline web has a view beside its table.
    assert re.findall(r"351 \S+ /s (\d) 1,500", whole.text) == ["1", "1", "1", "2"]
    assert [each["id"] for each in some.all("tr") if "id" in each] == ["pipe-shop"]
    assert {"value": "SHO", "name": "search"}.items() <= some.all("input")[0].items()
    assert any(each["href"] == "/?sort=rate&search=SHO" for each in some.all("a"))


def test_tables_are_found_by_name_and_column(lived: Server) -> None:
    def tables(search: str) -> set[str]:
        page = got(lived, f"/tables?search={search}")
        links = [each["href"] or "" for each in page.all("a")]
        return {each.rpartition("/")[2] for each in links if each.startswith("/tables/web/")}

    assert tables("") == {"page_hits", "by_page", "rejects"}
    assert tables("minute") == {"page_hits"}
    assert tables("BY_") == {"by_page"}
    assert "No table or column has this" in got(lived, "/tables?search=zz").text


def test_tables_are_sorted_by_links(world: World) -> None:
    """In an order, the tables of all pipelines are one list. Rows, sizes and keys are shown."""
    for number, (name, rows) in enumerate((("few", 3), ("many", 40)), start=1):
        build = world.build(f"b{number}", pipeline=name, rows=rows)
        world.goes_live(build, number, pipeline=name)
    with serving(world) as server:
        whole, rows_first = got(server, "/tables"), got(server, "/tables?sort=rows&search=hits")
        strange = got(server, "/tables?sort=%3Cb%3E")

    def order(page: Page) -> list[str]:
        links = [each["href"] or "" for each in page.all("a")]
        found = [each.rpartition("/")[2] for each in links if each.startswith("/tables/")]
        return [each for each in found if each.startswith("hits_")]

    assert order(whole) == ["hits_b1", "hits_b2"]
    assert order(rows_first) == ["hits_b2", "hits_b1"]
    assert order(strange) == order(whole)
    assert {"/tables?sort=size&search=hits", "/tables?search=hits"} <= {
        each["href"] for each in rows_first.all("a")
    }
    assert "page, minute" in whole.text
    assert re.search(r"hits_b2 40 \d+\.\d kB page, minute", whole.text)
    assert any(each.get("aria-sort") == "descending" for each in rows_first.all("th"))


def test_the_history_of_a_pipeline_alone_is_shown() -> None:
    state = fold_records(numbered(*READY))
    whole, one = timeline_moments(state), timeline_moments(state, pipeline="trains")

    assert {each.number for each in one} < {each.number for each in whole}
    assert {each.pipelines for each in one} == {("trains",)}
    # Each pipeline's own line is marked, and not only the newest generation.
    serving_now = {each.pipeline for moment in whole for each in moment.switches if each.now}
    assert serving_now == {"flights", "trains"}


def test_a_clock_time_has_its_day_if_it_is_not_today() -> None:
    now = datetime(2026, 1, 31, 0, 30, tzinfo=UTC)

    assert formatting.clock(now - timedelta(minutes=23), now) == "00:07 UTC"
    assert formatting.clock(now - timedelta(minutes=31), now) == "2026-01-30 23:59 UTC"


def test_the_history_is_filtered_by_kind_and_has_durations(lived: Server) -> None:
    """The address has the filter. An unknown kind shows the whole history."""
    failed, served = (got(lived, f"/history?kind={kind}") for kind in ("failed", "generations"))
    whole, unknown = got(lived, "/history"), got(lived, "/history?kind=%3Cscript%3E")

    assert "web, rollout 3 Failed" in failed.text
    assert "Generation" not in failed.text[failed.text.index("web, rollout 3") :]
    assert "rollout 3" not in served.text
    assert "Rollout 1 took 1 min" in served.text
    assert re.search(r"is kept until [\d :-]+ UTC \( in ", whole.text)
    assert re.search(r"ago (\d{4}-\d\d-\d\d )?\d\d:\d\d UTC", whole.text)
    # All that the generation switched serves.
    assert "Generation 2 Serving web web-2" in whole.text
    assert re.search(r"— check failed .* · failed .* after it began", failed.text)
    assert len(unknown.all("li")) == len(whole.all("li"))
    assert "Nothing of this kind has happened." in got(lived, "/history?kind=proofs").text


def test_a_dead_letter_is_sent_again_once_per_key(tmp_path: Path) -> None:
    """A dry run asks for nothing; the request stands until the courier has tried the letter."""
    world, path = World(tmp_path), "/api/v1/alerts/retry"
    world.lives()
    wanted = {"alert": "late", "id": "msg_1"}
    with serving(world) as server:
        would = server.ask("POST", path, {**wanted, "dry_run": True})
        before = ids_to_send_again(world.store, "late")
        keyless = server.ask("POST", path, wanted)
        sent = server.ask("POST", path, wanted, Idempotency_Key="k")
        asked = ids_to_send_again(world.store, "late")
        delete_request_to_send_again(world.store, "late", "msg_1")
        again = server.ask("POST", path, wanted, Idempotency_Key="k")
        unknown = server.ask("POST", path, {"alert": "late", "id": EVIL, "dry_run": True})

    text = "1 dead letter of alert late: sent again, once, as soon as kappa is up"
    assert (would.status, would.document) == (200, {"would": text, "letters": 1})
    assert (before, keyless.status) == ((), 428)
    assert (sent.status, sent.document, asked) == (202, {"did": text, "letters": 1}, ("msg_1",))
    assert (again.document, ids_to_send_again(world.store, "late")) == (sent.document, ())
    assert unknown.status == 400


# Charts and rates.


def points(*found: tuple[float, int]) -> list[HistoryPoint]:
    return [HistoryPoint(NOW - timedelta(seconds=ago), offset) for ago, offset in found]


def test_a_chart_goes_on_over_a_promote() -> None:
    """The chart shows ten records a second under both builds, although their offsets differ."""
    first = points(*((ago, 50_000 - 10 * ago) for ago in range(600, 0, -10)))
    second = points(*((ago, 7_000 - 10 * ago) for ago in range(360, -1, -10)))
    at = NOW - timedelta(seconds=300)
    joined = joined_points([(NOW - timedelta(hours=2), first), (at, second)])

    times, rates = rates_over_time(joined, NOW)
    assert times[-1] - times[0] > 580
    assert all(rate == pytest.approx(10, abs=1.1) for rate in rates[1:])


def test_a_chart_begins_when_the_first_build_serves() -> None:
    replayed = points((300, 0), (200, 1_000_000), (100, 1_000_100), (0, 1_000_200))

    times, rates = rates_over_time(joined_points([(NOW - timedelta(seconds=150), replayed)]), NOW)
    assert times[-1] - times[0] <= 150
    assert max(rates) < 10
    assert joined_points([(NOW, [])]) == ()


@pytest.mark.parametrize(
    ("rate", "shown", "unit"),
    [
        *((0.04, "2.4", "/min"), (0.0004, "1.4", "/h"), (12.0, "12", "/s")),
        *((0.5, "0.5", "/s"), (0.0, "0", "/s"), (0.0000001, "<0.01", "/h")),
    ],
)
def test_a_slow_rate_is_a_minutes_or_an_hours(rate: float, shown: str, unit: str) -> None:
    name, seconds, _ = formatting.per(rate)

    assert (formatting.number(rate * seconds), name) == (shown, unit)


def test_a_count_and_its_noun_agree() -> None:
    assert formatting.amount(1, "reject") == "1 reject"
    assert formatting.amount(1200, "reject") == "1,200 rejects"
    assert formatting.amount(2, "query") == "2 queries"


def test_small_lines_fill_their_height() -> None:
    assert formatting.spark_points([1.0]) == ""
    assert formatting.spark_points([0.0, 2.0, 1.0]) == "0.0,19.0 48.0,1.0 96.0,10.0"
    assert formatting.spark_points([0.0, 0.0]) == "0.0,19.0 96.0,19.0"


def test_a_redriven_reject_is_no_open_one(world: World) -> None:
    world.goes_live(world.build("web-1", evil=EVIL, redriven=(7,)), 1)
    with serving(world) as server:
        overview, rejects = got(server, "/"), got(server, "/rejects")
        metrics = server.ask("GET", "/metrics").body.decode()

    assert "Rejected 1 " in overview.text
    assert "1 reject , no_json of web; 1 other was redriven" in rejects.text
    assert 'kappa_rejects{pipeline="web",reason="no_json"} 2' in metrics


# Queries.


def asked(server: Server, sql: str, **headers: str) -> Page:
    return got(server, f"/query?sql={quote(sql)}", **headers)


def test_a_redriven_reject_is_no_drift(world: World) -> None:
    """Another reject with the same reason becomes the proof. Without one, the drift is over."""
    world.goes_live(world.build("web-1", evil=EVIL), 1)
    first, second = sorted(
        newest_rejects(world.store, RejectFilter(), limit=9), key=lambda each: each.at
    )
    drift = Drift(DriftKind.REASON, "visits", "no_json", "rejected", str(first.at), "{", "then")
    field = Drift(DriftKind.FIELD, "visits", "user", "a field", str(first.at), "{}", "then")
    put_drifts(world.store, "web-1", [field, drift])

    def redriven(*rejects: Reject) -> Redrive:
        headers = [(each.original.header(),) for each in rejects]
        return Redrive(
            {"visits": tuple(ProducedRecord(b"{}", None, None, h) for h in headers)}, 0, 0
        )

    settle_drifts(world.store, redriven(first))
    kept, left = read_drifts(world.store, "web-1")
    assert (kept, left.proof, left.at) == (field, str(second.at), "then")
    settle_drifts(world.store, redriven(first, second))
    assert read_drifts(world.store, "web-1") == (field,)


def test_a_query_is_in_the_address(lived: Server) -> None:
    page = asked(lived, "select page, hits from page_hits order by hits desc limit 3")

    assert page.status == 200
    assert re.search(
        r"3 rows · as of [0-9]{4}-[0-9-]{5} [0-9:]{8} UTC · generation 2 · [0-9,]+ ms", page.text
    )
    assert "/page/6" in page.text
    assert "select page, hits" in page.text
    # The rows are amounts by name.
    assert len(page.all("rect")) == 3
    assert "/generations/2" in {each.get("href") for each in page.all("a")}
    assert "5 rows · as of" in asked(lived, "from by_page limit 5").text
    assert "1 row · generation 2" in asked(lived, "select 1").text


def test_tables_beside_a_query_lead_to_rows_and_values(lived: Server) -> None:
    """Each link is a query that the server answers. Long lists of columns are cut."""
    links = [each["href"] or "" for each in got(lived, "/query").all("a")]
    found = [each for each in links if each.startswith("/query?sql=")]

    # Three samples, page_hits with three columns, and by_page with two.
    assert len(found) == 3 + 2 + 5
    for each in found:
        assert "rows · as of" in got(lived, each).text
    shown = got(lived, "/query?sql=select+minute,hits+from+page_hits")
    assert [each["id"] for each in shown.all("input") if each.get("type") == "radio"] == [
        "show-both",
        "show-chart",
        "show-rows",
    ]
    table = ServedTable(
        "wide", "table", "web", "web-1", 1, tuple((f"c{n}", "int") for n in range(70))
    )
    (wide,) = queried_tables([table])
    assert (len(wide.columns), wide.more) == (50, 20)


def test_a_query_that_fails_keeps_its_text(lived: Server) -> None:
    page = asked(lived, "select * from page_hitz")

    # The status of the API, for a page, too.
    assert page.status == lived.query("select * from page_hitz").status >= 400
    assert "page_hits" in page.text
    assert any(each.get("role") == "alert" for each in page.all("div"))
    assert "select * from page_hitz" in page.text


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("select page from page_hitz\nwhere page <> 'page_hitz'", "page_hits"),
        ("select page, hitz from page_hits where hitz > 38", "hits"),
    ],
)
def test_a_wrong_name_leads_to_the_mended_query(lived: Server, sql: str, name: str) -> None:
    page = asked(lived, sql)
    (link,) = [each["href"] or "" for each in page.all("a") if each.get("class") == "button"]
    mended = got(lived, link)

    assert f"Run with {name}" in page.text
    assert (len(page.all("del")), len(page.all("ins"))) == (1, 1) if name == "page_hits" else (2, 2)
    assert "rows · as of" in mended.text
    assert ("'page_hitz'" in sql) == ("'page_hitz'" in mended.text)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("the query cannot be run: there is no table page_hitz", "there are a, b"),
        ("the query cannot be run: there is no table other", "did you mean page_hits?"),
        ("the query took too long", "did you mean page_hits?"),
    ],
)
def test_without_a_suggestion_there_is_no_mended_query(message: str, hint: str) -> None:
    assert mended_query("from page_hitz", UsageError(message, hint=hint)) is None


@pytest.mark.parametrize(
    ("sql", "message", "marked"),
    [
        ("from a join a", "there is no table a", "a a"),
        ("select 'a' from a", "the query cannot be run: there is no table a", "a"),
        ("selec 1", 'syntax error at or near "selec"', "selec"),
        ("select (1 from t)", 'syntax error at or near "from"', "from"),
        ("select a b c, a b c", 'syntax error at or near "c"', ""),
        ("from b", "there is no table a", ""),
        ("from a", "the query took too long", ""),
        (f"from a -- {'x' * 2_000}", "there is no table a", ""),
    ],
)
def test_the_place_of_a_mistake_is_marked(sql: str, message: str, marked: str) -> None:
    """A text is no place, and a place that the message does not tell is not guessed."""
    parts = marked_query(sql, UsageError(message))

    assert " ".join(text for text, is_wrong in parts if is_wrong) == marked
    assert "".join(text for text, _ in parts) == (sql if marked else "")


def test_a_word_that_the_parser_refuses_is_marked(lived: Server) -> None:
    assert len(asked(lived, "selec page from page_hits").all("mark")) == 1


@pytest.mark.parametrize(
    ("sql", "order"),
    [
        ("select page, sum(hits) from page_hits group by page", [3, 2, 1]),
        ("select page, sum(hits) from page_hits group by page order by page", [2, 3, 1]),
    ],
)
def test_rows_have_the_order_of_their_bars(sql: str, order: list[int]) -> None:
    columns = [{"name": "page", "type": "VARCHAR"}, {"name": "hits", "type": "BIGINT"}]
    rows = [{"page": str(hits), "hits": hits} for hits in (2, 3, 1)]
    answer = {"columns": columns, "rows": rows, "truncated": False}
    drawn = draw_rows(answer, sql)
    shown = ordered_rows(typed_rows(answer), drawn, sql)

    assert isinstance(drawn, DrawnBars)
    assert [hits for _, hits in shown.rows] == [bar.value for bar in drawn.bars] == order


def test_rows_have_the_order_of_their_line() -> None:
    """Rows that cannot be compared stay as they are."""
    columns = [{"name": "n", "type": "BIGINT"}, {"name": "hits", "type": "BIGINT"}]
    for given, order in (([3, 1, 2], [1, 2, 3]), ([3, None, 2], [3, None, 2])):
        rows = [{"n": n, "hits": 1} for n in given]
        answer = {"columns": columns, "rows": rows, "truncated": False}
        drawn = draw_rows(answer, "from t")
        assert drawn is not None
        assert [n for n, _ in ordered_rows(typed_rows(answer), drawn, "from t").rows] == order


def test_samples_are_of_a_table_with_times(lived: Server) -> None:
    """An empty page has some. A table without times has its rows, and a name is quoted."""
    page = got(lived, "/query")
    assert "Sample queries The newest rows of page_hits from page_hits order by" in page.text
    assert "Hits by page select" in page.text
    assert "Hits by minute select" in page.text
    assert "Sample queries" not in got(lived, "/query?sql=from+by_page").text
    plain = ServedTable("Plain", "table", "web", "web-1", 1, (("who", "VARCHAR"), ("n", "DOUBLE")))
    rows, amounts = sample_queries([plain])
    assert (rows.text, amounts.text) == ("rows of Plain", "n by who")
    assert quote('."Plain"') in rows.address
    assert sample_queries([]) == ()


def test_a_sample_of_a_board_is_a_board(lived: Server) -> None:
    """Its queries are of a table that serves; without one, it is the board of a template."""
    columns = (("who's", "VARCHAR"), ("n", "BIGINT"), ("at", "TIMESTAMP"))
    own = sample_board([ServedTable("T", "table", "web", "web-1", 1, columns)])
    board = board_of(own.content.encode(), own.path)
    kinds = [(each.title, each.kind) for each in board.charts]
    assert kinds == [
        ("N by who's", ChartKind.BARS),
        ("N by at", ChartKind.LINE),
    ]
    example = sample_board([])
    assert board_of(example.content.encode(), example.path).title == "Pages now"
    # The file tells its own address.
    assert (example.path, own.is_own, example.is_own) == ("boards/pages.toml", True, False)
    assert "/boards/pages" in example.content
    page = got(lived, "/boards")
    assert "from page_hits" in page.text
    assert "no table yet" not in page.text


def test_an_empty_project_has_the_steps_that_are_left(tmp_path: Path) -> None:
    """A step that is done is left out, and the commands name what the project's files declare."""
    world = World(tmp_path)
    with serving(world) as server:
        page, alerts, boards = (got(server, each) for each in ("/", "/alerts", "/boards"))
        world.be_up()
        up = got(server, "/")
        (tmp_path / "pipelines").mkdir()
        code = (
            '@pipeline(reads={"visits": Topic("sights")}, writes=[Table("seen")])\n'
            "def web(visits): ...\n"
        )
        (tmp_path / "pipelines" / "web.py").write_text(code)
        written = got(server, "/")

    assert "Kappa is not up. These steps are left" in page.text
    assert page.text.count("kappa up -d") == 1
    assert "kappa init" not in page.text
    assert "pipelines/web.py" in page.text
    assert "kappa up -d" not in up.text
    assert "kappa produce sights FILE" in written.text
    assert "kappa query 'from seen'" in written.text
    assert "def web" not in written.text
    # Nothing stands still, so nothing is open.
    assert "kappa is not up" not in alerts.text
    assert "There is no table yet either" in boards.text


def test_the_steps_of_an_empty_project_end_with_an_answer() -> None:
    """A name with a space is quoted for SQL and for the shell."""
    copied = [each.copied for each in first_steps([], is_up=False)]
    odd = WrittenPipeline("web", ("visits",), (("table", "Seen pages"),))

    assert copied[0].count("@pipeline") == 1
    assert copied[1:3] == ["kappa up -d", "kappa topics create"]
    assert copied[3].startswith("echo '{")
    assert copied[4:] == ["kappa deploy --yes", "kappa query 'from page_hits'"]
    assert first_steps([odd], is_up=True)[-1].copied == "kappa query 'from \"Seen pages\"'"


def test_a_long_query_comes_as_a_form(lived: Server) -> None:
    sql = f"select count(*) as n from page_hits /* {'x' * 60_000} */"
    form, kind = f"sql={quote(sql)}".encode(), "application/x-www-form-urlencoded"
    answered = lived.ask("POST", "/query", form, Accept=HTML, Content_Type=kind)

    assert "1 row · as of" in Page(answered).text


def test_another_site_may_link_but_not_ask(lived: Server) -> None:
    page = asked(lived, "select 40 + 2 as n", Sec_Fetch_Site="cross-site")
    file = lived.ask("GET", "/query.csv?sql=select+1", Sec_Fetch_Site="cross-site")

    assert "Another site has linked to this query" in page.text
    assert "· generation" not in page.text
    assert file.status == 403


def test_an_answer_is_a_file_of_csv(lived: Server) -> None:
    sql = quote("select page, 1.50::decimal(9,2) as p from page_hits order by page limit 2")
    file = lived.ask("GET", f"/query.csv?sql={sql}")

    assert file.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in file.headers["content-disposition"]
    rows = list(csv.reader(io.StringIO(file.body.decode())))
    assert rows[0] == ["page", "p"]
    assert [row[1] for row in rows[1:]] == ["1.50", "1.50"]
    assert lived.ask("GET", "/query.csv?sql=drop+table+x").status == 400


def test_numbers_are_written_alike_everywhere(lived: Server) -> None:
    """A decimal comes from the sandbox as text, and is displayed as a number."""
    sql = quote("select 5560.36::decimal(9,2) as d, 12345 as n")
    answered: Answered = lived.ask("GET", f"/query?sql={sql}", Accept=HTML)
    page = answered.body.decode()

    assert '<td class="num">5,560.36</td>' in page
    assert '<td class="num">12,345</td>' in page
    assert '<th scope="col" class="num">d</th>' in page


def test_a_wide_answer_shows_fewer_rows(lived: Server) -> None:
    columns = ", ".join(f"n as c{each}" for each in range(500))
    page = asked(lived, f"select {columns} from range(90) of(n)")

    assert "90 rows" in page.text
    assert "The first 40 rows are shown" in page.text
    assert len(page.all("td")) == 40 * 500


@pytest.mark.parametrize(
    ("columns", "rows", "drawn"),
    [
        ("at TIMESTAMP, n BIGINT", [["2026-01-01", 1], ["2026-01-02", 2]], "DrawnLines"),
        ("who VARCHAR, n BIGINT", [["a", 1], ["b", 2]], "DrawnBars"),
        ("who VARCHAR, n BIGINT", [["a", 1], ["a", 2]], "NoneType"),
        ("who VARCHAR, n VARCHAR", [["a", "x"], ["b", "y"]], "NoneType"),
        ("n BIGINT, m BIGINT", [[1, 1], [1, 2]], "NoneType"),
        ("at TIMESTAMP, n BIGINT", [["2026-01-01", 1]], "NoneType"),
    ],
)
def test_a_chart_is_chosen_by_the_rows(columns: str, rows: list[list[object]], drawn: str) -> None:
    pairs = [each.split(" ") for each in columns.split(", ")]
    made = [{"name": name, "type": kind} for name, kind in pairs]
    named = [dict(zip((name for name, _ in pairs), row, strict=True)) for row in rows]
    found = draw_rows({"columns": made, "rows": named, "truncated": False}, "from t")

    assert type(found).__name__ == drawn


def test_the_page_of_a_table_shows_sources_as_text(world: World) -> None:
    quoted = EVIL.replace('"', '""')
    view = f'select page as "{quoted}", sum(hits) as hits from page_hits group by page'
    world.goes_live(world.build("web-1", by_page=view), 1)
    with serving(world) as server:
        page, table = got(server, "/tables/web/by_page"), got(server, "/tables/web/page_hits")

    assert EVIL in page.text
    links = {each["href"] for each in page.all("a")}
    assert "/tables/web/page_hits" in links
    assert all((each["src"] or "").startswith("/static/") for each in page.all("script"))
    assert "not known before the next deploy" not in table.text


# Topics.


def test_records_are_found_by_offset_time_and_text(lived: Server) -> None:
    def places(query: str) -> list[str]:
        page = got(lived, f"/topics/visits?{query}")
        assert page.status == 200
        ids = (each.get("id") or "" for each in page.all("tr"))
        return [each.removeprefix("record-") for each in ids if each.startswith("record-")]

    assert places("start=3&partition=0") == [f"0-{offset}" for offset in range(3, 53)]
    assert places("start=2026-01-01T00:00&partition=1")[0] == "1-500"
    assert places("before=3&partition=0") == ["0-2", "0-1", "0-0"]
    assert places("order=oldest&partition=1")[:2] == ["1-0", "1-1"]
    assert places("value=1.10&partition=0&before=9") == ["0-6", "0-2"]
    assert places("value=hex+ff&partition=0&before=4") == ["0-3", "0-1"]
    assert "1,851 records looked at" in got(lived, "/topics/visits?key=nobody").text
    assert "No record here." in got(lived, "/topics/visits?key=nobody").text
    assert places("partition=0&key=script")


def test_a_search_that_cannot_be_read_is_named(lived: Server) -> None:
    assert "is not a time" in got(lived, "/topics/visits?start=yesterday").text
    assert "has no partition 9" in got(lived, "/topics/visits?partition=9").text
    assert got(lived, f"/topics/visits?start={'9' * 40}&partition=x").status == 200


def test_a_rejected_record_is_marked(lived: Server) -> None:
    page = got(lived, "/topics/visits?partition=0&start=7")

    assert len([each for each in page.all("tr") if each.get("class") == "invalid"]) == 2
    assert "Rejected no_json: cut off" in page.text
    (mark, _) = (each["href"] or "" for each in page.all("a") if each.get("class") == "chip bad")
    reject = got(lived, mark)
    assert mark == "/rejects?at=visits%3A0%3A7"
    # A whole value has its length too, and nothing is to be seen elsewhere.
    assert re.search(r"no_json cut off .* \d+ bytes ", reject.text)
    assert "kappa rejects show" not in reject.text
    assert "2 rejects , all no_json of web" in got(lived, "/rejects").text
    assert "TOPIC:PARTITION:OFFSET" in got(lived, "/rejects?at=x").text


def test_a_topic_of_a_candidate_has_a_reader(world: World) -> None:
    with serving(world) as server:
        assert "no build" in got(server, "/topics").text
        # At once, and not after the look before has become old.
        world.append(Staged("web", world.build("web-1"), "version", ("new",)))
        world.desk._looks.pop((None, "status"), None)
        page = got(server, "/topics")

    assert "web candidate" in page.text
    assert "retained" in page.text


# Rollouts.


def test_a_rollout_shows_how_long_its_stages_took(lived: Server) -> None:
    page = got(lived, "/rollouts/2")

    assert "Replay took 1 min Verify took 12 s" in page.text
    assert "Switch took 3." in page.text, page.text


def timed(*events: tuple[float, Event]) -> list[JournalRecord]:
    """Returns journal records, each dated some seconds after `NOW`."""
    records = zip(numbered(*(event for _, event in events)), events, strict=True)
    return [
        structs.replace(record, at=(NOW + timedelta(seconds=seconds)).isoformat())
        for record, (seconds, _) in records
    ]


def test_the_seconds_of_stages_add_up() -> None:
    passed = verified(1)
    waiting = Staged("p", "b", "v", ("new",), auto_promote=False)
    records = timed(
        *((0, waiting), (5, CaughtUp(1, Offsets())), (7, passed), (10, VerifyAsked(1, 0))),
        *((14, passed), (20, Staged("q", "c", "v", ("new",))), (44, PromoteAsked(1))),
        (45, served(1, 1, "b", pipeline="p")),
    )

    done, last = stage_seconds(1, records[:4])
    assert done == {"Replay": 5, "Verify": 2, "Approval": 3}
    assert last == ("Verify", records[3].at)
    done, last = stage_seconds(1, records)
    assert (done, last) == ({"Replay": 5, "Verify": 6, "Approval": 33, "Switch": 1}, None)
    assert stage_seconds(1, []) == ({}, None)


def test_the_code_that_changed_is_beside_the_button(world: World) -> None:
    """The diff compares the code of both builds, even if the project's files have changed since."""
    for build, line in (("web-1", "return 1"), ("web-2", f"return {EVIL!r}")):
        world.build(build, code=f"def web(row):\n    {line}\n")
    world.goes_live("web-1", 1)
    world.waits("web-2", "web-1")
    with serving(world) as server:
        page = got(server, "/rollouts/2")
        again = got(server, "/rollouts/1")

    assert "Code that changed" in page.text
    kinds = [each.get("class") for each in page.all("span")]
    assert ("new" in kinds, "old" in kinds) == (True, True)
    assert "- return 1" in page.text
    assert EVIL[:8] in page.text
    assert "Code that changed" not in again.text


def test_keys_and_changed_columns_come_first() -> None:
    wide = {f"c{each}": 0 for each in range(12)}
    rows = tuple(
        RowSample("changed", {**wide, "c9": each}, {**wide, "c9": each + 1, "c11": each})
        for each in range(3)
    )
    differences = (Difference("wide", 9, 9, changed=7),)
    comparison = Comparison(differences, {"wide": rows, "same": ()}, (), ())
    (found,) = sampled_tables(comparison, {"wide": ("c2",), "same": ("k",)})

    assert found.columns[:4] == ("c2", "c9", "c11", "c0")
    assert len(found.columns) == len({*found.columns}) == 12
    assert found.changes == {"c9": 3, "c11": 2}
    assert found.rows[1].cells[:3] == ((0,), (1, 2), (0, 1))
    assert (found.counts, found.is_part) == ((KindCount("changed", 3, 7),), True)


def test_views_of_changed_tables_change_with_them() -> None:
    """A view of a view changes too, in whatever order they are declared, and a view of new SQL."""
    views = {"top": "from by_page", "by_page": "from hits", "other": "from visits", "self": ""}
    reads = {"from by_page": {"by_page"}, "from hits": {"hits"}, "from visits": {"visits"}}
    differences = (Difference("hits", 9, 9, changed=7), Difference("visits", 9, 9))

    def changed(differences: Iterable[Difference], **before: str) -> tuple[str, ...]:
        def names_in(sql: str) -> frozenset[str]:
            return frozenset(reads.get(sql, ()))

        return changed_views(views, {**views, **before}, differences, names_in)

    assert changed(differences) == ("top", "by_page")
    assert changed(differences[1:]) == changed_views(views, {}, (), frozenset) == ()
    assert changed((), by_page="from visits") == ("top", "by_page")


def test_samples_have_added_and_removed_rows_marked() -> None:
    """A row of a table without keys counts as often as a side has it more often."""
    removed = RowSample("removed", {"k": 1}, None)
    added = RowSample("added", None, {"k": 2}, times=3)
    changed = RowSample("changed", {"k": 3}, {"k": 4})
    differences = (Difference("t", 2, 4, added=3, removed=1, changed=1),)
    comparison = Comparison(differences, {"t": (removed, added, changed)}, (), ())
    (found,) = sampled_tables(comparison, {})

    assert [(row.kind, row.times) for row in found.rows] == [
        *(("changed", 1), ("added", 3), ("removed", 1))
    ]
    assert [each.shown for each in found.counts] == [1, 3, 1]
    assert not found.is_part


def test_a_long_diff_is_cut() -> None:
    diff = PartDiff("function a.py:f", "function f", ("@@", *("+x" for _ in range(500))))
    (shown,) = changed_parts_shown([diff])

    assert (len(shown.lines), shown.left_out) == (300, 201)
    assert [each.kind for each in shown.lines[:2]] == ["place", "new"]


def test_the_changed_words_of_a_pair_of_lines_are_marked() -> None:
    """Of two removed lines, and of lines that have little in common, nothing is marked.

    A short equal text between two changes is marked with both changes.
    """
    pair = ("-    return a.where('x')", "+    return b.where('x')", " end")
    different = ("-first line", "+    0 != [1]")
    two = ("-one a", "-one b", "+one c", " end")
    torn = ("-    return a.select('page')", "+    return a.select(\"split(page, '?')[0] as page\")")
    diff = PartDiff("function a.py:f", "function f", (*pair, *two, *different, " ", *torn))
    (shown,) = changed_parts_shown([diff])

    marked = [[text for text, is_changed in line.pieces if is_changed] for line in shown.lines]
    assert marked[:-2] == [["a"], ["b"], *([] for _ in range(8))]
    assert marked[-2:] == [["'page')"], ["\"split(page, '?')[0] as page\")"]]
    texts = ["".join(text for text, _ in line.pieces) for line in shown.lines]
    assert texts == list(diff.lines)


def test_a_first_rollout_begins_with_no_separator(world: World) -> None:
    world.append(Staged("web", world.build("web-1"), "version", ()))
    with serving(world) as server:
        text = got(server, "/rollouts/1").text

    assert re.search(r"begun just now \(\d\d:\d\d UTC\) by", text)
    assert "· begun" not in text


def test_an_undo_of_an_undo_is_a_redo() -> None:
    def label(state: State) -> str:
        offer = undo_offer(state, "flights")
        assert offer is not None
        (action,) = offer.actions
        return action.label

    first = (*READY[:4], staged("b"), CaughtUp(5, Offsets()), verified(5))
    switched = (*first, *_held_and_served(5, 2, "b", "a"))
    state = fold_records(numbered(*switched))
    assert label(state) == "Undo"
    undone = (*switched, switch_asked("a"), *_held_and_served(len(switched) + 1, 3, "a", "b"))
    assert label(fold_records(numbered(*undone))) == "Redo"


def test_an_undo_that_a_rollout_blocks_says_so_on_each_page(world: World) -> None:
    """No page offers an undo that would be refused; a dry run is refused for the same reason."""
    world.lives()
    paths = ("/", "/history", "/rollouts/2", "/generations/1")
    wanted = {"intent": "undo", "pipelines": ["web"], "dry_run": True}
    with serving(world) as server:
        blocked = [got(server, path) for path in paths]
        refused = server.ask("POST", "/api/v1/rollouts", wanted, If_Match="*")
        (rollout,) = current_state(world.store).active_rollouts
        world.append(Abandoned(rollout.id, "by hand"))
        free = [got(server, path) for path in paths]
        told = server.ask("POST", "/api/v1/rollouts", wanted, If_Match="*")

    assert (refused.status, told.status) == (409, 200)
    for page in blocked:
        assert re.search("first abandon rollout 5 .*then run kappa undo web", page.text)
        assert not re.search("kappa undo web (--to 1 )?goes back to", page.text)
        assert "undo" not in intents(page)
    for page in free:
        assert "first abandon" not in page.text
        assert re.search("kappa undo web (--to 1 )?goes back to", page.text)
    assert [("undo" in intents(page)) for page in free] == [True, False, True, True]


def _held_and_served(rollout: int, generation: int, build: str, live: str) -> tuple[Event, ...]:
    return held(rollout, live), served(rollout, generation, build, live=live)


# Logs.


def test_a_log_is_shown_by_level_and_text(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    path = world.store.local.path("logs/web-1.log")
    path.parent.mkdir(exist_ok=True)
    trace = "Traceback (most recent call last):\n  in f\nValueError: no\n"
    path.write_text(f"12:00 INFO begins\n12:01 WARN slow {EVIL}\n{trace}")
    with serving(world) as server:
        whole, wrong = got(server, "/logs/web-1"), got(server, "/logs/web?level=warning")
        errors = got(server, "/logs/web-1?level=error")
        found, missing = got(server, "/logs/web-1?search=BEGINS"), got(server, "/logs/nobody")
        outside = got(server, "/logs/..%2Frun")

    assert "5 lines;" in whole.text
    assert EVIL in whole.text
    levels = [each.get("class") for each in wrong.all("span")]
    assert [each for each in levels if each in {"warning", "error"}] == ["warning", *3 * ["error"]]
    assert "3 lines of the last 5" in errors.text
    assert "in f" in errors.text
    assert "1 line of the last 5" in found.text
    assert (missing.status, outside.status) == (404, 404)
    assert "There are supervisor, broker" in missing.text


def test_the_navigation_leads_to_the_first_log(world: World) -> None:
    """The link leads to the supervisor's log by default; unwritten logs are not offered."""
    world.goes_live(world.build("web-1"), 1)
    with serving(world) as server:
        nothing = server.ask("GET", "/logs", Accept=HTML)
        log = world.store.local.path("logs/courier.log")
        log.parent.mkdir(exist_ok=True)
        log.write_text("12:00 INFO kappa: begins\n")
        first, page = server.ask("GET", "/logs", Accept=HTML), got(server, "/logs/courier")

    assert nothing.headers["location"] == "/logs/supervisor"
    assert first.headers["location"] == "/logs/courier"
    links = {each["href"] for each in page.all("a")}
    assert "/logs" in links
    assert "/logs/broker" not in links


def test_logs_are_printed_by_level(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prints the last lines of at least the given level, of one process or of all processes."""
    world.goes_live(world.build("web-1"), 1)
    for name in ("web-1", "courier"):
        path = world.store.local.path(f"logs/{name}.log")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"WARN a \xff\nerror: b\n  more\nINFO c\nWARN d\n")
    monkeypatch.chdir(world.here.settings.project)
    kappa = typist(capsys, monkeypatch)

    assert kappa("logs", "web").out.count("\n") == 5
    assert kappa("logs", "web", "--level", "error").out == "error: b\n  more\n"
    assert kappa("logs", "web", "--level", "warning").out == (
        "WARN a \\xff\nerror: b\n  more\nWARN d\n"
    )
    assert kappa("logs", "web", "--level", "warning", "-n", "1").out == "WARN d\n"
    assert kappa("logs", "--level", "error").out == (
        "courier | error: b\ncourier |   more\nweb-1   | error: b\nweb-1   |   more\n"
    )
    assert "is not one of" in kappa("logs", "--level", "loud").err


def test_a_large_log_is_read_at_its_end_alone(tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    with path.open("wb") as file:
        # Without a line break, and mostly a hole.
        file.truncate(1 << 32)
        file.seek(0, 2)
        file.write(b"end")

    text, position = last_lines(path, 500, most_bytes=1 << 18)
    assert text.endswith(b"end")
    assert len(text) <= (1 << 18) + (1 << 16)
    assert position == (1 << 32) + 3


@pytest.mark.parametrize(
    ("line", "level"),
    [
        *(("12:00 WARN Foo: slow", "warning"), ("WARNING: disk", "warning")),
        *(("error: there is no build", "error"), ("java.io.IOException: no", "error")),
        *(("12:00 INFO no errors here", ""), ("x" * 300 + " ERROR", "")),
        *(("12:00 INFO kappa: an IOError: no", ""), ("12:00 WARN kappa: error: a", "warning")),
    ],
)
def test_a_level_is_named_by_the_line(line: str, level: str) -> None:
    assert level_of(line) == level


def test_a_promote_shows_the_rows_that_differ_first(lived: Server) -> None:
    wanted = {"intent": "promote", "pipelines": ["web"], "dry_run": True}
    promote = lived.ask("POST", "/api/v1/rollouts", wanted, If_Match="*").document
    assert "page_hits: 40 rows before and 42 after, 2 added (5 %)" in promote["details"][0]
    assert "rejects: 4 before, 3 after" in promote["details"]


def test_what_takes_something_away_looks_so(world: World) -> None:
    world.goes_live(world.build("web-1"), 1)
    with serving(world) as server:
        buttons = [each for each in got(server, "/").all("button") if "data-intent" in each]
        wanted = {"intent": "retire", "pipelines": ["web"], "dry_run": True}
        told = server.ask("POST", "/api/v1/rollouts", wanted, If_Match="*").document["details"]

    looks = {each["data-intent"]: each["class"] for each in buttons}
    assert looks == {"pause": "quiet", "retire": "danger"}
    assert told[0].startswith("table page_hits: 40 rows, 1 file, ")
    assert any("kappa undo web lets it serve again" in each for each in told)
