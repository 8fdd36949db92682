"""Laws of boards on the page: one snapshot, bounded, live, and mistakes shown at their tile."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asking import Server
from page_world import EVIL, ROWS, World

from kappa.declare.board import Board, Chart, ChartKind
from kappa.replay.page import api, routes
from kappa.replay.page.boards import DrawnLines, DrawnNumber, answer_board, is_behind, tables_read
from kappa.serving.http import events
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import read_birth

pytestmark = pytest.mark.slow

HTML = "text/html,application/xhtml+xml"
HITS = "select sum(hits)::bigint as hits from page_hits"
BOARD = f"""
title = "Pages"

[[chart]]
title = "Hits"
kind = "number"
sql = "{HITS}"

[[chart]]
title = "By page"
kind = "bars"
sql = "select page, hits from by_page"

[[chart]]
title = "By minute"
kind = "line"
sql = "select minute, hits from page_hits"

[[chart]]
title = "Rows"
kind = "table"
sql = "from page_hits limit 3"

[[chart]]
title = "Wrong"
kind = "table"
sql = "from page_hitz"

[[chart]]
title = "Many"
kind = "table"
sql = "from range(100000)"
"""


def serving(world: World, token: str | None = None) -> Server:
    routers = {"router": api.router, "more": (events.router, *routes.ROUTERS)}
    return Server(world.store, Allowance(at_once=2), token=token, desk=world.desk, **routers)


def got(server: Server, path: str, **headers: str) -> tuple[int, str]:
    answered = server.ask("GET", path, Accept=HTML, **headers)
    return answered.status, re.sub(r"\s+", " ", answered.body.decode())


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Returns a world for one test, in which builds serve."""
    world = World(tmp_path)
    world.lives()
    return world


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Server]]:
    world = World(tmp_path_factory.mktemp("world"))
    world.lives()
    world.declares_board("pages", BOARD)
    world.declares_board("wrong", BOARD.replace("bars", "pie"))
    world.declares_board("größte %?#", BOARD.replace('"Pages"', "'Größte'"))
    with serving(world) as server:
        yield world, server


def tile(page: str, title: str) -> str:
    """Returns the part of a page that shows the chart with this title."""
    return next(part for part in page.split("<section ") if f">{title}</h2>" in part)


def test_a_board_shows_each_chart_in_its_kind(lived: tuple[World, Server]) -> None:
    status, page = got(lived[1], "/boards/pages")

    assert status == 200
    assert f">{ROWS * (ROWS + 1) // 2}</p>" in tile(page, "Hits")
    assert tile(page, "By page").count("<rect ") == 9
    (chart,) = re.findall(r"data-chart='(.*?)'", tile(page, "By minute"))
    assert json.loads(chart)["series"][0]["values"][:3] == [1.0, 2.0, 3.0]
    assert tile(page, "Rows").count("<tr>") == 4
    assert "Generation 2</a> · web as of <time" in page


def test_a_number_has_its_unit_unless_the_title_says_it(world: World) -> None:
    charts = (("Page views", "page_views"), ("Hits", "visits"))
    text = "".join(
        f'[[chart]]\ntitle = "{title}"\nkind = "number"\nsql = "select 3 as {unit}"\n'
        for title, unit in charts
    )
    world.declares_board("units", f'title = "Units"\n{text}')
    with serving(world) as server:
        _, page = got(server, "/boards/units")

    assert ">page_views</p>" not in tile(page, "Page views")
    assert ">visits</p>" in tile(page, "Hits")


def test_the_rows_of_a_table_lead_to_all_of_them(lived: tuple[World, Server]) -> None:
    _, page = got(lived[1], "/boards/pages")

    for title in ("Rows", "Many"):
        assert f'aria-label="Open in Query: {title}"' in tile(page, title)


