"""Runs the queries of a board's charts on one pinned snapshot, and draws the answers.

An answer is the JSON document that the HTTP API returns for a query: the names and DuckDB types of
the columns, and the rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

from kappa.base.errors import KappaError, UsageError
from kappa.base.sql import quoted, text
from kappa.declare.board import Board, Chart, ChartKind
from kappa.serving.access.roles import THIS_MACHINE, Identity, TableGrant
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot
from kappa.serving.query.reader.client import Client
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.sandbox.question import Question
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.build import Birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.store import Store

# Queries of a board at once. Other clients have the other places of the sandbox.
_AT_ONCE = 2
# A snapshot that was not kept until the end is taken anew.
_ATTEMPTS = 3
# Rows of a query that a chart takes.
MOST_ROWS = 1_000
# More bars, or more lines, nobody tells apart.
_MOST_BARS = 50
_MOST_LINES = 5
_ROWS_IN_SIGHT = 10
# Points of a curve in the list of boards.
_CURVE = 60
# The newest rows of a line are shown as a table, too.
_LAST_ROWS = 50
# Periods that begin at a multiple of their seconds.
_PERIODS = {60: "minute", 300: "5 minutes", 900: "15 minutes", 3_600: "hour", 86_400: "day"}
# Spark's types of times in a table's key.
_TIME_KEYS = frozenset({"timestamp", "timestamp_ntz", "date"})
# Times of microseconds; Python would cut nanoseconds.
_MOMENTS = re.compile("timestamp( with time zone)?|timestamp_m?s", re.IGNORECASE)
_TIMES = re.compile(r"(timestamp|date\b).*", re.IGNORECASE)
_NAMES = re.compile("varchar|enum.*|boolean", re.IGNORECASE | re.DOTALL)
# The begin of a query with common table expressions, up to the first of them.
_WITH = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*with\b(?:\s+recursive\b)?", re.IGNORECASE | re.DOTALL
)
# What follows the name of a common table expression.
_DEFINED = r'"?\s+as\s*(not\s+)?(materialized\s*)?\('
# A query with these words has an order of its own.
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_NUMBERS = re.compile(
    r"u?(tiny|small|big|huge)?int(eger)?|float|double|real|decimal\([\d, ]+\)", re.IGNORECASE
)


# Tables whose key is a time, by name in lower case: the quoted name of the table with its schema,
# the column with the time, and the Spark type of the column.
TimedTables = Mapping[str, tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class DrawnNumber:
    """A chart that shows a single value.

    If the query returns a second column, `beside` is the name and the value of this column,
    otherwise None. `unit` is the name that the query gives to the number, such as `hits`, or "".
    """

    value: object
    beside: tuple[str, object] | None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class DrawnBar:
    """One bar of a bar chart, with its label and its value.

    `begin` and `width` are in percent of the width of the chart.
    """

    label: object
    value: object
    begin: float
    width: float


@dataclass(frozen=True, slots=True)
class DrawnBars:
    """A bar chart.

    `columns` are the names of two columns: the label and the value. `zero` is the position of the
    value zero, in percent of the width of the chart.
    """

    columns: tuple[str, ...]
    bars: tuple[DrawnBar, ...]
    zero: float = 0.0


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """The rows that a query returned, for display as a table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]


@dataclass(frozen=True, slots=True)
class DrawnLines:
    """A line chart.

    `chart` has the form that the page's script expects. `last` contains the last rows that the
    query returned; the page shows these rows as a table, in addition to the lines.
    """

    chart: Mapping[str, Any]
    last: DrawnRows

    def open_period(self, at: datetime) -> str:
        """Returns the period of the last point ("minute") if the period has not ended at `at`.

        `at` is the time as of which the rows are. If the period has ended, and if the points are
        not at the beginnings of equal periods, the result is "".
        """
        x = self.chart["x"][-_LAST_ROWS:]
        if not self.chart["time"] or len(x) < 3:
            return ""
        step = min(after - before for before, after in pairwise(x))
        is_open = x[-1] <= at.timestamp() < x[-1] + step
        return _PERIODS.get(step, "") if is_open and not any(each % step for each in x) else ""


