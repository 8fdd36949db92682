"""Queries the rows of a table or view in pages, in a chosen order, and with a filter.

A confined process, the sandbox, runs the queries within the limits that apply to all queries over
HTTP. Rows are counted only up to a limit, and a person can reach only so many rows by turning
pages. In a table with millions of rows, people sort, filter or type a query instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import urlencode

from kappa.base.errors import UsageError, near_or_all
from kappa.base.sql import quoted, text
from kappa.replay.page.boards import DrawnRows, typed_rows
from kappa.serving.http.app_state import Stand
from kappa.serving.query.reader.client import Client
from kappa.serving.query.sandbox.question import Question

# Rows of a page; fewer of a table with very many columns.
_ROWS, _CELLS, _LEAST_ROWS = 50, 20_000, 10
# So many rows are counted, and can be reached by turning pages.
_MOST = 10_000
# Larger tables are sorted only if somebody asks for an order.
_MOST_SORTED = 1_000_000
# A time as the page writes it, and a time of today.
_ZONE = " UTC"
_CLOCK = re.compile(r"\d{2}:\d{2}(:\d{2}(\.\d+)?)?")
TIMES = re.compile(r"timestamp(_\w+| with time zone)?|date", re.IGNORECASE)


class Match(StrEnum):
    """The way in which a filter compares a column with a text."""

    IS = "is"
    CONTAINS = "contains"
    AT_LEAST = "at least"
    AT_MOST = "at most"


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A request for rows: the order, the filter and the number of the page.

    `order` is a column, or "" for the default order of the table. The filter compares `column` with
    the text `value`. If `column` or `value` is "", there is no filter.
    """

    order: str = ""
    down: bool = False
    column: str = ""
    match: Match = Match.IS
    value: str = ""
    page: int = 1

    @classmethod
    def of(cls, given: Mapping[str, str]) -> RowsRequest:
        """Parses the query parameters of an address. Defaults replace invalid parameters."""
        page, match = given.get("page", ""), given.get("match", "")
        return cls(
            given.get("order", ""),
            given.get("down", "") == "1",
            given.get("column", ""),
            Match(match) if match in {*Match} else Match.IS,
            given.get("value", "").strip(),
            max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 6 else 1,
        )

    @property
    def has_filter(self) -> bool:
        """Returns True if the request has a filter."""
        return bool(self.column and self.value)

    @property
    def address(self) -> str:
        """Returns the link to the requested rows, relative to the page of the table."""
        given = {
            "order": self.order,
            "down": "1" if self.order and self.down else "",
            **(
                {"column": self.column, "match": self.match, "value": self.value}
                if self.has_filter
                else {}
            ),
            "page": self.page if self.page > 1 else "",
        }
        return f"?{urlencode({name: each for name, each in given.items() if each})}#rows"

    @property
    def unfiltered(self) -> RowsRequest:
        """Returns the request for the first page of all rows, unfiltered, in the same order."""
        return replace(self, column="", value="", page=1)

    def turned(self, page: int) -> RowsRequest:
        """Returns the request for page number `page` of the same rows."""
        return replace(self, page=page)

    def sorted_by(self, column: str) -> RowsRequest:
        """Returns the request that follows a click on the header of a column.

        The first click sorts ascending, the second descending, and the third restores the default
        order.
        """
        if self.order != column:
            return replace(self, order=column, down=False, page=1)
        return (
            replace(self, order="", down=False, page=1)
            if self.down
            else replace(self, down=True, page=1)
        )


@dataclass(frozen=True, slots=True)
class RowsPage:
    """A page of rows. Pages and rows are numbered from 1.

    `number` is the number of the page, `first` the number of its first row, and `last` the number
    of the last page that is available. `count` is the number of all requested rows, or None if
    there are too many to count. `query` is SQL for the same rows.
    """

    rows: DrawnRows
    number: int
    first: int
    count: int | None
    last: int
    query: str
    request: RowsRequest
    is_by_time: bool

    @property
    def order_text(self) -> str:
        """Returns a text with the order of the rows, such as `, by minute, newest first`, or ""."""
        order = self.request.order
        if not order or not self.request.down:
            return f", by {order}" if order else ""
        return f", by {order}, {'newest' if self.is_by_time else 'largest'} first"

    @property
    def most(self) -> int:
        """Returns the maximum number of rows that can be reached by turning pages."""
        return _MOST

    @property
    def is_all(self) -> bool:
        """Returns True if all requested rows can be reached by turning pages."""
        return self.count is not None and self.count <= _MOST

    @property
    def next_rows(self) -> str:
        """Returns the place of the next page's rows: `51 to 100`."""
        size = len(self.rows.rows)
        first = self.first + size
        until = min(first + size - 1, _MOST if self.count is None else self.count)
        return f"{first:,} to {until:,}"

    def place_of(self, count: int) -> str:
        """Returns a text with the place of the page's first rows: `Rows 1 to 50 of 1,234`.

        `count` is the number of these rows.
        """
        until = self.first + count - 1
        whole = f"more than {_MOST:,}" if self.count is None else f"{self.count:,}"
        return f"Rows {self.first:,} to {until:,} of {whole}"


