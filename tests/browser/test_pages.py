"""Laws of the page in a real browser, on a platform made by hand.

The page is accessible, fits narrow windows, does not move, and recovers, whatever strangers wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import page_world
import pytest
from asking import Server
from browsing import (
    NARROW,
    WIDE,
    Seen,
    ensure_accessible,
    ensure_fits,
    ensure_good,
    opened,
    picture,
)
from large_world import make_large
from msgspec.structs import replace
from oidc_issuer import AUDIENCE, CLIENT_SECRET, OidcIssuer
from page_world import EVIL, World
from playwright.sync_api import Browser, Locator, Page, Route, expect

from kappa.base.clock import now
from kappa.base.sections import AccessSettings, GrantSettings, OidcSettings, Role
from kappa.replay.page import api, routes
from kappa.serving.access.accounts import Accounts
from kappa.serving.access.oidc import Issuer
from kappa.serving.http import changes, events
from kappa.serving.outlets.alerts.outbox import ids_to_send_again
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.query.sandbox.question import Allowance
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import Abandoned, CaughtUp, PromoteAsked, Staged, VerifyAsked
from kappa.state.offsets import Offsets

# Some of them are slow, and without a browser none can be run: `make check` leaves them out.
pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATHS = (
    *("/", "/rollouts/5", "/rollouts/5/samples", "/rollouts/5/samples?long=1", "/rollouts/3"),
    *("/history", "/history?kind=failed", "/generations/1"),
    *("/tables", "/tables/web/page_hits", "/tables/web/page_hits?order=hits&down=1&page=2"),
    *(
        "/tables/web/by_page?column=page&match=contains&value=%3Cimg",
        "/query?sql=from+by_page",
        "/logs/web-2",
        "/alerts",
    ),
    *("/logs/web-2?level=error&at=2026-01-01T00:00", "/rejects?at=visits:0:7"),
    "/topics/visits?value=script&order=oldest&partition=0",
    *("/topics", "/topics/visits", "/graph", "/rejects", "/boards", "/boards/pages"),
    *("/graph?search=%3Cimg&only=trouble&zoom=200&open=%3Cimg", "/tables?sort=size"),
    *("/boards/pages?kiosk=1", "/boards/pages/state", "/boards/wrong", "/nowhere"),
)
HOSTILE = (
    "<img src=x onerror=alert(1)>\"'`${1}\u202e\u05d0\u05d1\u05d2 \U0001f9e8"
    + "W" * 10_000
    + "</script>"
)
BOARD = """
title = "Pages"

[[chart]]
title = "Hits"
kind = "number"
sql = "select sum(hits)::bigint, avg(hits) as each from page_hits"

[[chart]]
title = "Newest"
kind = "number"
sql = "select max(minute) from page_hits"

[[chart]]
title = "By page"
kind = "bars"
sql = "select page, hits - 50 as over from by_page where page <> '/new'"

[[chart]]
title = "By minute"
kind = "line"
width = 3
sql = "select minute, hits, hits / 2 as half from page_hits"

[[chart]]
title = "Rows"
kind = "table"
sql = "from page_hits order by minute limit 30"

[[chart]]
title = "Wrong"
kind = "table"
sql = "from page_hitz"
"""


def serving(world: World, **given: Any) -> Server:
    return Server(
        world.store,
        Allowance(at_once=2),
        router=api.router,
        more=(events.router, changes.router, *routes.ROUTERS),
        desk=world.desk,
        counts=routes.open_counts,
        changes=ChangeHub(world.store, lease_seconds=60, keep_seconds=60, limits=None),
        **given,
    )


def lived(folder: Path) -> World:
    world = World(folder)
    assert world.lives() == 5
    world.notices()
    world.be_up()
    log = world.store.local.path("logs/web-2.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"begins\nWARN slow\nERROR {EVIL} {HOSTILE}\n", encoding="utf-8")
    world.declares_board("pages", BOARD)
    world.declares_board("wrong", BOARD.replace("bars", "pie"))
    return world


def at(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


@contextmanager
def ready(chromium: Browser, folder: Path) -> Iterator[tuple[World, Page, Seen]]:
    """Makes a world, and opens a browser at its rollout that is waiting for approval."""
    world = lived(folder)
    with serving(world) as server, opened(chromium, at(server), axe=True) as (page, seen):
        page.goto("/rollouts/5")
        yield world, page, seen


def run(box: Locator, sql: str) -> None:
    """Types a query into a box, and runs it."""
    box.fill(sql)
    box.press("Control+Enter")


def look(page: Page, button: str) -> Locator:
    """Clicks a button, waits for the plan, and returns the dialog."""
    page.get_by_role("button", name=button).click()
    expect(page.locator("#plan-yes")).to_be_enabled()
    return page.get_by_role("dialog")


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(lived(tmp_path_factory.mktemp("world"))) as server:
        yield server


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_accessible_and_narrow(chromium: Browser, standing: Server, path: str) -> None:
    """Each page is accessible and fits a narrow window, in light and dark."""
    with opened(chromium, at(standing), axe=True) as (page, seen):
        page.goto(path)
        page.wait_for_load_state("load")
        if path == "/nowhere":
            # The page's answer is that nothing is at this path.
            seen.complaints.clear()
        else:
            expect(page.locator("#line")).to_have_text("Page live")
        ensure_good(page, path)


@pytest.mark.long
def test_no_name_or_text_of_a_stranger_runs_or_breaks_a_page(
    chromium: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts with tags, quotes, right-to-left text and very long words are harmless.

    Column names may be any text, for example those of a view. Kafka limits the names of topics.
    """
    monkeypatch.setattr(page_world, "EVIL", HOSTILE)
    column = HOSTILE.replace('"', '""')
    monkeypatch.setattr(
        page_world, "BY_PAGE", f'select page as "{column}", hits as "{column}2" from page_hits'
    )
    world = lived(tmp_path)
    world.log.others = ("x" * 249, "-" * 249, ".".join(["_"] * 120))
    title = json.dumps(HOSTILE, ensure_ascii=False)
    board = (
        f"title = {title}\n\n[[chart]]\ntitle = {title}\nkind = 'table'\nsql = 'from by_page'\n"
        f"\n[[chart]]\ntitle = {title}\nkind = 'bars'\nsql = 'from by_page limit 9'\n"
    )
    world.declares_board("pages", board)
    world.declares_board("wrong", f"{board}kind = {title}\n")
    with serving(world) as server, opened(chromium, at(server)) as (page, seen):
        for path in (*PATHS, "/tables/web/by_page", f"/topics/{'x' * 249}"):
            page.goto(path)
            page.wait_for_load_state("load")
            if path in {"/nowhere", f"/topics/{'x' * 249}"}:
                seen.complaints.clear()
            else:
                expect(page.locator("#line")).to_have_text("Page live")
            for size in (WIDE, NARROW):
                page.set_viewport_size(size)
                ensure_fits(page)
                picture(page, f"hostile {path[:30]} {size['width']}")
            assert page.locator("img[src=x]").count() == 0
            # The view has no column of the name by which this address filters.
            if path.startswith("/tables/web/") and "column=" not in path:
                page.get_by_role("link", name="Open in Query").click()
                expect(page.locator("#answer .scroll tbody tr")).to_have_count(40)
            assert "\u202e" not in page.content(), path