def test_charts_are_of_the_range_of_the_address(lived: tuple[World, Server]) -> None:
    """All rows of the world are old. A range that nobody knows is none; a kiosk keeps the range.

    A view that is computed when it is read has no key, so its chart says that it has all rows.
    """
    _, page = got(lived[1], "/boards/pages?last=24h")
    assert "No rows of the last 24 hours." in tile(page, "By minute")
    assert ">—</p>" in tile(page, "Hits")
    assert "No rows of the last 24 hours." in tile(page, "Rows")
    assert tile(page, "By page").count("<rect ") == 9
    assert [
        each
        for each in ("Hits", "By page", "By minute", "Rows", "Many")
        if "All rows: the query has no times." in tile(page, each)
    ] == ["By page", "Many"]
    assert "All rows" not in got(lived[1], "/boards/pages")[1]
    assert (
        '<a href="/boards/pages?last=24h" title="the last 24 hours" aria-current="true">24h</a>'
        in page
    )
    assert 'href="/boards/pages?kiosk=1&amp;last=24h"' in page
    assert "data-chart" in tile(got(lived[1], "/boards/pages?last=never")[1], "By minute")


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
@pytest.mark.parametrize("rows", [900, 5_000])
def test_a_range_has_the_newest_rows_of_any_query(world: World, kind: str, rows: int) -> None:
    """Of a query with more rows than a chart takes, too, of which the first ones are old."""
    at = f"({kind} '2026-01-01' + to_{'days' if kind == 'date' else 'hours'}(n::int))::{kind}"
    sql = f'select {at} as "at ""it""", n from range({rows}) of(n) order by n -- as they are\n'
    step = timedelta(days=1) if kind == "date" else timedelta(hours=1)
    since = datetime(2026, 1, 1, tzinfo=UTC) + (rows - 10) * step
    board = Board("Hits", (Chart("All", ChartKind.LINE, sql, 1),))
    with Sandbox(Allowance(at_once=2)) as sandbox:
        answer = answer_board(world.store, sandbox, board, lease_seconds=60, since=since)

    (chart,) = answer.charts
    assert chart.trouble is None
    assert isinstance(chart.drawn, DrawnLines)
    assert chart.drawn.chart["series"][0]["values"] == [*map(float, range(rows - 10, rows))]
    assert answer.has_times


@pytest.mark.parametrize(
    ("sql", "hits"),
    [
        ("select sum(p.hits)::bigint from page_hits as p", 39 + 40),
        ("-- of all\nwith other as (from page_hits) select sum(hits)::bigint from other", 39 + 40),
        ("with recursive page as (select 1) select sum(hits)::bigint from Page_Hits", 39 + 40),
        ("select sum(a.hits)::bigint from page_hits a join page_hits b using (minute)", 39 + 40),
        ("select sum(hits)::bigint from web.page_hits", 820),
        ("select sum(hits)::bigint from by_page", 820),
        ("with page_hits as (from web.page_hits) select sum(hits)::bigint from page_hits", 820),
    ],
)
def test_a_range_is_of_every_table_whose_key_is_a_time(
    lived: tuple[World, Server], sql: str, hits: int
) -> None:
    """A table with its schema, a view, and a table of the query itself keep all rows."""
    board = Board("Hits", (Chart("Hits", ChartKind.NUMBER, sql, 1),))
    since = datetime(2026, 1, 1, 0, 38, tzinfo=UTC)
    with Sandbox(Allowance(at_once=1)) as sandbox:
        answer = answer_board(lived[0].store, sandbox, board, lease_seconds=60, since=since)

    (chart,) = answer.charts
    assert (chart.trouble, chart.drawn) == (None, DrawnNumber(hits, None))
    assert chart.is_whole == (hits == 820)
    assert answer.has_times


def test_each_chart_leads_to_its_query(lived: tuple[World, Server]) -> None:
    _, page = got(lived[1], "/boards/pages")
    (address,) = re.findall(r'class="ask" href="([^"]+)"', tile(page, "Rows"))
    status, found = got(lived[1], address)

    assert (status, "from page_hits limit 3" in found) == (200, True)


def test_a_query_that_fails_is_explained_in_its_own_tile(lived: tuple[World, Server]) -> None:
    _, page = got(lived[1], "/boards/pages")

    assert page.count("notice bad") == 1
    assert "there is no table page_hitz" in tile(page, "Wrong")
    assert "did you mean page_hits?" in tile(page, "Wrong")


