"""The answer to a query that a person types on the page: rows and a chart, or a CSV file.

The sandbox answers the query in the same way as a query over the API. A chart is drawn if the rows
are a series over times or numbers, or amounts by name.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.board import ChartKind
from kappa.replay.page.boards import Drawn, DrawnRows, draw_answer, typed_rows
from kappa.serving.access.roles import Identity
from kappa.serving.http.app_state import Stand
from kappa.serving.query.reader.client import Client
from kappa.serving.query.sandbox.question import Format, Question

# Rows that a chart takes; of these so many rows and cells are shown in the table.
_MOST_ROWS = 1_000
_SHOWN_ROWS = 200
_SHOWN_CELLS = 20_000
_LEAST_SHOWN_ROWS = 10
_MOST_BARS = 50
# Types of columns whose values name amounts.
_NAMES = re.compile("varchar|enum|bool", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PersonsAnswer:
    """The answer to a query that a person has typed.

    `count` is the number of rows in the answer, and `more` is True if the query has more rows.
    `shown` has the first rows of the answer. `drawn` is a chart of lines or bars, or None if the
    rows fit neither chart.
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
        draw_rows(answer),
        reply.snapshot.generation,
        round(1000 * (time.monotonic() - begun)),
    )


def draw_rows(answer: Mapping[str, Any]) -> Drawn | None:
    """Draws an answer as lines or as bars, or returns None if neither is possible. Pure.

    Lines are drawn for a series over times or numbers, and bars for amounts by name.
    """
    columns, rows = answer["columns"], answer["rows"]
    if len(rows) < 2:
        return None
    with suppress(UsageError):
        return draw_answer(ChartKind.LINE, answer)[0]
    labels = [row[columns[0]["name"]] for row in rows]
    if _NAMES.match(columns[0]["type"]) and len({*labels}) == len(labels) <= _MOST_BARS:
        with suppress(UsageError):
            return draw_answer(ChartKind.BARS, answer)[0]
    return None


def csv_answer(stand: Stand, sql: str, client: Client, reader: Identity) -> bytes:
    """Answers a query as CSV, within the limits of every query. Raises the sandbox's errors."""
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(sql, Format.CSV, reader=reader),
        lease_seconds=stand.lease_seconds,
        client=client,
    )
    with reply.body as body:
        return body.read()