@pytest.mark.long
def test_board_follows_its_tables_alone(chromium: Browser, tmp_path: Path) -> None:
    """The page does not touch the tiles that stay the same if a table changes."""
    world = lived(tmp_path)
    with serving(world) as server, opened(chromium, at(server)) as (page, _):
        page.goto("/boards/pages")
        expect(page.locator("#line")).to_have_text("Page live")
        expect(page.locator("#chart-4 canvas")).to_be_visible()
        reads = page.locator("#board").get_attribute("data-reads")
        assert json.loads(reads) == [["web", "page_hits"]]
        page.locator("#chart-4 summary").click()
        page.locator("#chart-5 .scroll").evaluate("(each) => { each.scrollTop = 200; }")
        page.evaluate(
            "globalThis.redrawn = []; for (const each of document.querySelectorAll('.tile')) "
            "new MutationObserver(() => redrawn.push(each.id))"
            ".observe(each, { subtree: true, childList: true, attributes: true, "
            "characterData: true });"
        )
        page.evaluate("scrollTo(0, 300)")
        shifted = page.evaluate("shifted")
        for hits in (1_000, 2_000):
            world.grows("web-2", hits=hits)
            total = f"{820 + hits * (hits + 1_000) // 2_000:,}"
            expect(page.locator("#chart-1 .figure")).to_have_text(total)
        newest = page.locator("#chart-2 .figure + p")
        expect(newest).to_have_text("2026-01-02 00:02:00 UTC")
        expect(page.locator("#chart-4 tbody tr").last).to_contain_text("2000")

        assert set(page.evaluate("redrawn")) == {"chart-1", "chart-2", "chart-4"}
        assert page.evaluate("scrollY") == 300
        assert page.locator("#chart-5 .scroll").evaluate("(each) => each.scrollTop") == 200
        assert page.locator("#chart-4 details").get_attribute("open") is not None
        assert page.evaluate("shifted") - shifted < 0.01


@pytest.mark.long
def test_board_asks_until_its_answer_is_newest(chromium: Browser, tmp_path: Path) -> None:
    """The board asks again after a shared older answer: no event announces the newer one."""
    world = lived(tmp_path)
    with serving(world) as server, opened(chromium, at(server)) as (page, seen):
        page.route("**/api/v1/changes*", lambda route: route.abort())
        page.goto("/boards/pages")
        expect(page.locator("#chart-1 .figure")).to_have_text("820")
        world.grows("web-2", hits=180)
        page.evaluate("import('/static/live.js').then((live) => live.refresh())")
        expect(page.locator("#chart-1 .figure")).to_have_text("1,000")
        expect(page.locator("#board[data-behind]")).to_have_count(0)
        seen.complaints.clear()


@pytest.mark.long
def test_no_row_of_a_board_has_a_hole(chromium: Browser, standing: Server) -> None:
    """The tiles of each row end at the end of the board."""
    with opened(chromium, at(standing)) as (page, _):
        for size in (WIDE, NARROW):
            page.set_viewport_size(size)
            page.goto("/boards/pages")
            expect(page.locator(".tile")).to_have_count(6)
            holes = page.evaluate(
                "() => { const board = document.querySelector('.board').getBoundingClientRect();"
                " const ends = new Map();"
                " for (const each of document.querySelectorAll('.tile')) {"
                " const { top, right } = each.getBoundingClientRect();"
                " ends.set(Math.round(top), Math.max(right, ends.get(Math.round(top)) ?? 0)); }"
                " return [...ends.values()].map((end) => Math.round(board.right - end)); }"
            )
            assert len(holes) > 1
            assert {*holes} == {0}


@pytest.mark.parametrize("path", ["/tables", "/rejects", "/topics/visits", "/alerts"])
def test_narrow_lists_need_no_scrolling(chromium: Browser, standing: Server, path: str) -> None:
    with opened(chromium, at(standing), viewport=NARROW) as (page, _):
        page.goto(path)
        wide = page.locator(".scroll:has(> .stacked)").evaluate_all(
            "(lists) => lists.map((each) => each.scrollWidth - each.clientWidth)"
        )
        assert wide
        assert {*wide} == {0}


def test_a_narrow_card_has_several_facts_in_a_line(chromium: Browser, standing: Server) -> None:
    with opened(chromium, at(standing), viewport=NARROW) as (page, _):
        for path, names in (
            ("/topics", ("Records", "Retention")),
            ("/alerts", ("Delivered", "Dead")),
        ):
            page.goto(path)
            tops = [
                page.locator(f".stacked td[data-of='{name}']").first.bounding_box()["y"]
                for name in names
            ]
            assert len({*tops}) == 1, path


def test_a_narrow_topic_folds_its_readers(chromium: Browser, standing: Server) -> None:
    """A line says who reads the topic, until one unfolds the builds. It works without scripts."""
    plain = opened(chromium, at(standing), viewport=NARROW, java_script_enabled=False)
    with plain as (page, _):
        page.goto("/topics/visits?partition=0&start=6")
        readers = page.locator("#reads-part")
        expect(readers).to_be_hidden()
        page.get_by_label("Read by web: serving").focus()
        page.keyboard.press("Space")
        expect(readers).to_be_visible()
        # The range is that of the records in sight.
        expect(page.locator(".first-records")).to_be_visible()
        expect(page.locator(".all-records")).to_be_hidden()
        page.get_by_label("Show 30 more").check()
        expect(page.locator(".first-records")).to_be_hidden()
        expect(page.locator(".all-records")).to_be_visible()


def test_the_parts_of_a_narrow_page_unfold(chromium: Browser, standing: Server) -> None:
    """A record is its key and its value; the key moves below the open record, without scripts."""
    plain = opened(chromium, at(standing), viewport=NARROW, java_script_enabled=False)
    with plain as (page, _):
        page.goto("/topics/visits?partition=0&start=6")
        record, filters = page.locator("#record-0-6"), page.locator("form.filter")
        assert record.bounding_box()["height"] < 60
        key, value = record.locator("td.key"), record.locator("td.raw").last
        assert key.bounding_box()["y"] < value.bounding_box()["y"]
        expect(record.locator(".fraction")).to_be_hidden()
        record.locator("summary").last.click()
        expect(record.locator("pre")).to_be_visible()
        assert key.bounding_box()["y"] > value.bounding_box()["y"]
        expect(filters).to_be_hidden()
        page.get_by_label("Filter: partition 0, from 6").focus()
        page.keyboard.press("Space")
        expect(filters).to_be_visible()


