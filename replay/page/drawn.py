"""The rows of an answer as a chart draws them, by its kind. Pure.

Rows are those of the JSON answer of a query: columns by name, with DuckDB's types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.board import ChartKind

# Rows of a query that a chart takes.
MOST_ROWS = 1_000
# More bars, or more lines, nobody tells apart.
_MOST_BARS = 50
_MOST_LINES = 5
# The newest rows of a line are shown as a table, too.
_LAST_ROWS = 50
_TIMES = re.compile(r"(timestamp|date\b).*", re.IGNORECASE)
_NUMBERS = re.compile(
    r"u?(tiny|small|big|huge)?int(eger)?|float|double|real|decimal\([\d, ]+\)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DrawnNumber:
    """One value, and one beside it with its name, if the query gives two."""

    value: object
    beside: tuple[str, object] | None


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """One bar: its beginning and width, both in percent of the room for all of them."""

    label: object
    value: object
    begin: float
    width: float


@dataclass(frozen=True, slots=True)
class DrawnBars:
    """Bars with the names of both columns."""

    columns: tuple[str, ...]
    bars: tuple[DrawnBar, ...]


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """Rows as a table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class DrawnLines:
    """Lines as the script draws them (`chart`), and their last rows for people."""

    chart: Mapping[str, Any]
    last: DrawnRows


Drawn = DrawnNumber | DrawnBars | DrawnRows | DrawnLines


def drawn(kind: ChartKind, answer: Mapping[str, Any]) -> tuple[Drawn, str]:
    """Returns what a chart of that kind shows of an answer, and a note if rows are left out.

    Raises UsageError if the query's columns or rows are not those of such a chart.
    """
    names = tuple(column["name"] for column in answer["columns"])
    types = tuple(column["type"] for column in answer["columns"])
    rows = [
        tuple(_value(row[name], of) for name, of in zip(names, types, strict=True))
        for row in answer["rows"]
    ]
    note = f"The first {len(rows):,} rows are shown." if answer["truncated"] else ""
    match kind:
        case ChartKind.NUMBER:
            return _number(names, rows), ""
        case ChartKind.LINE:
            return _lines(names, types, rows), note
        case ChartKind.BARS:
            if len(rows) > _MOST_BARS:
                note = f"The first {_MOST_BARS} bars are shown."
            return _bars(names, types, rows[:_MOST_BARS]), note
        case ChartKind.TABLE:
            return DrawnRows(names, tuple(rows)), note


def _number(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> DrawnNumber:
    if len(names) > 2 or len(rows) > 1:
        raise UsageError(
            f"a number is one row of one value or two, and the query gives {_amount(names, rows)}",
            hint='select one value; or write: kind = "table"',
        )
    if not rows:
        return DrawnNumber(None, None)
    value, *more = rows[0]
    return DrawnNumber(value, (names[1], more[0]) if more else None)


def _bars(
    names: tuple[str, ...], types: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> DrawnBars:
    if len(names) != 2 or not _NUMBERS.fullmatch(types[1]):
        raise UsageError(
            "bars are drawn of two columns, a label and a number, and the query gives "
            f"{_described(names, types)}",
            hint='select label, number; or write: kind = "table"',
        )
    lengths = [_finite(value) or 0.0 for _, value in rows]
    low, high = min([0.0, *lengths]), max([0.0, *lengths])
    percent = 100 / ((high - low) or 1.0)
    return DrawnBars(
        names,
        tuple(
            DrawnBar(
                label,
                value,
                round((min(length, 0.0) - low) * percent, 2),
                round(abs(length) * percent, 2),
            )
            for (label, value), length in zip(rows, lengths, strict=True)
        ),
    )


def _lines(
    names: tuple[str, ...], types: Sequence[str], rows: Sequence[tuple[object, ...]]
) -> DrawnLines:
    time = bool(_TIMES.fullmatch(types[0]))
    if (
        not 2 <= len(names) <= _MOST_LINES + 1
        or not (time or _NUMBERS.fullmatch(types[0]))
        or not all(_NUMBERS.fullmatch(each) for each in types[1:])
    ):
        raise UsageError(
            "lines are drawn of a time or a number, and then a number for each line, at most "
            f"{_MOST_LINES}; the query gives {_described(names, types)}",
            hint='select time, number, ...; or write: kind = "bars", or "table"',
        )
    placed = [(_seconds(row[0]) if time else _finite(row[0]), row) for row in rows]
    # Times and numbers that no axis has, and null, have no place.
    points = sorted(
        ((x, row) for x, row in placed if x is not None),
        key=lambda point: point[0],
    )
    for (before, row), (x, _) in pairwise(points):
        if before == x:
            raise UsageError(
                f"two rows have the same {names[0]}, {row[0]}, and a line has one",
                hint=f"group by {names[0]}, and give each line a column of its own",
            )
    chart = {
        "x": [x for x, _ in points],
        "series": [
            {"label": name, "values": [_finite(row[place]) for _, row in points]}
            for place, name in enumerate(names)
            if place
        ],
        "time": time,
        "where": names[0],
    }
    return DrawnLines(chart, DrawnRows(names, tuple(row for _, row in points[-_LAST_ROWS:])))


def _value(given: object, kind: str) -> object:
    """Returns a value of JSON with the type that it is shown by: a decimal comes as a text."""
    return Decimal(given) if isinstance(given, str) and _NUMBERS.fullmatch(kind) else given


def _finite(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _seconds(value: object) -> float | None:
    """Returns a date or time in seconds since 1970; one without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _described(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(f"{name} ({of})" for name, of in zip(names, types, strict=True))


def _amount(names: Sequence[str], rows: Sequence[object]) -> str:
    return f"{len(rows):,} rows of {len(names)} columns"
