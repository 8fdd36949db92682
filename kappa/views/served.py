"""DuckDB's query for the rows of a table's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kappa.base.sql import quoted
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns, merged_sql
from kappa.tables.parquet import parquet_sql

# The condition for the served rows of a table that hides some.
SERVED_ROWS = "_deleted is not true"


def read_sql(
    table: TableBirth,
    paths: Iterable[str],
    wanted: Iterable[tuple[str, str]] | None = None,
    *,
    recent: Iterable[Sequence[str]] = (),
) -> str:
    """Returns DuckDB's query for the served rows of a table that consists of these files.

    `wanted`: these columns instead of the served ones. `recent`: the files of the tables with
    contributions to it (kappa/engine/write/recent.py), which are folded in. Every column is cast
    to its declared type: Delta's writers spell times in two ways, and the first file would decide.
    """
    columns = table.served if wanted is None else tuple(wanted)
    where = f" where {SERVED_ROWS}" if table.hides_rows else ""
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
