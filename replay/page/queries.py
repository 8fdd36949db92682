"""Answers a query that a person types on the page: with rows and a chart, or with a CSV file.

A confined process, the sandbox, answers the query in the same way as a query over the API. The page
draws a chart if the first column contains times or numbers (lines), or unique names (bars), and all
other columns contain numbers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import quoted
from kappa.declare.board import ChartKind
from kappa.declare.options import REJECTS
from kappa.replay.page.boards import (
    Drawn,
    DrawnBars,
    DrawnRows,
    draw_answer,
    has_order,
    typed_rows,
)
from kappa.replay.page.table import typed_name
from kappa.replay.page.table_rows import TIMES
from kappa.serving.access.roles import Identity
from kappa.serving.http.app_state import Stand
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.table_sql import schema_of, type_text
from kappa.serving.query.sandbox.question import Format, Question, Reply
from kappa.serving.query.tables import ServedTable

# Rows that a chart takes; of these so many rows and cells are shown in the table.
_MOST_ROWS = 1_000
_SHOWN_ROWS = 200
_SHOWN_CELLS = 20_000
_LEAST_SHOWN_ROWS = 10
_MOST_BARS = 50
# The list of tables beside a query; the page of tables has all.
_LISTED_TABLES = 200
_LISTED_COLUMNS = 50
# Types of columns whose values name amounts, and of amounts.
_NAMES = re.compile("varchar|enum|bool", re.IGNORECASE)
_AMOUNTS = re.compile(r"u?(tiny|small|big|huge)?int(eger)?|double|decimal.*", re.IGNORECASE)
# A name in the message of an error that does not exist, and the name that the hint suggests.
_UNKNOWN = re.compile(
    r'there is no table ([\w.]+)$|column (?:named )?"(\w+)"|with name (\w+) does not exist'
)
# The word at which DuckDB's parser gives up.
_NEAR = re.compile(r'at or near "([^"]+)"')
_MEANT = re.compile(r'did you mean ("\w+"|[\w.]+)')
# Longer queries are sent as a form, and not in an address.
LONGEST_IN_ADDRESS = 2_000


@dataclass(frozen=True, slots=True)
class PersonsAnswer:
    """The answer to a query that a person has typed.

    `count` is the number of rows in the answer, and `more` is True if the query would return more
    rows. `shown` contains the first rows of the answer, in the order of the chart. `drawn` is a
    chart of lines or bars, or None if the rows fit neither kind of chart.
    """

    count: int
    more: bool
    shown: DrawnRows
    drawn: Drawn | None
    generation: int
    as_of: str
    milliseconds: int


def answer_person(stand: Stand, sql: str, client: Client, reader: Identity) -> PersonsAnswer:
    """Answers a query that a person has typed.

    Raises the errors of `Sandbox`, which runs the query in a confined process.
    """
    begun = time.monotonic()
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(sql, rows=_MOST_ROWS, reader=reader, names=True),
        lease_seconds=stand.lease_seconds,
        client=client,
    )
    with reply.body as body:
        answer = json.loads(body.read())
    drawn = draw_rows(answer, sql)
    rows = ordered_rows(typed_rows(answer), drawn, sql)
    most = max(_LEAST_SHOWN_ROWS, min(_SHOWN_ROWS, _SHOWN_CELLS // max(1, len(rows.columns))))
    return PersonsAnswer(
        len(rows.rows),
        bool(answer["truncated"]),
        DrawnRows(rows.columns, rows.rows[:most]),
        drawn,
        reply.snapshot.generation,
        _as_of(reply),
        round(1000 * (time.monotonic() - begun)),
    )


def _as_of(reply: Reply) -> str:
    served, read = reply.snapshot.serving, {pipeline for pipeline, _ in reply.named}
    times = (
        reply.snapshot.frontiers[build].published_at
        for pipeline, build in served.items()
        if pipeline in read
    )
    return min(times, default="")


def ordered_rows(rows: DrawnRows, drawn: Drawn | None, sql: str) -> DrawnRows:
    """Returns the rows of a query in the order of their chart. Pure.

    Rows without a chart, and rows that the query `sql` has sorted, stay as they are.
    """
    if drawn is None or has_order(sql):
        return rows
    if isinstance(drawn, DrawnBars):
        return DrawnRows(rows.columns, tuple((each.label, each.value) for each in drawn.bars))
    # Null and infinite times have no place in a line, and nothing to be compared with.
    with suppress(TypeError, ArithmeticError):
        return DrawnRows(rows.columns, tuple(sorted(rows.rows, key=itemgetter(0))))
    return rows


@dataclass(frozen=True, slots=True)
class QueryLink:
    """A link to the query `sql`, with its text, and the kind of chart that fits its answer."""

    text: str
    sql: str
    kind: ChartKind = ChartKind.TABLE

    @property
    def title(self) -> str:
        """Returns the text, beginning with a capital letter."""
        return f"{self.text[:1].upper()}{self.text[1:]}"

    @property
    def address(self) -> str:
        """Returns the address of the page with the query and its answer."""
        return _query_address(self.sql)


def marked_query(sql: str, error: KappaError) -> tuple[tuple[str, bool], ...]:
    """Splits a query into parts, each with True if the `error` is about this part. Pure.

    Returns () if the error names no place in the query, or if the query is long.
    """
    near = _NEAR.search(error.message)
    name = near[1] if near else _unknown_name(error)
    found = [
        each.span()
        for each in (_places_of(name).finditer(sql) if name else ())
        if not each[0].startswith("'")
    ]
    # The parser gives up at one place, and its message does not tell which of several.
    if not found or (near and len(found) > 1) or len(sql) > LONGEST_IN_ADDRESS:
        return ()
    parts, begin = list[tuple[str, bool]](), 0
    for first, end in found:
        parts += [(sql[begin:first], False), (sql[first:end], True)]
        begin = end
    return (*parts, (sql[begin:], False))


def _unknown_name(error: KappaError) -> str:
    found = _UNKNOWN.search(error.message)
    return "" if found is None else next(filter(None, found.groups()))


def _places_of(name: str) -> re.Pattern[str]:
    """Returns a pattern for a name in a query. The pattern also finds texts in single quotes."""
    return re.compile(
        rf"""'(?:[^']|'')*'|(?<![\w"])"?{re.escape(name)}"?(?![\w"])""", re.IGNORECASE
    )


