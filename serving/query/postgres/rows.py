"""Formats the rows of a query as messages for Postgres clients, and finds their types.

The worker, the process that runs a query, writes complete messages, and the server passes the
messages on. So the server never parses a value. A row is a `DataRow` message, or a `CopyData`
message for `COPY`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from kappa.base.duck import Connection
from kappa.base.errors import UsageError
from kappa.base.sql import text
from kappa.declare.values.exact_sql import DuckType
from kappa.serving.query.postgres.placeholders import fill_placeholders, placeholders_in
from kappa.serving.query.postgres.wire_types import WireColumn, wire_column, wire_type

_ROWS_AT_ONCE = 256
# As Postgres bounds them.
_MOST_COLUMNS = 1664
# The letter and the length of a message.
_HEAD = 5
_NULL = b"\xff\xff\xff\xff"
_COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END = b"\xff\xff"
# DuckDB's names of a parameter's type that nothing in the query decides.
_UNDECIDED = frozenset({"UNKNOWN", "NULL", '"NULL"', "INVALID", "ANY"})


class Pieces(Protocol):
    """An output to the server that accepts bytes up to a limit."""

    def can_write(self, count: int) -> bool:
        """Returns True if `count` more bytes may be written."""

    def write(self, content: Any) -> int:
        """Sends bytes to the server, and returns the number of bytes."""


Line = Callable[[tuple[Any, ...]], bytes]


def write_rows(
    connection: Connection, sql: str, request: Mapping[str, Any], pieces: Pieces
) -> Mapping[str, Any]:
    """Writes the rows of a query as messages of the Postgres protocol.

    Returns the columns, the number of rows, and whether rows were left out because of the limit on
    rows or bytes.
    """
    wire = request["wire"]
    copy = wire["copy"]
    relation = connection.query(sql)
    names, kinds = list(relation.columns), list(relation.types)
    described = _described(names, kinds)
    binary = _are_binary(wire["formats"], len(names), copy)
    # The answer's own names are no parts of the expressions: columns may have one name twice.
    columns = [
        wire_column(f"_answer._{place}", kind, name, binary=is_binary)
        for place, (name, kind, is_binary) in enumerate(zip(names, kinds, binary, strict=True))
    ]
    given = ", ".join(f"_{place}" for place in range(len(names)))
    selected = ", ".join(each.sql for each in columns)
    # On a line of its own, so that a comment at the query's end comments out nothing of ours.
    result = connection.execute(f"select {selected} from (\n{sql}\n) as _answer({given})")
    line = _line_of(columns, copy)
    if copy is not None and copy["header"]:
        pieces.write(line(tuple(names)))
    # As Postgres does, in one message with what follows.
    prefix = _COPY_HEAD if copy is not None and copy["form"] == "binary" else b""
    count, truncated = 0, False
    for row in _each_row(result):
        content = line(row)
        if count == request["rows"] or not pieces.can_write(len(content)):
            truncated = True
            break
        if prefix:
            content, prefix = _copied(prefix + content[_HEAD:]), b""
        pieces.write(content)
        count += 1
    if copy is not None and copy["form"] == "binary":
        pieces.write(_copied(prefix + _COPY_END))
    return {"columns": described, "rows": count, "truncated": truncated}


def write_description(connection: Connection, sql: str, pieces: Pieces) -> Mapping[str, Any]:
    """Writes the types of a query's parameters, and returns the query's columns.

    The types are written as a JSON object that maps the number of a parameter to DuckDB's name of
    the type. A parameter whose type the query does not determine is text. The result has the form
    of an answer without rows.
    """
    parameters: dict[int, str] = {}
    if numbers := placeholders_in(sql):
        # A parameter would make DuckDB import pandas.
        plan = connection.execute(f"select json_serialize_plan({text(sql)})").fetchall()
        found = dict(_parameters_of(json.loads(plan[0][0])))
        parameters = {number: found.get(number, "varchar") for number in numbers}
        sql = fill_placeholders(
            sql, {number: f"cast(null as {kind})" for number, kind in parameters.items()}
        )
    relation = connection.query(sql)
    pieces.write(json.dumps(parameters).encode())
    columns = _described(list(relation.columns), list(relation.types))
    return {"columns": columns, "rows": 0, "truncated": False}


def _parameters_of(plan: Any) -> Iterator[tuple[int, str]]:
    """Yields the number of each parameter in a query's plan, with DuckDB's name of its type."""
    match plan:
        case {
            "expression_class": "BOUND_PARAMETER",
            "identifier": str(number),
            "return_type": kind,
        }:
            if number.isdecimal() and (name := _type_name(kind)):
                yield int(number), name
        case dict():
            for each in plan.values():
                yield from _parameters_of(each)
        case list():
            for each in plan:
                yield from _parameters_of(each)


def _type_name(kind: Mapping[str, Any]) -> str:
    """Returns DuckDB's name of a type in a query's plan.

    Returns '' if the query does not determine the type.
    """
    name, parts = str(kind["id"]), kind.get("type_info") or {}
    if name in _UNDECIDED:
        return ""
    if name == "DECIMAL" and "width" in parts:
        return f"decimal({parts['width']}, {parts['scale']})"
    if name == "LIST" and "child_type" in parts:
        return f"{_type_name(parts['child_type']) or 'varchar'}[]"
    return name.lower()


def _described(names: Sequence[str], kinds: Sequence[DuckType]) -> list[Mapping[str, Any]]:
    """Returns the name, DuckDB's type and the Postgres type of each column of an answer.

    Raises UsageError if there are too many columns.
    """
    if len(names) > _MOST_COLUMNS:
        raise UsageError(
            f"the answer has {len(names):,} columns, and Postgres has {_MOST_COLUMNS:,} at most",
            hint="select fewer columns, or several values as a list",
        )
    return [
        {"name": name, "type": str(kind), "wire": wire_type(kind)}
        for name, kind in zip(names, kinds, strict=True)
    ]


def _are_binary(formats: Sequence[int], count: int, copy: Any) -> list[bool]:
    if copy is not None:
        return [copy["form"] == "binary"] * count
    if len(formats) <= 1:
        return [bool(formats and formats[0])] * count
    return [bool(each) for each in [*formats, *[0] * count][:count]]


def _each_row(result: Connection) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _line_of(columns: Sequence[WireColumn], copy: Any) -> Line:
    """Returns the function that formats a row as a message of the Postgres protocol.

    `copy` contains the options of `COPY`, or is None for a query.
    """
    packers = [each.pack for each in columns]
    if copy is None or copy["form"] == "binary":
        return _framed(packers, b"D" if copy is None else b"d")
    written = _csv_cell if copy["form"] == "csv" else _text_cell
    cell = written(copy["delimiter"], copy["null"])

    def copied_line(row: tuple[Any, ...]) -> bytes:
        return _copied((copy["delimiter"].join(map(cell, row)) + "\n").encode(errors="replace"))

    return copied_line


def _framed(packers: Sequence[Callable[[Any], bytes]], kind: bytes) -> Line:
    count = struct.pack("!h", len(packers))

    def message(row: tuple[Any, ...]) -> bytes:
        parts = [count]
        for value, pack in zip(row, packers, strict=True):
            if value is None:
                parts.append(_NULL)
            else:
                content = pack(value)
                parts += (len(content).to_bytes(4, "big"), content)
        body = b"".join(parts)
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    return message


def _copied(content: bytes) -> bytes:
    return b"d" + (len(content) + 4).to_bytes(4, "big") + content


def _text_cell(delimiter: str, null: str) -> Callable[[Any], str]:
    escapes = str.maketrans(
        {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", delimiter: "\\" + delimiter}
        | ({"\t": "\\t"} if delimiter == "\t" else {})
    )
    return lambda value: null if value is None else str(value).translate(escapes)


def _csv_cell(delimiter: str, null: str) -> Callable[[Any], str]:
    marks = (delimiter, '"', "\n", "\r")

    def cell(value: Any) -> str:
        if value is None:
            return null
        content = str(value)
        if content == null or any(mark in content for mark in marks):
            return '"' + content.replace('"', '""') + '"'
        return content

    return cell
