"""DuckDB's query for the rows of a table's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from kappa.base.sql import quoted
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.tables.parquet import parquet_sql

_NOT_DELETED = "_deleted is not true"


def served_condition(table: TableBirth, clock: int | None) -> str | None:
    """Returns the condition for the rows that readers see, or None if they see all.

    `clock` is the log's clock at the frontier (kappa/state/log_clock.py). The condition is valid in
    DuckDB in a session whose time zone is UTC, and in Spark with names in backquotes.
    """
    conditions = [_NOT_DELETED] if table.hides_rows else []
    least = least_kept(table, clock)
    if table.expiry is not None and least is not None:
        column = quoted(table.expiry.column)
        conditions.append(f"({column} is null or {column} >= timestamp '{least.isoformat(' ')}')")
    return " and ".join(conditions) or None


def least_kept(table: TableBirth, clock: int | None) -> datetime | None:
    """Returns the least time of a table's rows that are not gone; None if no row is gone."""
    return None if table.expiry is None or clock is None else table.expiry.least_kept(clock)


def read_sql(
    table: TableBirth,
    paths: Iterable[str],
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    clock: int | None,
    recent: Iterable[Sequence[str]] = (),
) -> str:
    """Returns DuckDB's query for the served rows of a table that consists of these files.

    `clock` is the log's clock at the frontier, by which rows are gone. `wanted`: these columns
    instead of the served ones. `recent`: the files of the tables with
    contributions to it (kappa/engine/write/recent.py), which are folded in. Every column is cast
    to its declared type: Delta's writers spell times in two ways, and the first file would decide.
    """
    columns = table.served if wanted is None else tuple(wanted)
    condition = served_condition(table, clock)
    where = "" if condition is None else f" where {condition}"
    waiting = [parquet_sql(contribution_columns(table), files) for files in recent if files]
    if not waiting:
        return parquet_sql(columns, paths, where)
    # Contributions of two tables are folded as one. Sums of doubles in another order may differ
    # in their last digits (decision 8).
    folded = merged_sql(table, parquet_sql(table.columns, paths), waiting)
    return f"select {', '.join(quoted(name) for name, _ in columns)} from ({folded}){where}"


def stored_sql(table: TableBirth, paths: Iterable[str]) -> str:
    """Returns the query for all that a table has: the platform's own columns and rows too."""
    return parquet_sql(table.columns, paths)