def mended_query(sql: str, error: KappaError) -> QueryLink | None:
    """Returns a link to a query without its wrong name, or None if nothing is suggested. Pure.

    The text of the link is the name that the hint of the `error` suggests. This name replaces the
    unknown name everywhere except in texts.
    """
    unknown, meant = _unknown_name(error), _MEANT.search(error.hint)
    if not unknown or meant is None:
        return None
    name = meant[1]
    mended = _places_of(unknown).sub(
        lambda found: found[0] if found[0].startswith("'") else name, sql
    )
    if mended == sql or len(mended) > LONGEST_IN_ADDRESS:
        return None
    return QueryLink(name.strip('"'), mended)


def sample_queries(tables: Iterable[ServedTable]) -> tuple[QueryLink, ...]:
    """Returns links to some queries of a project's own table, preferably one with times. Pure."""

    def first(of: ServedTable, kind: re.Pattern[str]) -> str:
        return next((name for name, each in of.columns if kind.fullmatch(each)), "")

    found = [each for each in tables if each.name != REJECTS and not each.broken]
    if not found:
        return ()
    table = next((each for each in found if first(each, TIMES) and first(each, _AMOUNTS)), found[0])
    of, time, amount = _name_in_sql(table), first(table, TIMES), first(table, _AMOUNTS)
    name = first(table, _NAMES)
    newest = f"\norder by {quoted(time)} desc nulls last" if time else ""
    rows = f"{'the newest ' if time else ''}rows of {table.name}"
    return (
        QueryLink(rows, f"from {of}{newest}\nlimit 100"),
        *(
            QueryLink(
                f"{amount} by {each}",
                f"select {quoted(each)}, sum({quoted(amount)}) as {quoted(amount)}\nfrom {of}\n"
                f"group by all\norder by {order} desc nulls last\nlimit 100",
                kind,
            )
            for each, order, kind in ((name, 2, ChartKind.BARS), (time, 1, ChartKind.LINE))
            if each and amount
        ),
    )


def draw_rows(answer: Mapping[str, Any], sql: str) -> Drawn | None:
    """Draws the answer to the query `sql` as lines or bars, or returns None if neither fits. Pure.

    Lines are drawn for a series over times or numbers, and bars for amounts by name.
    """
    columns, rows = answer["columns"], answer["rows"]
    if len(rows) < 2:
        return None
    with suppress(UsageError):
        return draw_answer(ChartKind.LINE, answer, sql)[0]
    labels = [row[columns[0]["name"]] for row in rows]
    if _NAMES.match(columns[0]["type"]) and len({*labels}) == len(labels) <= _MOST_BARS:
        with suppress(UsageError):
            return draw_answer(ChartKind.BARS, answer, sql)[0]
    return None


@dataclass(frozen=True, slots=True)
class QueriedColumn:
    """A column in the list beside the query.

    `address` is the address of a page with a query for the column's values.
    """

    name: str
    kind: str
    address: str


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A table in the list beside the query. `more` is the number of columns that are left out."""

    name: str
    pipeline: str
    kind: str
    address: str
    columns: tuple[QueriedColumn, ...]
    more: int


def queried_tables(tables: Iterable[ServedTable]) -> tuple[QueriedTable, ...]:
    """Lists the tables beside the query, without the tables of rejects. Pure.

    Each table and each column has the address of a query for its rows or values. At most 200
    tables, and 50 columns of a table, are listed.
    """
    return tuple(
        QueriedTable(
            each.name,
            each.pipeline,
            each.kind,
            _query_address(f"from {_name_in_sql(each)} limit 100"),
            tuple(
                QueriedColumn(
                    column,
                    type_text(kind),
                    _query_address(
                        f"select {quoted(column)}, count(*) as rows\nfrom {_name_in_sql(each)}\n"
                        "group by all\norder by rows desc\nlimit 100"
                    ),
                )
                for column, kind in each.columns[:_LISTED_COLUMNS]
            ),
            max(0, len(each.columns) - _LISTED_COLUMNS),
        )
        for each in islice((each for each in tables if each.name != REJECTS), _LISTED_TABLES)
    )


def _name_in_sql(table: ServedTable) -> str:
    return typed_name(table, f"{quoted(schema_of(table.pipeline))}.{quoted(table.name)}")


def _query_address(sql: str) -> str:
    return f"/query?sql={quote(sql)}"


def csv_answer(stand: Stand, sql: str, client: Client, reader: Identity) -> bytes:
    """Answers a query as CSV, within the limits that apply to all queries over HTTP.

    Raises the errors of `Sandbox`, which runs the query in a confined process.
    """
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(sql, Format.CSV, reader=reader),
        lease_seconds=stand.lease_seconds,
        client=client,
    )
    with reply.body as body:
        return body.read()
