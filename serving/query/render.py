"""The text of values: a table for people, JSON and CSV for machines. Pure.

docs/reference/values.md has the text of each DuckDB type in each form. Values that Python lacks
come as text already (kappa/declare/values/exact_sql.py); all other values are written here.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any

from rich.cells import cell_len


class Form(StrEnum):
    """The format in which a reading command prints."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows under named columns.

    `wide` columns are for machines: JSON and CSV have these columns, and the table leaves them out.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    wide: frozenset[str] = frozenset()

    def row_objects(self) -> list[dict[str, Any]]:
        """Returns each row as an object."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def render_listing(
    form: Form, listing: Listing, *, document: object = None, heading: str = ""
) -> str:
    """Renders a listing in a form, with a line end at the end.

    JSON is made of `document`, which has more than the rows, if a document is given. The table has
    `heading` above the columns.
    """
    match form:
        case Form.JSON:
            return to_json(listing.row_objects() if document is None else document) + "\n"
        case Form.JSONL:
            return "".join(object_line(listing.columns, row) for row in listing.rows)
        case Form.CSV:
            return "".join(_csv_lines(listing))
        case Form.TABLE:
            return (f"{heading}\n" if heading else "") + "".join(_table_lines(listing))


def to_json(document: object) -> str:
    """Renders a value as JSON, with a line for each element at the top."""
    return json.dumps(
        json_value(document),
        ensure_ascii=False,
        indent=2 if isinstance(document, Mapping | list) else None,
        allow_nan=False,
    )


def object_line(names: Iterable[str], row: Iterable[object]) -> str:
    """Renders a row as a JSON object on a line, with a line end."""
    document = json_value(dict(zip(names, row, strict=True)))
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def json_value(value: object) -> object:
    """Returns a value in JSON's types."""
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
    """Renders a value for a cell of a table."""
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
    """Escapes what would steer a terminal in a text of several lines.

    A message may quote data.
    """
    return "\n".join(map(_escaped_text, text.split("\n")))


def _csv_lines(listing: Listing) -> Iterator[str]:
    yield csv_line(listing.columns)
    for row in listing.rows:
        yield csv_line(row)


def columns_of(names: Iterable[str], types: Iterable[str]) -> list[dict[str, str]]:
    """Describes the columns of an answer: a name and DuckDB's type each."""
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
    """Returns the text of a value; a value with parts is JSON on a single line."""
    shown = json_value(value)
    return (
        shown
        if isinstance(shown, str)
        else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    )


def render_expanded(listing: Listing) -> str:
    """Renders each row as lines of a column and its value, below a line with the row's number."""
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


def _table_lines(listing: Listing) -> Iterator[str]:
    shown = [place for place, column in enumerate(listing.columns) if column not in listing.wide]
    heads = [_escaped_text(listing.columns[place]) for place in shown]
    body = [[cell_text(row[place]) for place in shown] for row in listing.rows]
    widths = [max(cell_len(each) for each in column) for column in zip(heads, *body, strict=True)]
    numeric = [
        bool(listing.rows) and all(_is_number(row[place]) for row in listing.rows)
        for place in shown
    ]
    yield _table_line(heads, widths, numeric)
    yield _table_line(["─" * width for width in widths], widths, numeric)
    for cells in body:
        yield _table_line(cells, widths, numeric)


def _table_line(cells: Sequence[str], widths: Sequence[int], numeric: Iterable[bool]) -> str:
    padded = (
        " " * (width - cell_len(each)) + each if right else each + " " * (width - cell_len(each))
        for each, width, right in zip(cells, widths, numeric, strict=True)
    )
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
