"""Answers a query that a person types on the page: with rows and a chart, or with a CSV file.

The sandbox answers the query in the same way as a query over the API. A chart is drawn if the first
column contains times or numbers (lines), or unique names (bars), and the other columns contain
numbers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import quote

from kappa.base.errors import UsageError
from kappa.base.sql import quoted
from kappa.declare.board import ChartKind
from kappa.declare.options import REJECTS
from kappa.replay.page.boards import Drawn, DrawnRows, draw_answer, typed_rows
from kappa.replay.page.table import typed_name
from kappa.serving.access.roles import Identity
from kappa.serving.http.app_state import Stand
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.sandbox.question import Format, Question
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
# Types of columns whose values name amounts.
_NAMES = re.compile("varchar|enum|bool", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PersonsAnswer:
    """The answer to a query that a person has typed.

    `count` is the number of rows in the answer, and `more` is True if the query returns more rows
    than that. `shown` contains the first rows of the answer. `drawn` is a chart of lines or bars,
    or None if the rows fit neither chart.
    """

    count: int
    more: bool
    shown: DrawnRows
    drawn: Drawn | None
    generation: int
    milliseconds: int


def answer_person(stand: Stand, sql: str, client: Client, reader: Identity) -> PersonsAnswer:
    """Answers a query that a person has typed. Raises the errors of the sandbox."""
    begun = time.monotonic()
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(sql, rows=_MOST_ROWS, reader=reader),
        lease_seconds=stand.lease_seconds,
        client=client,
    )
    with reply.body as body:
        answer = json.loads(body.read())
    rows = typed_rows(answer)
    most = max(_LEAST_SHOWN_ROWS, min(_SHOWN_ROWS, _SHOWN_CELLS // max(1, len(rows.columns))))
    return PersonsAnswer(
        len(rows.rows),
        bool(answer["truncated"]),
        DrawnRows(rows.columns, rows.rows[:most]),
        draw_rows(answer, sql),
        reply.snapshot.generation,
        round(1000 * (time.monotonic() - begun)),
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
    """A column in the list beside the query, with the address of a query for its values."""

    name: str
    kind: str
    address: str


@dataclass(frozen=True, slots=True)
class QueriedTable:
    """A table in the list beside the query. `more` is the number of columns that are left out."""

    name: str
    pipeline: str
    address: str
    columns: tuple[QueriedColumn, ...]
    more: int


def queried_tables(tables: Iterable[ServedTable]) -> tuple[QueriedTable, ...]:
    """Lists tables, without the rejects, with addresses of queries for rows and values. Pure.

    At most 200 tables, and 50 columns of a table, are listed.
    """
    return tuple(
        QueriedTable(
            each.name,
            each.pipeline,
            _query_address(f"from {_name_in_sql(each)} limit 100"),
            tuple(
                QueriedColumn(
                    column,
                    kind,
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

    Raises the errors of the sandbox.
    """
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(sql, Format.CSV, reader=reader),
        lease_seconds=stand.lease_seconds,
        client=client,
    )
    with reply.body as body:
        return body.read()