def test_the_healthy_pipelines_unfold(chromium: Browser, tmp_path: Path) -> None:
    """A row of a narrow list has three lines: name and state, rate and lag, and the time read."""
    world = World(tmp_path)
    for number, name in enumerate(("web", "shop", "fraud", "orders"), start=1):
        build = world.build(f"b{number}", pipeline=name, offset=1000 if name == "shop" else 1234)
        world.goes_live(build, number, pipeline=name, ago=60)
    world.be_up()
    with serving(world) as server:
        plain = opened(chromium, at(server), viewport=NARROW, java_script_enabled=False)
        with plain as (page, _):
            page.goto("/")
            rows = page.locator("tr[id^=pipe-]:visible")
            expect(rows).to_have_count(1)
            late = page.locator("#pipe-shop")
            assert late.bounding_box()["height"] < 100
            tops = [
                late.locator(f"td[data-of={each}]").bounding_box()["y"] for each in ("Rate", "Lag")
            ]
            assert abs(tops[0] - tops[1]) < 4
            page.get_by_label("3 pipelines").focus()
            page.keyboard.press("Space")
            expect(rows).to_have_count(4)


def test_nothing_of_a_narrow_page_is_cut_off(chromium: Browser, standing: Server) -> None:
    """Rows of times fit with their last column, and a reason and a link keep their own place."""
    with opened(chromium, at(standing), viewport=NARROW) as (page, _):
        page.goto("/tables/web/page_hits?column=page&value=/page/3")
        rows = page.locator(".scroll:has(> .values)")
        assert rows.evaluate("(each) => each.scrollWidth - each.clientWidth") == 0

        page.goto("/topics/visits?value=script&order=oldest&partition=0")
        reason = page.locator(".why").first.bounding_box()
        assert reason["x"] + reason["width"] <= NARROW["width"]
        # All builds that read the topic are in sight, once they are unfolded.
        page.get_by_label("Read by web").check()
        readers = page.locator(".uses .scroll").first
        assert readers.evaluate("(each) => each.scrollHeight - each.clientHeight") == 0

        page.goto("/boards/pages")
        for number in (1, 2):
            title = page.locator(f"#chart-{number} h2").bounding_box()
            link = page.locator(f"#chart-{number} .ask").bounding_box()
            assert title["x"] + title["width"] - 26 <= link["x"]


def test_a_graph_is_as_wide_as_its_column(chromium: Browser, standing: Server) -> None:
    with opened(chromium, at(standing)) as (page, _):
        page.goto("/graph")
        frame, column = (page.locator(each).bounding_box() for each in (".scroll.graph", "#graph"))
        assert (frame["x"], frame["width"]) == (column["x"], column["width"])


def test_a_narrow_graph_is_a_list(chromium: Browser, standing: Server) -> None:
    with opened(chromium, at(standing)) as (page, _):
        page.goto("/graph")
        picture_, layers = page.locator(".scroll.graph"), page.locator(".layers")
        expect(picture_).to_be_visible()
        expect(layers).to_be_hidden()
        page.set_viewport_size(NARROW)
        expect(picture_).to_be_hidden()
        expect(layers.get_by_role("link", name="page_hits", exact=True)).to_be_visible()
        expect(layers.locator("li")).to_have_count(7)


def test_a_narrow_table_has_twenty_rows_until_one_asks_for_all(
    chromium: Browser, standing: Server
) -> None:
    plain = opened(chromium, at(standing), viewport=NARROW, java_script_enabled=False)
    with plain as (page, _):
        page.goto("/tables/web/page_hits")
        rows = page.locator("#sampled tbody tr")
        expect(rows.nth(19)).to_be_visible()
        expect(rows.nth(20)).to_be_hidden()
        expect(page.locator(".first-records")).to_contain_text("Rows 1 to 20 of 40")
        expect(page.locator(".all-records")).to_be_hidden()
        expect(page.locator(".filter")).to_be_hidden()
        page.get_by_label("Show 20 more").check()
        expect(rows.nth(20)).to_be_visible()
        expect(page.locator(".all-records")).to_contain_text("Rows 1 to 40 of 40")
        expect(page.locator(".first-records")).to_be_hidden()
        page.get_by_label("Filter: all rows").check()
        expect(page.locator(".filter")).to_be_visible()
        page.get_by_label("Show only 20").uncheck()
        expect(rows.nth(20)).to_be_hidden()


def test_an_open_record_stays_open_while_others_come(chromium: Browser, tmp_path: Path) -> None:
    world = lived(tmp_path)
    with serving(world) as server, opened(chromium, at(server)) as (page, _):
        page.goto("/topics/visits")
        expect(page.locator("#line")).to_have_text("Page live")
        record = page.locator("#record-0-1230")
        # A key opens, too.
        record.locator("summary").last.click()
        world.log.newest = 1236
        world.append(Abandoned(14, "somebody was quicker"))
        expect(page.locator("#record-0-1235")).to_be_visible()
        expect(record.locator("pre")).to_be_visible()
        expect(page.locator("#topic details[open]")).to_have_count(1)


def test_kiosk_is_large_and_leads_back(chromium: Browser, standing: Server) -> None:
    """The board is shown without a frame, and its title leads back."""
    with opened(chromium, at(standing), viewport={"width": 1920, "height": 1080}) as (page, _):
        page.goto("/boards/pages")
        page.get_by_role("link", name="TV mode").click()
        expect(page.locator("#line")).to_have_text("Page live")
        expect(page.get_by_role("navigation")).to_have_count(0)
        size = "(each) => parseFloat(getComputedStyle(each).fontSize)"
        assert page.locator("#chart-1 .figure").evaluate(size) > 48
        picture(page, "board on a wall")
        page.get_by_role("link", name="Pages").click()
        expect(page.get_by_role("navigation")).to_be_visible()


@pytest.mark.long
def test_a_log_opens_at_its_newest_line(chromium: Browser, tmp_path: Path) -> None:
    """The log is shown at its end, even without scripts, and a new line keeps the end in sight."""
    world = lived(tmp_path)
    path = world.store.local.path("logs/web-2.log")
    path.write_text("".join(f"12:00 INFO kappa: line {number}\n" for number in range(400)))
    with serving(world) as server:
        for scripts in (False, True):
            with opened(chromium, at(server), java_script_enabled=scripts) as (page, _):
                page.goto("/logs/web-2")
                expect(page.get_by_text("line 399")).to_be_in_viewport()
                expect(page.get_by_text("line 10", exact=False).first).not_to_be_in_viewport()


