"""Laws of the rows of a table on its page: sorted, filtered, and in pages, by addresses alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from asking import Server
from msgspec.structs import replace
from page_world import EVIL, World
from test_page import Page, got, serving

from kappa.replay.page import routes, table_rows
from kappa.replay.page.table_rows import Match, RowsRequest
from kappa.serving.query.reader.errors import TooMuch
from kappa.state.journal.events import CaughtUp, Staged
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.slow

TABLE = "/tables/web/page_hits"
WILD = "we\"ird' name</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A table of 130 rows, and a view with a wild name of a column."""
    world = World(tmp_path_factory.mktemp("world"))
    wild = WILD.replace('"', '""')
    view = f'select page as "{wild}", hits, null::bigint as gone from page_hits'
    world.goes_live(world.build("web-1", rows=130, evil=EVIL, by_page=view), 1, ago=60)
    world.be_up()
    with serving(world) as running:
        yield running


def hits(page: Page) -> list[str]:
    """Returns the cells of the last column of the page's rows."""
    place = page.words.index("Open in Query")
    cells = [each.strip() for each in page.words[place:] if each.strip()]
    return [each for each in cells[: cells.index("Columns")] if each.isdecimal()]


@pytest.mark.parametrize(
    ("asked", "place", "first", "last"),
    [
        ("", "Rows 1 to 50 of 130, by minute, newest first", "130", "81"),
        ("?page=3", "Rows 101 to 130 of 130", "30", "1"),
        ("?page=99", "Rows 101 to 130 of 130", "30", "1"),
        ("?page=x", "Rows 1 to 50 of 130", "130", "81"),
        ("?order=minute", "Rows 1 to 50 of 130, by minute", "1", "50"),
        ("?order=hits&down=1", "Rows 1 to 50 of 130, by hits, largest first", "130", "81"),
        ("?order=hits&down=1&page=3", "Rows 101 to 130 of 130", "30", "1"),
        ("?column=hits&match=at+least&value=100", "Rows 1 to 31 of 31", "130", "100"),
        ("?column=hits&match=at+most&value=7&order=hits", "Rows 1 to 7 of 7", "1", "7"),
        ("?column=page&value=/page/1&order=hits", "Rows 1 to 17 of 17", "2", "130"),
        ("?column=page&match=contains&value=PAGE/1&order=hits", "of 17", "2", "130"),
        (
            "?column=minute&value=2026-01-01+00:04:00+UTC",
            "Rows 1 to 1 of 1",
            "5",
            "5",
        ),
    ],
)
def test_rows_are_those_of_the_address(
    server: Server, asked: str, place: str, first: str, last: str
) -> None:
    page = got(server, f"{TABLE}{asked}")

    assert place in page.text
    found = hits(page)
    assert (found[0], found[-1]) == (first, last)


def test_links_to_other_rows_stand_above_and_below_the_rows(server: Server) -> None:
    def nexts(asked: str) -> int:
        return sum(each.get("rel") == "next" for each in got(server, f"{TABLE}{asked}").all("a"))

    assert nexts("") == 2
    assert nexts("?page=3") == 0


def test_a_narrow_window_has_the_place_of_the_rows_in_sight_and_folds_the_filter(
    server: Server,
) -> None:
    page = got(server, TABLE)
    filtered = got(server, f"{TABLE}?column=hits&match=at+least&value=100")

    assert "Rows 1 to 50 of 130, by minute, newest first Rows 1 to 20 of 130, by" in page.text
    assert "Show 30 more" in page.text
    assert "Filter: all rows" in page.text
    assert "Filter: hits at least 100" in filtered.text
    assert "Rows 1 to 20 of 130" not in got(server, f"{TABLE}?column=hits&value=3").text


def test_a_header_has_the_type_of_its_column_and_marks_a_key(server: Server) -> None:
    page = got(server, TABLE)

    heads = "page key varchar minute key timestamp with time zone · UTC hits bigint"
    assert heads in page.text
    assert "query" not in {each.get("id") for each in page.all("textarea")}


def test_a_click_on_a_column_sorts_and_keeps_the_filter(server: Server) -> None:
    """Up, then down, then as by default, from the first page on; an order survives a filter."""
    wanted = RowsRequest(column="page", value="/page/1", page=2)
    up = wanted.sorted_by("hits")
    assert (up, up.sorted_by("hits").down) == (
        RowsRequest("hits", column="page", value="/page/1"),
        True,
    )
    assert up.sorted_by("hits").sorted_by("hits").order == ""
    page = got(server, f"{TABLE}?column=page&value=/page/1&order=hits")
    hrefs = [each["href"] for each in page.all("a")]
    assert "?order=hits&down=1&column=page&match=is&value=%2Fpage%2F1#rows" in hrefs
    assert {"type": "hidden", "name": "order", "value": "hits"} in page.all("input")
    sorts = [each["aria-sort"] for each in page.all("th") if "aria-sort" in each]
    assert sorts == ["ascending"]
    (query,) = [each or "" for each in hrefs if (each or "").startswith("/query?sql=")]
    rows = got(server, query)
    assert "17 rows" in rows.text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("?order=hitz", "there is no column hitz did you mean hits?"),
        ("?column=pages&value=1", "there is no column pages"),
        ("?column=hits&value=many", "many"),
        ("?column=page&value=nowhere", "No row is so."),
    ],
)
def test_a_wrong_address_says_what_is_wrong(server: Server, asked: str, told: str) -> None:
    page = got(server, f"{TABLE}{asked}")

    assert page.status == 200
    assert told in page.text