def ensure_columns(wanted: RowsRequest, columns: Mapping[str, str]) -> None:
    """Raises UsageError if the order or filter names a column that is not in `columns`. Pure."""
    for column in (wanted.order, wanted.column if wanted.has_filter else ""):
        if column and column not in columns:
            raise UsageError(
                f"there is no column {column[:80]}", hint=near_or_all(column[:80], tuple(columns))
            )


def default_order(columns: Mapping[str, str], keys: Sequence[str]) -> RowsRequest:
    """Returns a request with the order that a table has by default. Pure.

    The newest rows come first if the table has times; the time is a key, or else the last column
    with times. A table without times is sorted by its first key. A view without times is not
    sorted. `columns` maps each column to its DuckDB type.
    """
    times = [column for column, kind in columns.items() if TIMES.fullmatch(kind)]
    if times:
        return RowsRequest(next((each for each in times if each in keys), times[-1]), down=True)
    return RowsRequest(keys[0] if keys else "")


def with_day(wanted: RowsRequest, columns: Mapping[str, str], now: datetime) -> RowsRequest:
    """Adds the day of `now` to a filter that compares a time with a time of day. Pure.

    The page shows times of today without the day.
    """
    is_time = wanted.has_filter and columns[wanted.column].upper().startswith("TIMESTAMP")
    if is_time and wanted.match is not Match.CONTAINS and _CLOCK.fullmatch(wanted.value):
        return replace(wanted, value=f"{now.astimezone(UTC):%Y-%m-%d} {wanted.value}")
    return wanted


def filter_sql(wanted: RowsRequest, columns: Mapping[str, str]) -> str:
    """Returns the `where` clause of a request, or "" if the request has no filter. Pure.

    `columns` maps each column to its DuckDB type.
    """
    return f"\nwhere {_condition(wanted, columns[wanted.column])}" if wanted.has_filter else ""


def order_sql(wanted: RowsRequest, keys: Sequence[str]) -> str:
    """Returns the `order by` clause of a request, or "" if it has no order. Pure.

    Rows that are equal in the requested column are sorted by the keys, so that each row is on one
    page.
    """
    if not wanted.order:
        return ""
    way = " desc" if wanted.down else ""
    others = "".join(f", {quoted(each)}" for each in keys if each != wanted.order)
    return f"\norder by {quoted(wanted.order)}{way} nulls last{others}"


def _condition(wanted: RowsRequest, kind: str) -> str:
    column, value = quoted(wanted.column), wanted.value
    if wanted.match is Match.CONTAINS:
        return f"contains(lower({column}::varchar), lower({text(value)}))"
    if kind.upper().startswith("TIMESTAMP") and value.endswith(_ZONE):
        value = f"{value.removesuffix(_ZONE)}Z"
    sign = {Match.IS: "=", Match.AT_LEAST: ">=", Match.AT_MOST: "<="}[wanted.match]
    return f"{column} {sign} cast({text(value)} as {kind})"


def ask_rows(
    stand: Stand,
    wanted: RowsRequest,
    typed: str,
    whole: str,
    columns: Mapping[str, str],
    keys: Sequence[str],
    known: int | None,
    client: Client,
) -> RowsPage:
    """Queries the requested page of the rows of a table or view.

    `whole` is the quoted name of the table with its schema, and `typed` is the name that people
    type. `columns` maps each column to its DuckDB type. `known` is the number of all rows, or None
    if unknown. Raises UsageError if the request names an unknown column. Raises the errors of
    `Sandbox`, which runs the queries in a confined process.
    """

    def ask(sql: str) -> DrawnRows:
        reply = stand.sandbox.ask_query(
            stand.store, Question(sql), lease_seconds=stand.lease_seconds, client=client
        )
        with reply.body as body:
            return typed_rows(json.loads(body.read()))

    ensure_columns(wanted, columns)
    keys = [each for each in keys if each in columns]
    wanted = with_day(wanted, columns, datetime.now(UTC))
    if not wanted.order and (known is None or known <= _MOST_SORTED):
        default = default_order(columns, keys)
        wanted = replace(wanted, order=default.order, down=default.down)
    size = max(_LEAST_ROWS, min(_ROWS, _CELLS // max(1, len(columns))))
    where, count = filter_sql(wanted, columns), known
    if wanted.has_filter or count is None:
        some = f"select 1 from {whole}{where}\nlimit {_MOST + 1}"
        ((counted,),) = ask(f"select count(*) from ({some})").rows
        count = counted if isinstance(counted, int) and counted <= _MOST else None
    last = max(1, -(-min(_MOST, _MOST if count is None else count) // size))
    page = min(wanted.page, last)
    rest, first = f"{where}{order_sql(wanted, keys)}", (page - 1) * size
    found = ask(f"from {whole}{rest}\nlimit {size} offset {first}")
    query = f"select *\nfrom {typed}{rest}\nlimit 100"
    by_time = bool(TIMES.fullmatch(columns.get(wanted.order, "")))
    return RowsPage(found, page, first + 1, count, last, query, wanted, by_time)