def test_late_samples_come_by_themselves(chromium: Browser, standing: Server) -> None:
    """The samples are shown exactly as they were written."""
    with opened(chromium, at(standing)) as (page, _):
        page.goto("/rollouts/5")
        expect(page.locator("#samples ins")).to_have_count(5)
        expect(page.locator("#samples")).to_contain_text(EVIL)


def test_query_is_drawn_or_explained(chromium: Browser, standing: Server) -> None:
    with opened(chromium, at(standing), axe=True) as (page, seen):
        page.goto("/query")
        box = page.locator("#query")
        run(box, "select minute, hits from page_hits order by minute")
        expect(page.locator("#answer .chart canvas")).to_be_visible()
        expect(page.locator("#answer .scroll tbody tr")).to_have_count(40)
        expect(page.locator("#asked")).to_contain_text("40 rows · as of")
        ensure_good(page, "sql line")

        box.fill(
            f'select page, sum(hits) as "{EVIL.replace(chr(34), chr(34) * 2)}" '
            "from page_hits group by page"
        )
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#answer .scroll thead")).to_contain_text(EVIL)
        expect(page.locator("#answer .bars tbody tr")).to_have_count(9)
        ensure_good(page, "sql bars")

        run(box, "select page from page_hits")
        expect(page.locator("#asked")).to_contain_text("40 rows")
        expect(page.locator("#answer .bars, #answer .chart")).to_have_count(0)

        run(box, "select * from page_hitz")
        expect(page.get_by_role("alert")).to_contain_text("page_hits")
        ensure_good(page, "sql refused")
        seen.complaints.clear()
        page.get_by_role("link", name="Run with page_hits").click()
        expect(page.locator("#answer .scroll tbody tr")).to_have_count(40)


def test_a_query_is_coloured_while_one_types(chromium: Browser, standing: Server) -> None:
    """The coloured text has the letters of the box, in the same lines, and is never markup."""
    same = (
        "() => { const [text, box] = document.querySelector('.editor').children;"
        " const sizes = (each) => [each.clientWidth, each.clientHeight, each.scrollHeight];"
        " return [sizes(text), sizes(box), text.textContent === `${box.value}\\n`]; }"
    )
    with opened(chromium, at(standing), axe=True) as (page, _):
        page.goto("/query")
        expect(page.locator("[data-sql] .sql-word").first).to_have_text("from")
        box, shown = page.locator("#query"), page.locator(".editor > pre")
        box.fill("select '<b>it''s</b>' as \"Order\" -- all of it\n" + "from page_hits " * 60)
        expect(shown.locator(".sql-string")).to_have_text("'<b>it''s</b>'")
        expect(shown.locator(".sql-remark")).to_have_text("-- all of it")
        expect(shown.locator(".sql-word").first).to_have_text("select")
        expect(shown.locator("b")).to_have_count(0)
        text, typed, equal = page.evaluate(same)
        assert equal
        assert text[0] == typed[0]
        assert abs(text[2] - typed[2]) <= 21
        ensure_good(page, "sql coloured")


def test_rows_of_an_answer_are_sorted_by_a_click(chromium: Browser, standing: Server) -> None:
    """Numbers by their size, nulls last, and by keyboard, too. It works after each query."""
    with opened(chromium, at(standing), axe=True) as (page, _):
        sql = "select * from (values (9, 'b'), (10000, null), (-1, 'a')) of(n, said)"
        page.goto("/query")
        run(page.locator("#query"), sql)
        cells, heads = page.locator("#answer tbody td"), page.locator("#answer thead th")
        heads.first.get_by_role("button", name="n").click()
        expect(cells).to_have_text(["-1", "a", "9", "b", "10,000", "null"])
        expect(heads.first).to_have_attribute("aria-sort", "ascending")
        page.keyboard.press("Enter")
        expect(cells).to_have_text(["10,000", "null", "9", "b", "-1", "a"])
        expect(heads.first).to_have_attribute("aria-sort", "descending")
        page.reload()
        heads.last.get_by_role("button", name="said").click()
        heads.last.get_by_role("button", name="said").click()
        expect(cells).to_have_text(["9", "b", "-1", "a", "10,000", "null"])
        expect(heads.first).not_to_have_attribute("aria-sort", "descending")
        ensure_good(page, "sorted answer")


def test_a_minute_that_has_not_ended_is_pale(chromium: Browser, standing: Server) -> None:
    """The line to its point has less ink than the same line of a minute that has ended."""
    pale = (
        "() => { const canvas = document.querySelector('#answer canvas');"
        " const { width, height } = canvas, at = canvas.getContext('2d');"
        " const most = (from) => at.getImageData(from * width, 0, width / 8, height / 2).data"
        ".reduce((most, each, place) => (place % 4 === 3 ? Math.max(most, each) : most), 0);"
        " return [most(0.3), most(0.7)]; }"
    )
    today = f"timestamptz '{datetime.now(UTC):%Y-%m-%d} 00:00:00+00'"
    with opened(chromium, at(standing)) as (page, seen):
        for unit, words in (("day", 1), ("month", 0)):
            page.goto("/query")
            moments = f'{today} - to_{unit}s(n::int) as "at"'
            run(page.locator("#query"), f"select {moments}, 5 as hits from range(3) of(n)")
            expect(page.locator("#answer canvas")).to_be_visible()
            expect(page.get_by_text("The last day is not yet complete")).to_have_count(words)
            before, last = page.evaluate(pale)
            assert (last < before) == bool(words)
        # Chromium warns of the reading of pixels, which only this test does.
        seen.complaints.clear()


@pytest.mark.long
def test_address_follows_the_query(chromium: Browser, standing: Server) -> None:
    """Each query is in the address, so the browser keeps it in its history."""
    with opened(chromium, at(standing)) as (page, _):
        page.goto("/query")
        box, rows = page.locator("#query"), page.locator("#answer .scroll tbody tr")
        run(box, "select 1 as n")
        expect(rows).to_have_count(1)
        expect(page).to_have_url(f"{at(standing)}/query?sql=select+1+as+n")
        run(box, "from by_page")
        expect(rows).to_have_count(9)
        with page.expect_download() as file:
            page.get_by_role("button", name="CSV").click()
        assert len(Path(file.value.path()).read_text().splitlines()) == 10

        page.go_back()
        expect(box).to_have_value("select 1 as n")
        expect(rows).to_have_count(1)
        page.reload()
        expect(box).to_have_value("select 1 as n")
        expect(rows).to_have_count(1)
        page.get_by_text("Queries in this browser").click()
        page.get_by_role("button", name="from by_page").click()
        expect(rows).to_have_count(9)