def test_wild_names_and_values_are_only_text(server: Server) -> None:
    column, value = quote(WILD), quote(EVIL)
    page = got(server, f"/tables/web/by_page?order={column}&column={column}&value=/{value}")

    assert page.status == 200
    assert "Rows 1 to 2 of 2" in page.text
    assert EVIL in page.text
    assert {"id": "value", "name": "value", "value": f"/{EVIL}", "autocomplete": "off"} in page.all(
        "input"
    )
    assert "Rows 1 to 50 of 130" in got(server, "/tables/web/by_page?order=gone").text


def test_rows_are_counted_up_to_a_bound(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody turns the pages of a table of ten million rows."""
    monkeypatch.setattr(table_rows, "_MOST", 100)
    page = got(server, f"{TABLE}?column=page&match=contains&value=/page&page=9")
    assert "Rows 51 to 100 of more than 100" in page.text
    assert "Sort or filter to see others." in page.text
    assert "Row 100" in got(server, f"{TABLE}?column=page&match=contains&value=/page&page=1").text


def test_what_takes_too_long_is_not_asked_again_at_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def slow(*_: object) -> None:
        asked.append("once")
        raise TooMuch("the query took too long", hint="ask for less")

    monkeypatch.setattr(routes, "ask_rows", slow)
    for _ in range(3):
        assert "the query took too long" in got(server, f"{TABLE}?order=minute&down=1").text
    assert asked == ["once"]


def test_the_default_order_is_marked(server: Server) -> None:
    """The newest rows come first, and rows of one time are sorted by the other keys."""
    page = got(server, TABLE)

    assert [each["aria-sort"] for each in page.all("th") if "aria-sort" in each] == ["descending"]
    (query,) = [each["href"] or "" for each in page.all("a") if "sql=" in (each["href"] or "")]
    assert quote('order by "minute" desc nulls last, "page"', safe="") in query


@pytest.mark.parametrize(
    ("columns", "keys", "wanted"),
    [
        (
            {"page": "VARCHAR", "at": "DATE", "last": "TIMESTAMP"},
            ["at"],
            RowsRequest("at", down=True),
        ),
        (
            {"first": "TIMESTAMP WITH TIME ZONE", "last": "timestamp_ms", "n": "BIGINT"},
            ["n"],
            RowsRequest("last", down=True),
        ),
        ({"page": "VARCHAR", "dated": "BOOLEAN"}, ["page"], RowsRequest("page")),
        ({"page": "VARCHAR", "days": "DATE[]"}, [], RowsRequest()),
    ],
)
def test_a_table_is_sorted_by_time_or_else_by_its_key(
    columns: dict[str, str], keys: list[str], wanted: RowsRequest
) -> None:
    assert table_rows.default_order(columns, keys) == wanted


def test_a_time_without_a_day_is_of_today() -> None:
    """The page shows times of today so. A text that looks like a time stays as it is."""
    columns = {"at": "TIMESTAMP WITH TIME ZONE", "said": "VARCHAR"}
    now = datetime(2026, 1, 31, tzinfo=UTC)
    at, said = (RowsRequest(column=each, value="14:05:09") for each in columns)

    assert table_rows.with_day(at, columns, now).value == "2026-01-31 14:05:09"
    assert table_rows.with_day(said, columns, now) == said


def test_a_very_large_table_is_not_sorted_unasked(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_rows, "_MOST_SORTED", 100)
    page = got(server, f"{TABLE}?page=2")

    assert "Rows 51 to 100 of 130 " in page.text
    assert not [each for each in page.all("th") if "aria-sort" in each]


@pytest.mark.parametrize("given", [{}, {"page": "0"}, {"page": "-1"}, {"match": "like"}])
def test_what_cannot_be_read_has_its_default(given: dict[str, str]) -> None:
    assert RowsRequest.of(given) == RowsRequest()
    assert RowsRequest.of({"match": "at most"}).match is Match.AT_MOST


def test_a_check_without_a_result_is_not_checked_yet(tmp_path: Path) -> None:
    world = World(tmp_path)
    begun = Staged("web", world.build("web-1"), "version", ("new",))
    unchecked = replace(world.verified(1, None), checks=())
    world.append(begun, CaughtUp(1, Offsets()), unchecked)
    world.switches(1, "web-1", 1, None)
    with serving(world) as running:
        page = got(running, TABLE)

    assert page.status == 200
    assert "hits > 0 not checked yet" in page.text
