"""Renders values as text: a table for display, and JSON and CSV for programs. Pure.

docs/reference/values.md lists the text of each DuckDB type in each format. Values that Python
cannot represent arrive as text already (kappa/declare/values/exact_sql.py); all other values are
formatted here.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any

from rich.cells import cell_len

from kappa.base.clock import time_text

# A column of texts is cut to fewer cells only where no column can be left out any more.
_LEAST_CELLS = 14
_FEWEST_CELLS = 4

# Takes a column and the text of a cell, and returns the text with colours.
Paint = Callable[[str, str], str]


class Form(StrEnum):
    """The output format of a command that reads data."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows with named columns, to be printed as a table, JSON or CSV.

    JSON and CSV contain all columns; the printed table leaves the `wide` columns out. The other
    fields concern only the printed table. `is_report` is True if the rows come from Kappa and not
    from a user's tables: nulls are then blank, and texts are cut to fit a narrow terminal. Before
    texts are cut, the columns in `least` are left out, the first one first. The texts of the column
    `below` are then printed below the table, each after the row's text in the column `labels`.
    `times` contains the columns whose values are times as text. `empty` is printed instead of a
    table without rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    wide: frozenset[str] = frozenset()
    is_report: bool = False
    least: tuple[str, ...] = ()
    below: str = ""
    labels: str = ""
    times: frozenset[str] = frozenset()
    empty: str = ""

    def row_objects(self) -> list[dict[str, Any]]:
        """Returns each row as a mapping from column to value."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def render_listing(
    form: Form,
    listing: Listing,
    *,
    document: object = None,
    heading: str = "",
    width: int | None = None,
    paint: Paint | None = None,
) -> str:
    """Renders a listing in an output format, with a line end at the end.

    If `document` is given, JSON contains `document` instead of the rows. `heading` is printed above
    the table. A table whose listing is a report is cut to a width of `width` characters, and
    `paint` colours its cells.
    """
    match form:
        case Form.JSON:
            return to_json(listing.row_objects() if document is None else document) + "\n"
        case Form.JSONL:
            return "".join(object_line(listing.columns, row) for row in listing.rows)
        case Form.CSV:
            return "".join(_csv_lines(listing))
        case Form.TABLE:
            lines = _table_lines(listing, width if listing.is_report else None, paint)
            return (f"{heading}\n" if heading else "") + "".join(lines)


def to_json(document: object) -> str:
    """Renders a value as JSON, with indentation for a list or an object."""
    return json.dumps(
        json_value(document),
        ensure_ascii=False,
        indent=2 if isinstance(document, Mapping | list) else None,
        allow_nan=False,
    )


def object_line(names: Iterable[str], row: Iterable[object]) -> str:
    """Renders a row as a JSON object on one line, with a line end."""
    document = json_value(dict(zip(names, row, strict=True)))
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def json_value(value: object) -> object:
    """Converts a value, including its parts, to a value that JSON can represent."""
    match value:
        case None | bool() | int() | str():
            return str(value) if isinstance(value, StrEnum) else value
        case float():
            return value if math.isfinite(value) else _not_finite(value)
        case datetime():
            return _time_text(value)
        case date() | time():
            return value.isoformat()
        case Decimal():
            # Python's own text of a small decimal has an exponent.
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {_one_line_text(name): json_value(each) for name, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_value(each) for each in value]
        case _:
            return str(value)


def cell_text(value: object) -> str:
    """Renders a value as the text of a table's cell."""
    match value:
        case None:
            return "null"
        case bytes():
            return _escaped_text(value.decode(errors="backslashreplace"))
        case str():
            return _escaped_text(value)
        case _:
            return _escaped_text(_one_line_text(value))


def printable_text(text: str) -> str:
    """Escapes the control characters of a text for a terminal, but keeps its line ends.

    A message may quote data, and data may contain control characters.
    """
    return "\n".join(map(_escaped_text, text.split("\n")))


def _csv_lines(listing: Listing) -> Iterator[str]:
    yield csv_line(listing.columns)
    for row in listing.rows:
        yield csv_line(row)


def columns_of(names: Iterable[str], types: Iterable[str]) -> list[dict[str, str]]:
    """Returns a mapping with the name and DuckDB's type for each column of an answer."""
    return [{"name": name, "type": kind} for name, kind in zip(names, types, strict=True)]


def csv_line(values: Iterable[object]) -> str:
    """Renders a row as a line of CSV, with a line end."""
    return ",".join(map(_csv_cell, values)) + "\n"


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else _one_line_text(value)
    # RFC 4180; quotes around nothing distinguish the empty text from null.
    return (
        '"' + text.replace('"', '""') + '"'
        if not text or any(mark in text for mark in ',"\r\n')
        else text
    )


def _one_line_text(value: object) -> str:
    """Returns the text of a value on one line. Lists, structs and maps are rendered as JSON."""
    shown = json_value(value)
    return (
        shown
        if isinstance(shown, str)
        else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    )