@pytest.mark.long
def test_the_list_of_pipelines_follows_the_search(chromium: Browser, tmp_path: Path) -> None:
    world = World(tmp_path)
    for number, name in enumerate(("web", "shop", "fraud", "orders"), start=1):
        world.goes_live(world.build(f"b{number}", pipeline=name), number, pipeline=name, ago=60)
    world.be_up()
    with serving(world) as server, opened(chromium, at(server), axe=True) as (page, _):
        page.goto("/")
        rows = page.locator(".dense tbody tr")
        expect(rows).to_have_count(4)
        ensure_good(page, "pipelines")
        page.get_by_role("searchbox").press_sequentially("ord")
        expect(rows).to_have_count(1)
        expect(page).to_have_url(f"{at(server)}/?search=ord")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.locator(".dense summary").click()
        button = page.get_by_role("button", name="Retire")
        button.click()
        expect(page.get_by_role("dialog")).to_contain_text("table hits_b4: 40 rows, 1 file")
        expect(page.locator("#plan-yes")).to_have_class("danger")


@pytest.mark.long
def test_the_pages_stay_in_place_and_in_sight(chromium: Browser, standing: Server) -> None:
    """Each tab has the same position on every page; on a phone all tabs are in the window."""
    tabs = "[...document.querySelectorAll('nav a')].map((each) => each.getBoundingClientRect())"
    with opened(chromium, at(standing)) as (page, _):
        places = set()
        for path in ("/", "/boards", "/history"):
            page.goto(path)
            places.add(tuple(page.evaluate(f"{tabs}.map((each) => each.left)")))
        assert len(places) == 1
        page.set_viewport_size(NARROW)
        rights = page.evaluate(f"{tabs}.map((each) => each.right)")
        assert max(rights) <= NARROW["width"]