Drawn = DrawnNumber | DrawnBars | DrawnRows | DrawnLines


# Pipeline and name of a stored table, such as a maintained view.
Read = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ChartAnswer:
    """A chart with its drawing, or with the error `trouble` if its query failed.

    `note` is a sentence about rows that the page does not show, or "" if it shows all rows.
    """

    chart: Chart
    drawn: Drawn | None
    note: str = ""
    trouble: KappaError | None = None
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class BoardAnswer:
    """The answers of all charts of a board, from one pinned snapshot.

    `reads` are the stored tables that the queries read, as (pipeline, table). `frontiers` maps each
    pipeline of these tables to the frontier of the snapshot.
    """

    generation: int
    charts: tuple[ChartAnswer, ...]
    reads: tuple[Read, ...]
    frontiers: Mapping[str, Frontier]
    has_times: bool

    @property
    def as_of(self) -> str:
        """Returns the time as of which all rows are, or "" if the queries read no tables."""
        return min((each.published_at for each in self.frontiers.values()), default="")

    @property
    def curve(self) -> tuple[str, Sequence[float], float] | None:
        """Returns the title and the last values of the first line chart, or None if it has none.

        The last element is the time that these values cover in seconds, or 0 if the chart is not
        over times. The last value covers as much time as the others in the mean. Charts with a
        value below zero, or with a single value, are passed over.
        """
        for each in self.charts:
            if isinstance(each.drawn, DrawnLines):
                chart = each.drawn.chart
                x, values = chart["x"][-_CURVE:], chart["series"][0]["values"][-_CURVE:]
                values = [at or 0.0 for at in values]
                if (count := len(values)) > 1 and min(values) >= 0:
                    covered = (x[-1] - x[0]) * count / (count - 1) if chart["time"] else 0.0
                    return each.chart.title, values, covered
        return None

    @property
    def newest_at(self) -> datetime | None:
        """Returns the latest time on the time axes of all charts, or None if no chart has times."""
        newest = (
            each.drawn.chart["x"][-1]
            for each in self.charts
            if isinstance(each.drawn, DrawnLines) and each.drawn.chart["time"]
            if each.drawn.chart["x"]
        )
        with suppress(ValueError, OverflowError, OSError):
            return max((datetime.fromtimestamp(at, UTC) for at in newest), default=None)
        return None


def answer_board(
    store: Store,
    sandbox: Sandbox,
    board: Board,
    *,
    lease_seconds: float,
    client: Client | None = None,
    reader: Identity = THIS_MACHINE,
    since: datetime | None = None,
) -> BoardAnswer:
    """Answers all queries of a board from one snapshot, in the same way as queries over HTTP.

    If `since` is given, line charts over time begin at that time. If a query fails, or names a
    table that the `reader` may not read, only the chart of that query shows the error. If the lease
    on the snapshot ends too early, all queries run again on a new snapshot, and Conflict is raised
    after the last attempt. Raises ClientLeft if the `client` disconnects before the end.
    """
    attempt = 0
    while True:
        attempt += 1
        with pin_served(store, lease_seconds=lease_seconds) as pinned:
            timed = _times_of(pinned.snapshot)
            ranged = None if since is None else partial(ranged_sql, since=since, timed=timed)
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                charts = tuple(
                    pool.map(
                        partial(
                            _answer_chart, store, sandbox, pinned, client, reader, since, ranged
                        ),
                        board.charts,
                    )
                )
            if attempt == _ATTEMPTS:
                pinned.confirm_kept()
            if pinned.is_kept():
                return _board_answer(pinned.snapshot, board, charts, reader.tables, timed)