def test_rows_are_bounded_and_the_page_notes_it(lived: tuple[World, Server]) -> None:
    _, page = got(lived[1], "/boards/pages")

    assert "The first 1,000 rows are shown." in tile(page, "Many")
    assert tile(page, "Many").count("<tr>") == 1_001


def test_a_stranger_has_written_text_and_no_more(lived: tuple[World, Server]) -> None:
    _, page = got(lived[1], "/boards/pages")

    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert 'style="' not in page
    assert EVIL not in page


def test_a_board_names_the_stored_tables_that_it_reads(lived: tuple[World, Server]) -> None:
    """`by_page` is a view that is computed when it is read, so the board names its table."""
    _, page = got(lived[1], "/boards/pages")
    (reads,) = re.findall(r"data-reads='(.*?)'", page)

    assert json.loads(reads.replace("&#34;", '"')) == [["web", "page_hits"]]


def test_board_shows_its_mistake_and_harms_no_other(lived: tuple[World, Server]) -> None:
    mistake = "boards/wrong.toml:9: chart 2: there is no kind &#39;pie&#39;"
    status, page = got(lived[1], "/boards/wrong")
    assert (status, mistake in page) == (200, True)

    _, listed = got(lived[1], "/boards")
    assert mistake in listed
    assert '<a href="/boards/pages">Pages</a>' in listed
    assert '<a href="/boards/gr%C3%B6%C3%9Fte%20%25%3F%23">Größte</a>' in listed


def test_the_list_says_which_charts_fail(lived: tuple[World, Server]) -> None:
    """Each card loads its state, which is a page of its own without scripts."""
    _, listed = got(lived[1], "/boards")
    _, state = got(lived[1], "/boards/pages/state")
    _, wrong = got(lived[1], "/boards/wrong/state")
    _, named = got(lived[1], "/boards/gr%C3%B6%C3%9Fte%20%25%3F%23/state")

    assert ">Hits · By page · By minute · Rows · Wrong · Many</p>" in listed
    assert 'data-load="/boards/pages/state"' in listed
    assert '<div id="state-pages">' in state
    assert "1 chart fails" in state
    assert "<b>Wrong</b>: the query cannot be run: there is no table page_hitz" in state
    assert 'newest row <time datetime="2026-01-01T00:39:00+00:00"' in state
    assert "web as of <time" in state
    # A curve of the first chart with lines.
    assert 'aria-label="By minute: the last 40 values, at most 40"' in state
    assert "By minute over the last 40 min, max 40</small>" in state
    assert "there is no kind &#39;pie&#39;" in wrong
    assert '<div id="state-größte %?#">' in named
    assert got(lived[1], "/boards/nothing/state")[0] == 404


def test_any_name_of_a_file_is_an_address(lived: tuple[World, Server]) -> None:
    status, page = got(lived[1], "/boards/gr%C3%B6%C3%9Fte%20%25%3F%23")

    assert status == 200
    assert "<h1>Größte</h1>" in page
    assert 'href="/boards/gr%C3%B6%C3%9Fte%20%25%3F%23?kiosk=1"' in page


def test_a_board_that_is_none_is_not_found_wherever_it_leads(lived: tuple[World, Server]) -> None:
    for path in ("/boards/nothing", "/boards/..%2Fkappa", "/boards/%00", "/boards/pages.toml"):
        status, page = got(lived[1], path)
        assert status == 404
        assert "/boards lists them" in page or "nothing" not in path


def test_a_kiosk_has_neither_frame_nor_rows_to_open(lived: tuple[World, Server]) -> None:
    _, framed = got(lived[1], "/boards/pages")
    _, page = got(lived[1], "/boards/pages?kiosk=1")

    assert "<nav" in framed
    assert "<details" in framed
    assert 'class="kiosk"' in page
    assert "<nav" not in page
    assert "<details" not in page
    assert 'id="line"' in page
    assert "Open in Query" in framed
    assert "Open in Query" not in page
    figure = f">{ROWS * (ROWS + 1) // 2}</p>"
    assert (figure in tile(page, "Hits"), figure in tile(framed, "Hits")) == (True, True)


