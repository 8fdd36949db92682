"""The DuckDB query for the served rows of a table's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kappa.base.sql import quoted, text
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.tables.parquet import casts_sql, parquet_sql

_NOT_DELETED = "_deleted is not true"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# In microseconds: 400 years, after which the calendar repeats; and the last time that Python has.
_CYCLE = 146_097 * 86_400_000_000
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def served_condition(table: TableBirth, clock: int | None) -> str | None:
    """Returns the SQL condition for the rows that readers see, or None if readers see all rows.

    `clock` is the log's clock at the readers' frontier, or None if the clock is unknown. The
    condition is valid for DuckDB if the session's time zone is UTC. The condition is valid for
    Spark if each name in double quotes is written in backquotes instead.
    """
    conditions = [_NOT_DELETED] if table.hides_rows else []
    least = least_kept(table, clock)
    if table.expiry is not None and least is not None:
        column = quoted(table.expiry.column)
        conditions.append(f"({column} is null or {column} >= {_moment_sql(least)})")
    return " and ".join(conditions) or None


def gone_condition(table: TableBirth, clock: int | None) -> str | None:
    """Returns the SQL condition for the rows that have expired, or None if no row can have expired.

    `clock` is the log's clock at the frontier.
    """
    least = least_kept(table, clock)
    if table.expiry is None or least is None:
        return None
    return f"{quoted(table.expiry.column)} < {_moment_sql(least)}"


def _moment_sql(micros: int) -> str:
    """Returns a time as a SQL literal of DuckDB and Spark, for a session in UTC.

    The time is given in microseconds since 1970, and may be after the last time that Python
    supports.
    """
    cycles = max(0, (micros - _LAST) // _CYCLE + 1)
    moment = _EPOCH + timedelta(microseconds=micros - cycles * _CYCLE)
    year, rest = moment.isoformat(" ").split("-", 1)
    return f"timestamp '{int(year) + 400 * cycles:04}-{rest}'"


def least_kept(table: TableBirth, clock: int | None) -> int | None:
    """Returns the earliest time in the expiry column of a row that has not expired.

    The time is in microseconds since 1970. `clock` is the log's clock at the frontier. Returns None
    if no row can have expired.
    """
    return None if table.expiry is None or clock is None else table.expiry.least_kept(clock)


@dataclass(frozen=True, slots=True)
class Among:
    """A selection of rows: those that equal a row of another relation in certain columns.

    `name` is the name of the other relation. `columns` maps each compared column of the rows to a
    column of that relation. DuckDB can skip parts of files only if the comparison is an equality,
    and a null is equal to nothing. So set `has_nulls` to False if the relation has no nulls.
    """

    name: str
    columns: Mapping[str, str]
    has_nulls: bool = True

    def of(self, sql: str) -> str:
        """Returns the query for those rows of the query `sql` that are selected."""
        return self._joined(sql, "semi")

    def others_of(self, sql: str) -> str:
        """Returns the query for those rows of the query `sql` that are not selected."""
        return self._joined(sql, "anti")

    def _joined(self, sql: str, kind: str) -> str:
        equal = "is not distinct from" if self.has_nulls else "="
        same = " and ".join(
            f"_row.{quoted(column)} {equal} {self.name}.{quoted(other)}"
            for column, other in self.columns.items()
        )
        return f"select _row.* from ({sql}) as _row {kind} join {self.name} on {same}"


def read_sql(
    table: TableBirth,
    paths: Iterable[str],
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    clock: int | None,
    recent: Iterable[Sequence[str]] = (),
    among: Among | None = None,
) -> str:
    """Returns the DuckDB query for the rows of a table that readers see.

    `paths` are the table's data files. `clock` is the log's clock at the frontier; it decides which
    rows have expired. `wanted` lists the columns to read instead of the served columns. `recent`
    contains the files of each table of recent rows, whose contributions are folded into the rows.
    With `among`, only the rows that `among` selects are read. Every column is cast to its declared
    type: Delta's writers store times in two ways, and without a cast the first file would decide
    the type.
    """
    columns = table.served if wanted is None else tuple(wanted)
    waiting = [parquet_sql(contribution_columns(table), files) for files in recent if files]
    if not waiting:
        condition = served_condition(table, clock)
        where = "" if condition is None else f" where {condition}"
        found = parquet_sql(columns, paths, where)
        return found if among is None else among.of(found)
    stored = parquet_sql(table.columns, paths)
    # The contributions that wait for a row may change all of its columns but its keys.
    by_keys = among is not None and set(among.columns) <= set(table.row_keys)
    if among is not None and by_keys:
        stored, waiting = among.of(stored), [among.of(each) for each in waiting]
    found = folded_sql(table, stored, waiting, columns, clock=clock)
    return found if among is None or by_keys else among.of(found)


def folded_sql(
    table: TableBirth,
    stored: str,
    waiting: Sequence[str],
    columns: Iterable[tuple[str, str]],
    *,
    clock: int | None,
) -> str:
    """Returns the DuckDB query for a table's served rows, with recent rows folded in.

    `stored` is a query for the stored rows, and each of `waiting` is a query for contributions that
    wait in a table of recent rows. Each of these queries returns all columns; the returned query
    returns `columns`. `clock` is the log's clock at the frontier; it decides which rows have
    expired.
    """
    condition = served_condition(table, clock)
    where = "" if condition is None else f" where {condition}"
    # Contributions of two tables are folded together. Sums of doubles in another order may differ
    # in their last digits (decision 8).
    rows = merged_sql(table, stored, waiting) if waiting else stored
    return f"select {', '.join(quoted(name) for name, _ in columns)} from ({rows}){where}"


def failing_sql(columns: Iterable[tuple[str, str]], why: str) -> str:
    """Returns a query that fails with the message `why` when it runs.

    `columns` are the columns of the query, as pairs of name and Spark type.
    """
    columns = tuple(columns)
    nothing = ", ".join(f"null as {quoted(name)}" for name, _ in columns)
    selected = casts_sql(columns)
    return (
        f"select {selected} from (select {nothing} from"
        f" (select error({text(why)}) as _why) where _why is not null)"
    )


def stored_sql(table: TableBirth, paths: Iterable[str]) -> str:
    """Returns the query for all rows and columns of a table, including hidden rows and columns."""
    return parquet_sql(table.columns, paths)