def is_behind(store: Store, answer: BoardAnswer) -> bool:
    """Returns True if newer rows can be read than the rows from which the answer was computed.

    This is the case if a pipeline has published a newer frontier than the frontier in the answer.
    """
    newest = (
        (frontier, Frontiers(store, frontier.build).newest())
        for frontier in answer.frontiers.values()
    )
    return any(last is not None and last.number > seen.number for seen, last in newest)


def _answer_chart(
    store: Store,
    sandbox: Sandbox,
    pinned: PinnedSnapshot,
    client: Client | None,
    reader: Identity,
    since: datetime | None,
    ranged: Callable[[str], str] | None,
    chart: Chart,
) -> ChartAnswer:
    def ask(sql: str) -> dict[str, Any]:
        reply = sandbox.ask_pinned(
            store, pinned, Question(sql, rows=MOST_ROWS, reader=reader), client=client
        )
        with reply.body as body:
            found: dict[str, Any] = json.loads(body.read())
            return found

    try:
        sql = chart.sql if ranged is None else ranged(chart.sql)
        answer, is_over_times = ask(sql), False
        if since is not None and chart.kind in {ChartKind.LINE, ChartKind.TABLE}:
            is_over_times = _is_over_times(answer)
        if since is not None and is_over_times:
            # The first thousand rows may all be older.
            answer = (
                ask(since_sql(sql, answer["columns"][0], since))
                if answer["truncated"]
                else rows_since(answer, since)
            )
        shown, note = draw_answer(chart.kind, answer, chart.sql)
    except KappaError as error:
        return ChartAnswer(chart, None, trouble=error)
    is_whole = since is not None and sql == chart.sql and not is_over_times
    return ChartAnswer(chart, shown, note, is_whole=is_whole)


def _is_over_times(answer: Mapping[str, Any]) -> bool:
    return bool(answer["columns"]) and bool(_TIMES.fullmatch(answer["columns"][0]["type"]))


def since_sql(sql: str, column: Mapping[str, str], since: datetime) -> str:
    """Wraps the query `sql` in SQL that selects only the rows at or after the time `since`. Pure.

    `column` is the name and the type of the query's first column, which contains the times.
    """
    value = _time_sql(since, has_zone="TIME ZONE" in column["type"].upper())
    # The query has its own lines: a comment at its end must not reach the bracket.
    return (
        f"select * from (\n{sql.rstrip().rstrip(';')}\n) where {quoted(column['name'])} >= {value}"
    )