def render_expanded(listing: Listing) -> str:
    """Renders each row as a heading with the row's number, followed by a line for each column."""
    heads = [_escaped_text(column) for column in listing.columns]
    width = max(map(cell_len, heads), default=0)
    lines = []
    for number, row in enumerate(listing.rows, 1):
        lines.append(f"─[ {number} ]".ljust(max(width + 2, 12), "─"))
        lines += [
            f"{head}{' ' * (width - cell_len(head))}  {cell_text(value)}".rstrip()
            for head, value in zip(heads, row, strict=True)
        ]
    return "".join(f"{line}\n" for line in lines)


@dataclass(slots=True)
class _Column:
    """A column of a printed table: its name, the texts of its cells, and its width.

    The width is in characters; a wide character, such as a Chinese character, counts twice.
    `is_whole` is True for a column of numbers or times, whose texts are never cut.
    """

    name: str
    texts: list[str]
    is_numeric: bool
    is_whole: bool
    width: int


def _table_lines(listing: Listing, width: int | None, paint: Paint | None) -> Iterator[str]:
    if listing.empty and not listing.rows:
        yield f"{listing.empty}\n"
        return
    columns = [
        _column_of(listing, place)
        for place, column in enumerate(listing.columns)
        if column not in listing.wide
    ]
    below: list[str] = []
    if width is not None:
        columns, below = _fitted_columns(listing, columns, width)
    yield _table_line([(each, _cut_text(each.name, each.width), None) for each in columns])
    yield _table_line([(each, "─" * each.width, None) for each in columns])
    for number in range(len(listing.rows)):
        yield _table_line(
            [(each, _cut_text(each.texts[number], each.width), paint) for each in columns]
        )
    yield from (f"{line}\n" for line in below)


def _column_of(listing: Listing, place: int) -> _Column:
    values = [row[place] for row in listing.rows]
    name = _escaped_text(listing.columns[place])
    texts = [
        ""
        if value is None and listing.is_report
        else _time_cell(value)
        if listing.columns[place] in listing.times and value
        else cell_text(value)
        for value in values
    ]
    is_numeric = bool(values) and all(map(_is_number, values))
    is_whole = is_numeric or listing.columns[place] in listing.times
    return _Column(name, texts, is_numeric, is_whole, max(map(cell_len, [name, *texts])))


def _time_cell(value: str | datetime) -> str:
    try:
        return time_text(value)
    except ValueError:
        # A record's time may be beyond the years that Python knows.
        return cell_text(value)


def _fitted_columns(
    listing: Listing, columns: list[_Column], width: int
) -> tuple[list[_Column], list[str]]:
    """Returns the columns of a printed table that fit a width, and the lines below the table.

    The width is in characters. The widths of the returned columns are changed so that the columns
    fit. If the column `listing.below` does not fit, its texts are the lines below the table.
    """
    below: list[str] = []
    if _whole_width(columns) > width and listing.below:
        texts = next(each for each in columns if each.name == listing.below)
        labels = next(each for each in columns if each.name == listing.labels)
        columns = [each for each in columns if each is not texts]
        below = [
            f"{label}: {text}"
            for label, text in zip(labels.texts, texts.texts, strict=True)
            if text
        ]
    for name in listing.least:
        if _least_width(columns, _LEAST_CELLS) > width:
            columns = [each for each in columns if each.name != name]
    _cut_columns(columns, width, _LEAST_CELLS)
    _cut_columns(columns, width, _FEWEST_CELLS)
    return columns, below


def _whole_width(columns: Sequence[_Column]) -> int:
    return sum(each.width for each in columns) + 2 * (len(columns) - 1)


def _least_width(columns: Sequence[_Column], least: int) -> int:
    widths = (each.width if each.is_whole else min(each.width, least) for each in columns)
    return sum(widths) + 2 * (len(columns) - 1)


def _cut_columns(columns: Sequence[_Column], width: int, least: int) -> None:
    """Narrows the widest text columns until all columns fit a width of `width` characters.

    No column gets narrower than `least` characters.
    """
    texts = [each for each in columns if not each.is_whole and each.width > least]
    while texts and _whole_width(columns) > width:
        widest = max(texts, key=lambda each: each.width)
        if widest.width <= least:
            return
        widest.width -= 1


def _cut_text(text: str, width: int) -> str:
    """Shortens a text to a width of at most `width` characters. An ellipsis replaces the end."""
    if cell_len(text) <= width:
        return text
    cut = text[: width - 1]
    while cell_len(cut) >= width:
        cut = cut[:-1]
    return f"{cut}…"


def _table_line(cells: Iterable[tuple[_Column, str, Paint | None]]) -> str:
    padded = []
    for column, text, paint in cells:
        space = " " * (column.width - cell_len(text))
        shown = text if paint is None else paint(column.name, text)
        padded.append(f"{space}{shown}" if column.is_numeric else f"{shown}{space}")
    return "  ".join(padded).rstrip() + "\n"


def _is_number(value: object) -> bool:
    return value is None or (
        isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    )


def _escaped_text(text: str) -> str:
    # Data must not steer the terminal, nor break the lines of a table.
    return (
        text
        if text.isprintable()
        else "".join(
            each if each.isprintable() or each == " " else repr(each)[1:-1] for each in text
        )
    )


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _time_text(value: datetime) -> str:
    return (
        value.isoformat()
        if value.tzinfo is None
        else value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
    )
