"""Laws of the charts of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from kappa.base.errors import UsageError
from kappa.declare.board import ChartKind
from kappa.replay.page import boards
from kappa.replay.page.boards import (
    BoardAnswer,
    Drawn,
    DrawnBars,
    DrawnLines,
    DrawnNumber,
    DrawnRows,
)
from kappa.serving.http.page import formatting
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets

NUMBER, LINE, BARS, TABLE = ChartKind.NUMBER, ChartKind.LINE, ChartKind.BARS, ChartKind.TABLE


def answer(columns: str, *rows: Sequence[object], truncated: bool = False) -> dict[str, Any]:
    """Returns an answer as the sandbox gives it; each column is written as `name TYPE`."""
    made = [
        dict(zip(("name", "type"), each.split(" ", 1), strict=True)) for each in columns.split(", ")
    ]
    names = [each["name"] for each in made]
    return {
        "columns": made,
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
        "truncated": truncated,
    }  # fmt: skip


def draw_answer(kind: ChartKind, given: dict[str, Any]) -> tuple[Drawn, str]:
    return boards.draw_answer(kind, given, "from rows order by place")


def test_a_number_is_one_value_and_may_have_another_beside_it() -> None:
    assert draw_answer(NUMBER, answer("n BIGINT", [7])) == (DrawnNumber(7, None, "n"), "")
    assert draw_answer(NUMBER, answer("n BIGINT, before DECIMAL(9,2)", [7, "1.50"])) == (
        DrawnNumber(7, ("before", Decimal("1.50")), "n"),
        "",
    )
    assert draw_answer(NUMBER, answer("n BIGINT")) == (DrawnNumber(None, None), "")


def test_the_unit_of_a_number_is_the_name_that_the_query_gives() -> None:
    """A time has none, and the name of an expression is none."""
    for column, value, unit in (
        ("hits BIGINT", 7, "hits"),
        ("sum(hits) BIGINT", 7, ""),
        ("newest DATE", "2026-01-31", ""),
        ("hits BIGINT", None, ""),
    ):
        shown, _ = draw_answer(NUMBER, answer(column, [value]))
        assert isinstance(shown, DrawnNumber)
        assert shown.unit == unit


def test_bars_share_one_room_from_the_least_value_to_the_largest() -> None:
    shown, _ = draw_answer(
        BARS, answer("who VARCHAR, d DOUBLE", ["a", 30], ["b", -10], ["c", None])
    )

    assert isinstance(shown, DrawnBars)
    assert [(bar.label, bar.begin, bar.width) for bar in shown.bars] == [
        ("a", 25.0, 75.0),
        ("b", 0.0, 25.0),
        ("c", 25.0, 0.0),
    ]
    assert shown.zero == 25.0


@pytest.mark.parametrize(
    ("sql", "kind", "order"),
    [
        ("select who, n from t", "VARCHAR", "bcad"),
        ("select who, n from t", "ENUM('a', 'b')", "bcad"),
        ("select who, n from t\nORDER  BY who", "VARCHAR", "abcd"),
        ("select hour, n from t", "BIGINT", "7895"),
    ],
)
def test_bars_of_names_are_sorted_unless_the_query_sorts(sql: str, kind: str, order: str) -> None:
    """The largest comes first. Hours, days and the order of the query stay as they are."""
    labels, amounts = sorted(order) if kind != "BIGINT" else order, (3, 9, 5, None)
    rows = ([label, amount] for label, amount in zip(labels, amounts, strict=True))
    given = answer(f"who {kind.replace(', ', ',')}, n BIGINT", *rows)
    shown, _ = boards.draw_answer(BARS, given, sql)

    assert isinstance(shown, DrawnBars)
    assert "".join(str(bar.label) for bar in shown.bars) == order


def test_of_many_bars_the_largest_are_shown() -> None:
    given = answer("who VARCHAR, n BIGINT", *([str(each), each] for each in range(60)))
    shown, note = boards.draw_answer(BARS, given, "from t")

    assert isinstance(shown, DrawnBars)
    assert [bar.value for bar in shown.bars] == [*range(59, 9, -1)]
    assert note == "The largest 50 of 60 bars are shown."


@pytest.mark.parametrize("rows", [[], [["a", 0]], [["a", "NaN"]], [["a", "Infinity"]]])
def test_bars_without_a_length_are_drawn_as_none(rows: list[list[object]]) -> None:
    shown, _ = draw_answer(BARS, answer("who VARCHAR, d DOUBLE", *rows))

    assert isinstance(shown, DrawnBars)
    assert [bar.width for bar in shown.bars] == [0.0] * len(rows)


def test_lines_are_in_the_order_of_time_in_utc_and_nulls_have_no_place() -> None:
    rows = (
        ["2026-01-01T00:01:00Z", 2, "2.5"],
        ["1970-01-01T00:00:10", 1, None],
        [None, 9, "9"],
        ["1970-01-01T01:00:20+01:00", 3, "3"],
    )
    shown, _ = draw_answer(
        LINE, answer("at TIMESTAMP WITH TIME ZONE, n BIGINT, d DECIMAL(9,1)", *rows)
    )

    assert isinstance(shown, DrawnLines)
    assert shown.chart == {
        "x": [10.0, 20.0, 1_767_225_660.0],
        "series": [
            {"label": "n", "values": [1.0, 3.0, 2.0]},
            {"label": "d", "values": [None, 3.0, 2.5]},
        ],
        "time": True,
        "where": "at",
    }
    assert shown.last.rows[-1] == (datetime(2026, 1, 1, 0, 1, tzinfo=UTC), 2, Decimal("2.5"))


def test_times_are_written_for_people() -> None:
    """Times that Python does not have, and texts that look like times, stay as they are."""
    columns = "z TIMESTAMP WITH TIME ZONE, t TIMESTAMP, n TIMESTAMP_NS, s VARCHAR, d DATE"
    given = ["2026-01-31T14:05:09.120Z", "2026-01-31T14:05:09"]
    given += ["2026-01-31T14:05:09.123456789", "2026-01-31T14:05:09Z", "2026-01-31"]
    shown, _ = draw_answer(TABLE, answer(columns, given, ["infinity", *4 * [None]]))

    assert isinstance(shown, DrawnRows)
    assert [formatting.value(each) for each in shown.rows[0]] == [
        *("2026-01-31 14:05:09.12 UTC", "2026-01-31 14:05:09", *given[2:])
    ]
    assert shown.rows[1][0] == "infinity"


def test_the_header_has_the_zone_of_its_times_and_today() -> None:
    """A column with anything but times of a zone stays as it is."""
    now = datetime(2026, 1, 31, 20, tzinfo=UTC)
    today, before = now.replace(hour=14, minute=5), datetime(2026, 1, 30, 9, tzinfo=UTC)
    naive = today.replace(tzinfo=None)
    rows = [(today, today, naive, "x", None), (None, before, naive, today, None)]
    zones = formatting.time_zones(rows, now)

    assert [each.text for each in zones] == ["today, UTC", "UTC", "", "", ""]
    assert formatting.time_zones([], now) == ()
    shown = [
        [formatting.value_below(*each) for each in zip(row, zones, strict=True)] for row in rows
    ]
    assert shown == [
        ["14:05", "2026-01-31 14:05", "2026-01-31 14:05:00", "x", "null"],
        ["null", "2026-01-30 09:00", "2026-01-31 14:05:00", "2026-01-31 14:05:00 UTC", "null"],
    ]
    (seconds,) = formatting.time_zones([(today,), (today.replace(microsecond=120_000),)], now)
    assert formatting.value_below(today, seconds) == "14:05:00"


@pytest.mark.parametrize(
    ("points", "now", "period"),
    [
        ([0, 60, 180], 200, "minute"),
        ([0, 60, 180], 180, "minute"),
        ([0, 60, 180], 240, ""),
        ([0, 60, 180], 179, ""),
        ([0, 3_600, 7_200], 7_300, "hour"),
        ([86_400, 172_800, 259_200], 300_000, "day"),
        ([7, 67, 127], 130, ""),
        ([0, 17, 34], 35, ""),
        ([120, 180], 200, ""),
    ],
)
def test_the_last_point_is_open_until_its_period_ends(
    points: list[int], now: int, period: str
) -> None:
    """Points that are at the beginning of no period have none."""
    chart = {"x": [float(each) for each in points], "series": [], "time": True, "where": "at"}
    lines, at = DrawnLines(chart, DrawnRows((), ())), datetime.fromtimestamp(now, UTC)

    assert lines.open_period(at) == period
    assert DrawnLines({**chart, "time": False}, lines.last).open_period(at) == ""


def test_a_board_is_as_of_its_oldest_frontier() -> None:
    """A minute is open as long as one of the frontiers is within the minute."""
    frontiers = {
        name: Frontier(1, name, 1, Offsets(), {}, f"2026-01-31T14:0{minute}:00Z")
        for name, minute in (("web", 6), ("shop", 5))
    }

    assert BoardAnswer(1, (), (), frontiers, has_times=True).as_of == "2026-01-31T14:05:00Z"
    assert BoardAnswer(1, (), (), {}, has_times=False).as_of == ""


def test_a_line_over_days_or_numbers_is_one_too() -> None:
    days, _ = draw_answer(LINE, answer("day DATE, n UINTEGER", ["1970-01-02", 1]))
    numbers, _ = draw_answer(LINE, answer("n HUGEINT, m FLOAT", [3, 1.5], [1, 2.5]))

    assert isinstance(days, DrawnLines)
    assert isinstance(numbers, DrawnLines)
    assert (days.chart["x"], days.chart["time"]) == ([86_400.0], True)
    assert (numbers.chart["x"], numbers.chart["time"]) == ([1.0, 3.0], False)


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (NUMBER, answer("n BIGINT", [1], [2]), "one row of one value or two, .* 2 rows of 1 col"),
        (NUMBER, answer("a INTEGER, b INTEGER, c INTEGER"), "0 rows of 3 columns"),
        (BARS, answer("n BIGINT"), r"a label and a number, and the query gives n \(BIGINT\)"),
        (BARS, answer("a VARCHAR, b VARCHAR"), r"b \(VARCHAR\)"),
        (BARS, answer("a VARCHAR, b BIGINT[]"), r"b \(BIGINT\[\]\)"),
        (BARS, answer("a VARCHAR, b BIGINT, c BIGINT"), r"c \(BIGINT\)"),
        (LINE, answer("at DATE"), r"a number for each line, .* at \(DATE\)"),
        (LINE, answer("who VARCHAR, n BIGINT"), r"who \(VARCHAR\), n \(BIGINT\)"),
        (LINE, answer("at DATE, who VARCHAR"), r"who \(VARCHAR\)"),
        (LINE, answer(", ".join(f"n{each} BIGINT" for each in range(7))), "at most 5"),
        (
            LINE,
            answer("at DATE, n BIGINT", ["2026-01-01", 1], ["2026-01-01", 2]),
            "two rows have the same at, 2026-01-01",
        ),
    ],
)
def test_rows_of_no_chart_are_refused(kind: ChartKind, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told) as found:
        draw_answer(kind, given)

    assert found.value.hint


def test_rows_that_are_left_out_are_noted() -> None:
    rows = [[str(each), each] for each in range(60)]
    cut = answer("who VARCHAR, n BIGINT", *rows, truncated=True)
    whole = answer("who VARCHAR, n BIGINT", *rows)

    assert draw_answer(TABLE, cut)[1] == "The first 60 rows are shown."
    # A table scrolls, so its length is not in sight.
    assert draw_answer(TABLE, whole)[1] == "60 rows of the query"
    assert draw_answer(TABLE, answer("n BIGINT", [1]))[1] == ""
    shown, note = draw_answer(BARS, whole)
    assert isinstance(shown, DrawnBars)
    assert (len(shown.bars), note) == (50, "The first 50 of 60 bars are shown.")
    assert draw_answer(BARS, cut)[1] == "The first 50 bars are shown."


def test_a_table_has_all_rows_in_the_order_of_its_columns() -> None:
    shown, _ = draw_answer(TABLE, answer("b VARCHAR, a DECIMAL(9,2)", ["x", "1.25"], [None, None]))

    assert shown == DrawnRows(("b", "a"), (("x", Decimal("1.25")), (None, None)))