def _time_sql(at: datetime, *, has_zone: bool) -> str:
    moment = text(at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"))
    return f"cast({moment} || '+00' as timestamptz)" if has_zone else f"cast({moment} as timestamp)"


def ranged_sql(sql: str, *, since: datetime, timed: TimedTables) -> str:
    """Limits the tables that a query names to their rows since a time.

    Only the tables in `timed` are limited. Returns the query unchanged if it names none of them.
    """
    with open_reader(None, served=True) as reader:
        named = reader.tables_named(sql)
    limited = list[str]()
    for schema, name in sorted(named):
        whole, column, kind = timed.get("" if schema else name.lower(), ("", "", ""))
        # A table that the query defines itself stays as it is.
        if whole and not re.search(rf"{re.escape(name)}{_DEFINED}", sql, re.IGNORECASE):
            value = _time_sql(since, has_zone=kind == "timestamp")
            limited.append(
                f"{quoted(name)} as (select * from {whole} where {quoted(column)} >= {value})"
            )
    if not limited:
        return sql
    begin = _WITH.match(sql)
    place = begin.end() if begin else 0
    return f"{sql[:place] or 'with'} {', '.join(limited)}{',' if begin else ''}\n{sql[place:]}"


def _times_of(snapshot: Snapshot) -> TimedTables:
    """Returns the served tables whose key is a time, except names that several pipelines serve."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for pipeline, build in snapshot.serving.items():
        for table in snapshot.births[build].tables:
            whole = f"{quoted(schema_of(pipeline))}.{quoted(table.name)}"
            times = [
                (whole, name, kind)
                for name, kind in table.columns
                if name in (*table.keys, *table.by) and kind in _TIME_KEYS
            ]
            found.setdefault(table.name.lower(), []).append(times[0] if times else (whole, "", ""))
    return {name: each[0] for name, each in found.items() if len(each) == 1 and each[0][1]}


def rows_since(answer: Mapping[str, Any], since: datetime) -> dict[str, Any]:
    """Returns an answer without the rows whose time is before `since`. Pure.

    The first column of the answer contains the times.
    """
    name = answer["columns"][0]["name"]
    least = since.timestamp()
    rows = [row for row in answer["rows"] if (_unix_seconds(row[name]) or 0.0) >= least]
    return {**answer, "rows": rows}


def _board_answer(
    snapshot: Snapshot,
    board: Board,
    charts: tuple[ChartAnswer, ...],
    readable: TableGrant,
    timed: TimedTables,
) -> BoardAnswer:
    births = {pipeline: snapshot.births[build] for pipeline, build in snapshot.serving.items()}
    with open_reader(None, served=True) as reader:
        reads = sorted(
            {
                read
                for chart in board.charts
                for read in tables_read(chart.sql, births, reader.tables_named)
                if readable.allows(*read)
            }
        )
    return BoardAnswer(
        snapshot.generation,
        charts,
        tuple(reads),
        {
            pipeline: snapshot.frontiers[snapshot.serving[pipeline]]
            for pipeline in sorted({pipeline for pipeline, _ in reads})
        },
        any(name.lower() in timed for _, name in reads)
        or any(isinstance(each.drawn, DrawnLines) and each.drawn.chart["time"] for each in charts),
    )


def draw_answer(kind: ChartKind, answer: Mapping[str, Any], sql: str) -> tuple[Drawn, str]:
    """Returns the drawing of an answer in the given kind of chart, and a note. Pure.

    The note is a sentence if the page leaves out rows, or shows them only after scrolling;
    otherwise it is "". Raises UsageError if this kind of chart cannot show the columns or rows.
    """
    names, rows = (shown := typed_rows(answer)).columns, shown.rows
    types = tuple(column["type"] for column in answer["columns"])
    note = f"The first {len(rows):,} rows are shown." if answer["truncated"] else ""
    match kind:
        case ChartKind.NUMBER:
            return _draw_number(names, rows), ""
        case ChartKind.LINE:
            return _draw_lines(names, types, rows), note
        case ChartKind.BARS:
            _ensure_bars(names, types)
            sorts = not has_order(sql) and _NAMES.fullmatch(types[0])
            if sorts:
                rows = tuple(sorted(rows, key=lambda row: -(_finite_number(row[1]) or 0.0)))
            if len(rows) > _MOST_BARS:
                whole = "" if answer["truncated"] else f" of {len(rows):,}"
                which = "largest" if sorts and whole else "first"
                note = f"The {which} {_MOST_BARS}{whole} bars are shown."
            return _draw_bars(names, rows[:_MOST_BARS]), note
        case ChartKind.TABLE:
            # A longer table scrolls, so its end is not in sight.
            return shown, note or (
                f"{len(rows):,} rows of the query" if len(rows) > _ROWS_IN_SIGHT else ""
            )


def has_order(sql: str) -> bool:
    """Returns True if a query has an order of its own. Pure."""
    return bool(_ORDER.search(sql))


def typed_rows(answer: Mapping[str, Any]) -> DrawnRows:
    """Returns the rows of a JSON answer. Each value is converted to its column's type. Pure."""
    columns = [(column["name"], column["type"]) for column in answer["columns"]]
    return DrawnRows(
        tuple(name for name, _ in columns),
        tuple(tuple(_typed_value(row[name], of) for name, of in columns) for row in answer["rows"]),
    )


def _draw_number(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> DrawnNumber:
    if len(names) > 2 or len(rows) > 1:
        raise UsageError(
            "a number is one row of one value or two, and the query gives "
            f"{_rows_text(names, rows)}",
            hint='select one value; or write: kind = "table"',
        )
    if not rows:
        return DrawnNumber(None, None)
    value, *more = rows[0]
    # DuckDB names a column without a name after its expression: sum(hits).
    unit = names[0] if names[0].isidentifier() and _finite_number(value) is not None else ""
    return DrawnNumber(value, (names[1], more[0]) if more else None, unit)


def _ensure_bars(names: tuple[str, ...], types: Sequence[str]) -> None:
    if len(names) != 2 or not _NUMBERS.fullmatch(types[1]):
        raise UsageError(
            "bars are drawn of two columns, a label and a number, and the query gives "
            f"{_columns_text(names, types)}",
            hint='select label, number; or write: kind = "table"',
        )


def _draw_bars(names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> DrawnBars:
    lengths = [_finite_number(value) or 0.0 for _, value in rows]
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
        round(-low * percent, 2),
    )


def _draw_lines(
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
            f"{_MOST_LINES}; the query gives {_columns_text(names, types)}",
            hint='select time, number, ...; or write: kind = "bars", or "table"',
        )
    placed = [(_unix_seconds(row[0]) if time else _finite_number(row[0]), row) for row in rows]
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
            {"label": name, "values": [_finite_number(row[place]) for _, row in points]}
            for place, name in enumerate(names)
            if place
        ],
        "time": time,
        "where": names[0],
    }
    return DrawnLines(chart, DrawnRows(names, tuple(row for _, row in points[-_LAST_ROWS:])))