@pytest.mark.long
def test_keyboard_does_all_and_focus_is_seen(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (_, page, _):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("To the content")
        visited = []
        while "Promote" not in (text := page.locator(":focus").inner_text()):
            # Some names have a count.
            visited.append(text.rstrip(" 0123456789"))
            page.keyboard.press("Tab")
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            assert len(visited) < 20
        assert {"Overview", "Tables", "Topics", "Rejects", "History"} <= set(visited)

        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(
            "Build web-3 (version versio…) of pipeline web will serve instead of web-2"
        )
        expect(page.locator("#plan-yes")).to_be_focused()
        page.keyboard.press("Escape")
        expect(dialog).to_be_hidden()
        expect(page.locator(":focus")).to_contain_text("Promote")


def test_an_update_keeps_the_focus(chromium: Browser, tmp_path: Path) -> None:
    """An element that is replaced gives its focus to the equal one that replaces it."""
    with ready(chromium, tmp_path) as (world, page, _):
        page.evaluate("""
            const link = document.querySelector("#rollout .eyebrow a");
            link.before(document.createElement("b"));
            link.focus();
        """)
        world.append(Abandoned(14, "somebody was quicker"))
        expect(page.locator("h1")).to_contain_text("did not become")
        expect(page.locator("#rollout .eyebrow b")).to_have_count(0)
        expect(page.locator(":focus")).to_have_text("History")


@pytest.mark.long
def test_dialogs_and_refusals_are_accessible(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (world, page, seen):
        dialog = look(page, "Promote")
        ensure_good(page, "dialog")
        world.append(Abandoned(14, "somebody was quicker"))
        page.locator("#plan-yes").click()
        expect(dialog).to_contain_text("somebody was quicker")
        ensure_good(page, "dialog refused")
        seen.complaints.clear()


def test_yes_is_one_record_and_page_follows(chromium: Browser, tmp_path: Path) -> None:
    """The record is the same as that of the command."""
    with ready(chromium, tmp_path) as (world, page, _):
        look(page, "Promote")
        page.get_by_label("Reason").fill("ticket 7")
        page.locator("#plan-yes").dblclick()
        expect(page.locator(".stages [aria-current]")).to_contain_text("Switch")
        expect(page.get_by_role("button", name="Promote")).to_have_count(0)

    asked = [(type(record.event), record.reason) for record in world.journal.after(16)]
    assert asked == [(PromoteAsked, "ticket 7")]


@pytest.mark.long
def test_verify_once_more_is_asked_of_what_is_seen(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (world, page, _):
        expect(look(page, "Verify once more")).to_contain_text("verified once more")
        page.locator("#plan-yes").click()
        expect(page.locator(".stages [aria-current]")).to_contain_text("Verify")

    (record,) = world.journal.after(16)
    assert isinstance(record.event, VerifyAsked)
    assert record.event.rollout == 14


@pytest.mark.long
def test_yes_is_for_one_candidate_alone(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (world, page, seen):
        dialog = look(page, "Promote")
        world.append(Abandoned(14, "somebody was quicker"))
        world.waits(world.build("web-4"), "web-2")
        page.locator("#plan-yes").click()

        expect(dialog).to_contain_text("rollout 6, begun by")
        seen.complaints.clear()
    assert not any(isinstance(record.event, PromoteAsked) for record in world.journal.after(0))


@pytest.mark.long
def test_late_answers_are_not_told_as_anothers(chromium: Browser, tmp_path: Path) -> None:
    world = lived(tmp_path)
    late: list[Route] = []

    def asked(route: Route) -> None:
        if '"promote"' in (route.request.post_data or ""):
            late.append(route)
        else:
            route.continue_()

    with serving(world) as server, opened(chromium, at(server)) as (page, _):
        page.route("**/api/v1/rollouts", asked)
        page.goto("/rollouts/5")
        dialog = page.get_by_role("dialog")
        page.get_by_role("button", name="Promote").click()
        expect(dialog).to_contain_text("Looking at what would be done")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Abandon").click()
        expect(dialog).to_contain_text("is given up")
        with page.expect_response("**/api/v1/rollouts"):
            late[0].continue_()
        # By now the late answer would have been shown.
        page.evaluate("() => new Promise((go) => setTimeout(go, 100))")
        expect(dialog).to_contain_text("is given up")
        expect(page.locator("#plan-yes")).to_have_text("Abandon")
        page.locator("#plan-yes").click()
        expect(page.locator("#rollout")).to_contain_text("abandoned over HTTP")

    assert [type(record.event) for record in world.journal.after(16)] == [Abandoned]


@pytest.mark.long
def test_what_only_time_changes_is_looked_at_again(chromium: Browser, standing: Server) -> None:
    with opened(chromium, at(standing)) as (page, _):
        answers: list[str] = []
        page.on("response", lambda answer: answers.append(answer.url))
        page.clock.install()
        page.goto("/history")
        # For itself, and as the stream began.
        while answers.count(f"{at(standing)}/history") < 2:
            page.wait_for_timeout(50)
        with page.expect_response(f"{at(standing)}/history"):
            page.clock.fast_forward(15_000)


@pytest.mark.long
def test_who_is_not_known_any_more_is_asked_who_he_is(chromium: Browser, tmp_path: Path) -> None:
    world = lived(tmp_path)
    first = serving(world, token="s3cret")
    with opened(chromium, at(first)) as (page, seen):
        with first:
            page.goto("/generations/1")
            page.get_by_label("Token").fill("s3cret")
            page.get_by_role("button", name="Sign in").click()
            expect(page.locator("#line")).to_have_text("Page live")
        expect(page.locator("#line")).to_contain_text("Connection lost")
        with serving(world, token="another", port=first.port):
            expect(page.get_by_label("Token")).to_be_visible()
        seen.complaints.clear()


@pytest.mark.long
def test_numbers_and_times_are_the_servers(chromium: Browser, standing: Server) -> None:
    """Numbers and times do not depend on the browser's time zone."""
    with opened(chromium, at(standing), timezone_id="America/New_York") as (page, _):
        page.goto("/query")
        hours = "timestamp '2026-01-01 05:00:00' + to_hours(n::int) as at, n::int as n"
        wide = "(1152921504606846977 + n)::bigint as wide"
        run(page.locator("#query"), f"select {hours}, {wide} from range(3) of(n)")
        expect(page.locator("#answer .scroll tbody")).to_contain_text("1,152,921,504,606,846,977")
        page.locator("#answer .chart .u-over").hover(position={"x": 1, "y": 60})
        expect(page.locator("#answer .chart .u-legend")).to_contain_text("2026-01-01 05:00:00 UTC")


@pytest.mark.long
def test_who_is_second_is_told_so_and_nothing_is_done(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (world, page, seen):
        dialog = look(page, "Promote")
        world.append(Abandoned(14, "somebody was quicker"))
        page.locator("#plan-yes").click()

        expect(dialog).to_contain_text(
            "rollout 5 of pipeline web was given up: somebody was quicker"
        )
        expect(page.locator("#plan-yes")).to_be_hidden()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#rollout")).to_contain_text(
            "Abandoned in the stage Approval: somebody was quicker"
        )
        seen.complaints.clear()
    assert not any(isinstance(record.event, PromoteAsked) for record in world.journal.after(0))


def test_page_tells_that_the_server_is_gone(chromium: Browser, tmp_path: Path) -> None:
    """The page recovers when the server is back."""
    world = lived(tmp_path)
    first = serving(world)
    with opened(chromium, at(first)) as (page, seen):
        with first:
            page.goto("/rollouts/5")
            expect(page.locator("#line")).to_have_text("Page live")
        expect(page.locator("#line")).to_contain_text("Connection lost")
        expect(page.locator("h1")).to_contain_text("web")
        world.append(Abandoned(14, "while nobody looked"))
        with serving(world, port=first.port):
            expect(page.locator("#line")).to_have_text("Page live")
            expect(page.locator("#rollout")).to_contain_text("while nobody looked")
        assert all("ERR_" in each for each in seen.complaints)
        seen.complaints.clear()


@pytest.mark.long
def test_streamed_data_move_nothing(chromium: Browser, tmp_path: Path) -> None:
    """Nothing is animated for people who prefer reduced motion."""
    world = lived(tmp_path)
    with (
        serving(world) as server,
        opened(chromium, at(server), reduced_motion="reduce") as (page, _),
    ):
        page.goto("/")
        folded = page.locator("#pipe-web .facts")
        expect(page.locator("#pipe-web canvas")).to_be_visible()
        before = page.evaluate("shifted")
        frontiers = Frontiers(world.store, "web-2")
        for number in range(41, 46):
            last = frontiers.newest()
            grown = Offsets({"visits": {0: last.offsets.at("visits", 0) * 4, 1: 617}})
            frontiers.publish(replace(last, number=number, offsets=grown, published_at=now()))
            expect(folded).to_contain_text(f"{grown.at('visits', 0) + 617:,}")

        assert page.evaluate("shifted") - before < 0.01

        # A rollout's page, too, once its later findings are shown.
        page.goto("/rollouts/5")
        expect(page.locator("#samples .notice")).to_contain_text("offsets")
        before, frontiers = page.evaluate("shifted"), Frontiers(world.store, "web-3")
        for number in range(41, 44):
            last = frontiers.newest()
            grown = Offsets({"visits": {0: 1000 + 5 * number, 1: 617}})
            frontiers.publish(replace(last, number=number, offsets=grown, published_at=now()))
            expect(page.locator("#progress-part .facts")).to_contain_text(
                f"{grown.at('visits', 0) + 617:,}"
            )
        assert page.evaluate("shifted") - before < 0.01
        value = "getComputedStyle(document.querySelector('progress'), '::-webkit-progress-value')"
        assert page.evaluate(f"{value}.transitionDuration") in {"0s", ""}


@pytest.mark.long
def test_stages_of_a_rollout_move_nothing(chromium: Browser, tmp_path: Path) -> None:
    with ready(chromium, tmp_path) as (world, page, _):
        build, why = world.build("web-4"), ("function web changed",)
        begun = Staged("web", build, "version-of-web-4", why, auto_promote=False)
        world.append(Abandoned(14, "for another one"), begun)
        overview, rollout = page.context.new_page(), page
        overview.goto("/")
        rollout.goto("/rollouts/6")
        stage, card = rollout.locator(".stages [aria-current]"), overview.locator("#moving-web")
        for each in (card, rollout.locator("#rollout")):
            expect(each.locator("progress").first).to_be_visible()
        expect(overview.locator("#pipe-web canvas")).to_be_visible()
        # Their places: browsers do not count an element that is put anew as moved.
        what_stays = (
            overview.locator("#pipe-web"),
            rollout.locator("#progress"),
            rollout.get_by_role("region", name="Lag by partition"),
        )
        for event, named, offered in (
            (CaughtUp(18, Offsets({"visits": {0: 1000, 1: 500}})), "Verify", "Follow the rollout"),
            (world.verified(18, "web-2"), "Approval", "Review and promote"),
        ):
            before = [each.bounding_box() for each in what_stays]
            world.append(event)
            expect(stage).to_contain_text(named)
            expect(card).to_contain_text(offered)
            assert [each.bounding_box() for each in what_stays] == before


def test_on_a_phone_a_replay_shows_its_progress_first(chromium: Browser, tmp_path: Path) -> None:
    """Once the rows were compared, they come first."""
    world = lived(tmp_path)
    begun = Staged("web", world.build("web-4"), "v4", ("function web changed",))
    world.append(Abandoned(14, "for another one"), begun)
    with serving(world) as server, opened(chromium, at(server), viewport=NARROW) as (page, _):
        page.goto("/rollouts/6")
        tops = [
            page.locator(each).bounding_box()["y"] for each in ("#progress-part", "#verified-part")
        ]
        assert tops[0] < tops[1]
        world.append(CaughtUp(18, Offsets()), world.verified(18, "web-2"))
        # Checks and differences; samples of rows come beside them.
        expect(page.locator("#verified-part table").nth(1)).to_be_visible()
        parts = ("#found", "#code-part", "#verified-part", "#progress-part")
        tops = [page.locator(each).bounding_box()["y"] for each in parts]
        assert tops == sorted(tops)


def test_a_served_rollout_has_the_places_of_a_waiting_one(
    chromium: Browser, standing: Server
) -> None:
    """Rows are on the left and code is on the right. The verification is below both."""
    with opened(chromium, at(standing), viewport={"width": 1280, "height": 800}) as (page, _):
        for number in (2, 5):
            page.goto(f"/rollouts/{number}")
            expect(page.locator("#samples").locator("> p > a, > .underway")).to_have_count(0)
            rows, code, verified = (
                page.locator(each).bounding_box()
                for each in ("#compared", "#code-part", "#verified-part")
            )
            assert rows["y"] == code["y"], number
            assert max(each["y"] + each["height"] for each in (rows, code)) < verified["y"], number
            assert rows["x"] == verified["x"] < code["x"], number
            assert rows["width"] < verified["width"], number


def test_on_a_phone_the_buttons_of_a_waiting_rollout_stay_in_sight(
    chromium: Browser, standing: Server
) -> None:
    """They hide nothing at the end of the page, and stages neither wrap nor overlap."""
    with opened(chromium, at(standing), viewport=NARROW) as (page, _):
        page.goto("/rollouts/5")
        height, bar = NARROW["height"], page.locator(".asks .deeds")
        for top in (0, 400):
            page.evaluate(f"scrollTo(0, {top})")
            expect(page.get_by_role("button", name="Promote")).to_be_in_viewport(ratio=1)
            expect(page.get_by_role("button", name="Abandon")).to_be_in_viewport(ratio=1)
            box = bar.bounding_box()
            assert abs(box["y"] + box["height"] - height) < 1
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        last = page.locator("#progress-part").bounding_box()
        assert last["y"] + last["height"] <= bar.bounding_box()["y"]
        names = [each.bounding_box() for each in page.locator(".stages li > span").all()]
        assert all(each["height"] < 20 for each in names)
        labels = page.locator(".stages li").evaluate_all(
            "(found) => found.map((each) => each.scrollWidth <= each.clientWidth)"
        )
        assert all(labels)


@pytest.mark.long
def test_without_scripts_all_is_readable(chromium: Browser, standing: Server) -> None:
    """Without scripts, buttons are disabled, and the page shows the command to type."""
    with opened(chromium, at(standing), java_script_enabled=False) as (page, _):
        page.goto("/rollouts/5")
        # A button that only a script could serve does not look alive.
        expect(page.get_by_role("button", name="Promote")).to_be_disabled()
        page.goto("/rejects")
        expect(page.get_by_role("button", name="Fix and redrive").first).to_be_disabled()
        page.goto("/rollouts/5")
        page.get_by_role("link", name="Show some of each kind").click()
        expect(page.locator("ins")).to_have_count(5)
        page.goto("/tables/web/page_hits")
        for largest in ("1", "40"):
            page.locator(".sorted th a", has_text="hits").click()
            expect(page.locator(".sorted tbody td").nth(2)).to_have_text(largest)
        page.get_by_label("Column", exact=True).select_option("page")
        page.get_by_label("Value", exact=True).fill("/page/3")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator(".pages")).to_contain_text("Rows 1 to 5 of 5, by hits, largest first")
        page.get_by_role("link", name="Open in Query").click()
        expect(page.locator("#answer .scroll tbody tr")).to_have_count(5)
        page.locator("#query").fill("select 40 + 2 as n")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("#answer .scroll tbody")).to_contain_text("42")
        page.goto("/tables?search=minute")
        expect(page.get_by_role("link", name="by_page")).to_have_count(0)
        for path, told in (
            ("/", "1,500"),
            ("/history", "Generation 2"),
            ("/tables/web/page_hits", "/page/3"),
            ("/topics/visits", "hex ff 00"),
            ("/rejects", "no_json"),
        ):
            page.goto(path)
            expect(page.locator("main")).to_contain_text(told)


def test_many_pipelines_are_found_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    """The key `/` leads to the search, and column heads are links that sort."""
    world = World(tmp_path)
    make_large(world, 12)
    world.be_up()
    with serving(world) as server, opened(chromium, at(server), axe=True) as (page, _):
        page.goto("/")
        expect(page.locator("#line")).to_have_text("Page live")
        rows = page.locator("tr[id^=pipe-]")
        expect(rows).to_have_count(12)
        page.keyboard.press("/")
        page.keyboard.type("01/")
        expect(rows).to_have_count(0)
        page.keyboard.press("Backspace")
        expect(rows).to_have_count(3)
        ensure_accessible(page)
        page.get_by_role("link", name="Lag").focus()
        page.keyboard.press("Enter")
        expect(page.locator("th[aria-sort=descending]")).to_contain_text("Lag")
        expect(page).to_have_url(f"{at(server)}/?sort=lag&search=01")


def test_reject_is_fixed_and_redriven_by_click(chromium: Browser, tmp_path: Path) -> None:
    """An unchanged record or a wrong line cannot be confirmed; a fixed record is sent once."""
    world = lived(tmp_path)
    with serving(world) as server, opened(chromium, at(server), axe=True) as (page, seen):
        page.goto("/rejects")
        expect(page.locator("#line")).to_have_text("Page live")
        page.get_by_role("button", name="Fix and redrive").first.click()
        dialog, line = page.get_by_role("dialog"), page.locator("#plan-line")
        expect(dialog).to_contain_text("The record is as it was rejected")
        expect(page.locator("#plan-yes")).to_be_disabled()
        ensure_accessible(page)
        picture(page, "redrive")
        assert "kappa-redrive" in line.input_value()
        fixed = json.loads(line.input_value()) | {"value": {"page": EVIL}, "base64": []}
        line.fill("{")
        expect(dialog).to_contain_text("is not JSON")
        expect(page.locator("#plan-yes")).to_be_disabled()
        seen.complaints.clear()
        line.fill(json.dumps(fixed, indent=2))
        expect(dialog).to_contain_text("1 record to topic visits")
        page.locator("#plan-yes:not([disabled])").click()
        expect(dialog).to_be_hidden()
        expect(page.locator("#rejects")).to_contain_text("Sent; the next slice folds it.")
    (sent,) = world.log.produced
    assert json.loads(sent.value or b"") == {"page": EVIL}
    assert sent.partition == 0
    assert dict(sent.headers)["kappa-redrive"].startswith(b"visits:0:")


def test_dead_letter_is_sent_again_by_click(chromium: Browser, tmp_path: Path) -> None:
    """The dialog says what is sent. After a yes, the request stands for the courier."""
    world = lived(tmp_path)
    with serving(world) as server, opened(chromium, at(server), axe=True) as (page, _):
        page.goto("/alerts")
        page.get_by_role("button", name="Send the dead letter again").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("1 dead letter of alert late: sent again, once")
        ensure_good(page, "dead letter")
        dialog.get_by_role("button", name="Send again").click()
        expect(page.locator("#alerts")).to_contain_text("Asked for; it is sent once.")
    assert ids_to_send_again(world.store, "late") == ("msg_1",)


def test_answer_is_shown_as_chart_rows_or_both(chromium: Browser, standing: Server) -> None:
    """The choice works without scripts, and a column leads to its values.

    Bars have all labels and numbers, so their rows are folded.
    """
    with opened(chromium, at(standing), java_script_enabled=False) as (page, _):
        page.goto("/query?sql=from+by_page")
        expect(page.locator("#answer .bars")).to_be_visible()
        expect(page.locator("#answer .scroll")).to_be_hidden()
        page.locator("#answer summary", has_text="9 rows").click()
        expect(page.locator("#answer .scroll")).to_be_visible()
        page.goto("/query?sql=select+minute,+hits+from+page_hits")
        chart, rows = page.locator("#answer .chart"), page.locator("#answer .scroll")
        expect(chart).to_be_visible()
        expect(rows).to_be_visible()
        page.get_by_label("chart", exact=True).check()
        expect(rows).to_be_hidden()
        page.get_by_label("rows", exact=True).check()
        expect(chart).to_be_hidden()
        page.get_by_role("link", name="minute", exact=True).click()
        expect(page.locator("#query")).to_have_value(re.compile('select "minute", count'))


def test_browser_signs_in_with_a_token(chromium: Browser, tmp_path: Path) -> None:
    """After the sign-in, the browser gets updates, may query, and can sign out."""
    world = lived(tmp_path)
    with (
        serving(world, token="s3cret") as server,
        opened(chromium, at(server), axe=True) as (page, seen),
    ):
        page.goto("/rollouts/5")
        ensure_accessible(page)
        page.get_by_label("Token").fill("guessed")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("This is no token of this server.")).to_be_visible()
        seen.complaints.clear()
        page.get_by_label("Token").fill("s3cret")
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(f"{at(server)}/rollouts/5")
        expect(page.locator("#line")).to_have_text("Page live")
        assert page.evaluate("document.cookie") == ""
        page.set_viewport_size({"width": 1280, "height": 800})
        # The header has one line: its pages, the connection, and who is signed in.
        middles = page.locator(".top > :is(.brand, nav, .line, .who)").evaluate_all(
            "(parts) => parts.map((each) => each.getBoundingClientRect())"
            ".map(({ top, height }) => Math.round((top + height / 2) / 4))"
        )
        assert len(middles) == 4
        assert len({*middles}) == 1

        page.get_by_role("button", name="Abandon").click()
        page.locator("#plan-yes:not([disabled])").click()
        expect(page.locator("#rollout")).to_contain_text("abandoned over HTTP")
        page.locator(".who summary").click()
        page.get_by_role("button", name="Sign out").click()
        page.goto("/history")
        expect(page.get_by_label("Token")).to_be_visible()


def test_person_signs_in_at_the_issuer(chromium: Browser, tmp_path: Path) -> None:
    """The way to another site and back ends signed in, and a limited page has no complaints."""
    world = lived(tmp_path)
    analyst = GrantSettings(roles=[Role.READ], tables=["page_hits"])
    # `localhost` is another site than 127.0.0.1, as an issuer is.
    with OidcIssuer("localhost") as issuer:
        oidc = OidcSettings(
            issuer=issuer.url, audience=AUDIENCE, client=AUDIENCE, client_secret=CLIENT_SECRET
        )
        access = AccessSettings(oidc=oidc, groups={"analysts": analyst})
        accounts = Accounts(issuer=Issuer(access), key_file=tmp_path / "page.key")
        with (
            serving(world, accounts=accounts) as server,
            opened(chromium, at(server), axe=True) as (page, seen),
        ):
            page.goto("/tables")
            ensure_accessible(page)
            page.get_by_role("link", name="Sign in at").click()
            expect(page).to_have_url(f"{at(server)}/tables")
            expect(page.locator("header")).to_contain_text("alice@example.com")
            assert [each for each in seen.elsewhere if not each.startswith(issuer.url)] == []
            seen.elsewhere.clear()
            expect(page.get_by_role("link", name="by_page")).to_have_count(0)
            page.get_by_role("link", name="page_hits").first.click()
            expect(page.locator("main")).to_contain_text("/page/3")
            ensure_accessible(page)
            expect(page.get_by_role("navigation")).not_to_contain_text("History")
            page.goto("/boards/pages")
            expect(page.locator("main")).to_contain_text("may not read by_page")


@pytest.mark.long
def test_empty_page_says_what_to_type(chromium: Browser, tmp_path: Path) -> None:
    with serving(World(tmp_path)) as server, opened(chromium, at(server), axe=True) as (page, _):
        for path in ("/", "/tables", "/history", "/rejects"):
            page.goto(path)
            ensure_accessible(page)
            picture(page, f"empty {path}")
        page.goto("/")
        page.evaluate(
            "navigator.clipboard.writeText = async (text) => { globalThis.copied = text; }"
        )
        page.get_by_role("button", name="Copy").nth(2).click()
        assert page.evaluate("copied") == "kappa topics create"
        # In a narrow window a command scrolls, and breaks nowhere.
        page.set_viewport_size(NARROW)
        ensure_accessible(page)
        ensure_fits(page)
        heights = page.locator(".copied > code").evaluate_all(
            "(found) => found.map((each) => each.clientHeight)"
        )
        assert len({*heights}) == 1