def test_a_kiosk_asks_for_the_token_once_and_is_led_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.declares_board("pages", BOARD)
    with serving(world, "s3cret") as server:
        asked = server.ask("GET", "/boards/pages?kiosk=1", Accept=HTML)
        form = b"token=s3cret&next=/boards/pages%3Fkiosk%3D1"
        kind = "application/x-www-form-urlencoded"
        given = server.ask("POST", "/login", form, Content_Type=kind)
        cookie = given.headers["set-cookie"].partition(";")[0]
        status, page = got(server, given.headers["location"], Cookie=cookie)

    assert asked.status == 303
    assert asked.headers["location"] == "/login?next=%2Fboards%2Fpages%3Fkiosk%3D1"
    assert given.headers["location"] == "/boards/pages?kiosk=1"
    assert (status, 'class="kiosk"' in page) == (200, True)


def test_before_anything_serves_a_board_is_explained(tmp_path: Path) -> None:
    world = World(tmp_path)
    with serving(world) as server:
        assert "There is no board yet" in got(server, "/boards")[1]
        world.declares_board("pages", BOARD)
        status, page = got(server, "/boards/pages")

    assert status == 200
    assert "Nothing is served yet" in page
    assert "nothing is served yet: kappa deploy" in tile(page, "Hits")


def test_a_changed_file_is_there_when_the_page_is_loaded_again(world: World) -> None:
    world.declares_board("pages", BOARD)
    with serving(world) as server:
        assert "By minute" in got(server, "/boards/pages")[1]
        world.declares_board("pages", BOARD.replace("By minute", "Each minute"))
        _, page = got(server, "/boards/pages")

    assert "By minute" not in page
    assert "data-chart" in tile(page, "Each minute")


class _Growing(Sandbox):
    """A sandbox whose table grows after each answer."""

    def __init__(self, world: World) -> None:
        super().__init__(Allowance(at_once=2))
        self.world = world
        self.turn = threading.Lock()

    def ask_pinned(self, *arguments: Any, client: Client | None = None) -> Any:
        reply = super().ask_pinned(*arguments, client=client)
        with self.turn:
            self.world.grows("web-2", hits=1)
        return reply


def test_all_charts_are_of_one_moment_though_tables_move_on(world: World) -> None:
    charts = tuple(Chart(str(each), ChartKind.NUMBER, HITS, 1) for each in range(4))
    with _Growing(world) as sandbox:
        answer = answer_board(world.store, sandbox, Board("Hits", charts), lease_seconds=60)
        later = answer_board(world.store, sandbox, Board("Hits", charts[:1]), lease_seconds=60)

    before = ROWS * (ROWS + 1) // 2
    assert [each.drawn for each in answer.charts] == [DrawnNumber(before, None, "hits")] * 4
    assert (answer.generation, answer.frontiers["web"].number) == (2, 40)
    assert [each.drawn for each in later.charts] == [DrawnNumber(before + 4, None, "hits")]
    assert is_behind(world.store, answer)


def test_an_answer_that_is_of_the_newest_frontier_is_not_behind(world: World) -> None:
    chart = Chart("Hits", ChartKind.NUMBER, HITS, 1)
    with Sandbox(Allowance(at_once=1)) as sandbox:
        answer = answer_board(world.store, sandbox, Board("Hits", (chart,)), lease_seconds=60)

    assert not is_behind(world.store, answer)
    world.grows("web-2", hits=1)
    assert is_behind(world.store, answer)


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        ("from page_hits", {"page_hits"}),
        ("from Main.PAGE_HITS", {"page_hits"}),
        ("from web.by_page", {"page_hits"}),
        ("from other.page_hits", set()),
        ("with page_hitz as (from rejects) from page_hitz, by_page", {"page_hits", "rejects"}),
        ("select (select max(hits) from by_page), 1 from range(3)", {"page_hits"}),
        ("from nothing", set()),
        ("this is not a query", set()),
    ],
)
def test_query_reads_tables_of_its_views_too(tmp_path: Path, sql: str, read: set[str]) -> None:
    world = World(tmp_path)
    births = {"web": read_birth(world.store, world.build("web-1"))}
    with open_reader(None, served=True) as reader:
        found = tables_read(sql, births, reader.tables_named)

    assert found == {("web", name) for name in read}