def _typed_value(given: object, kind: str) -> object:
    """Converts a JSON value to the type of its column.

    In JSON, decimals and times are strings.
    """
    if not isinstance(given, str):
        return given
    if _NUMBERS.fullmatch(kind):
        return Decimal(given)
    if _MOMENTS.fullmatch(kind):
        # Infinite times, and years that Python does not have, stay text.
        with suppress(ValueError):
            return datetime.fromisoformat(given)
    return given


def _finite_number(value: object) -> float | None:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _unix_seconds(value: object) -> float | None:
    """Returns a date or time in seconds since 1970, or None if it cannot be parsed.

    A time without a zone counts as UTC.
    """
    try:
        at = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _columns_text(names: Sequence[str], types: Sequence[str]) -> str:
    return ", ".join(f"{name} ({of})" for name, of in zip(names, types, strict=True))


def _rows_text(names: Sequence[str], rows: Sequence[object]) -> str:
    return f"{len(rows):,} rows of {len(names)} columns"


def tables_read(
    sql: str,
    births: Mapping[str, Birth],
    names_in: Callable[[str], Iterable[tuple[str, str]]],
) -> frozenset[Read]:
    """Returns the stored tables that a query reads, as (pipeline, table). Pure.

    `births` maps each pipeline to the birth certificate of its serving build. `names_in` returns
    the tables and views that a query names, as (schema, name). If the query names a view that is
    not stored, the tables that the view reads are returned instead. Names that are not served, and
    names that a `with` clause defines, are ignored.
    """
    found: set[Read] = set()
    seen: set[Read] = set()
    pending = [(schema, name, tuple(births)) for schema, name in names_in(sql)]
    while pending:
        schema, name, pipelines = pending.pop()
        for pipeline in pipelines:
            if schema.lower() not in {"", "main", schema_of(pipeline).lower()}:
                continue
            birth = births[pipeline]
            tables = {table.name.lower(): table.name for table in birth.tables}
            views = {view.lower(): text for view, text in birth.views.items()}
            if name.lower() in tables:
                found.add((pipeline, tables[name.lower()]))
            elif name.lower() in views and (pipeline, name.lower()) not in seen:
                seen.add((pipeline, name.lower()))
                pending += [
                    (within, each, (pipeline,)) for within, each in names_in(views[name.lower()])
                ]
    return frozenset(found)
