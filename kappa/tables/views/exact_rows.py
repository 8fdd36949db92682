"""Queries that are rewritten so that DuckDB returns their values without a loss of precision.

The rows are passed to Python or Arrow, or written to a Parquet file. The types of the query's
columns are examined before the query runs. If a value of a column would lose precision there
(kappa/declare/values/exact_sql.py), the query is wrapped in another query that converts the value
to a form that is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kappa.base.duck import Connection, open_connection
from kappa.base.sql import quoted
from kappa.declare.values.exact_sql import arrow_sql, python_sql

# Makes distinct names of a query's columns.
Names = Callable[[Iterable[str]], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ExactQuery:
    """A rewritten query, with the column names and DuckDB types of the original query.

    `as_json` contains the positions of the columns that the rewritten query returns as JSON text.
    """

    sql: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    as_json: tuple[int, ...] = ()

    def row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Returns a row of the query's result in which JSON texts are replaced by their values."""
        if not self.as_json:
            return row
        values = list(row)
        for place in self.as_json:
            values[place] = None if values[place] is None else json.loads(values[place])
        return tuple(values)


def python_query(duck: Connection, sql: str, *, times: bool, names: Names = tuple) -> ExactQuery:
    """Rewrites a query so that Python can represent the values of its rows exactly.

    If `times` is True, dates and timestamps become Python objects, unless they are outside the
    range of Python's types. `names` makes the names of the columns distinct. Raises DuckDB's
    errors, and UsageError if a column has a type that cannot be represented.
    """
    return _exact_query(
        duck, sql, names, lambda each, kind, column: python_sql(each, kind, column, times=times)
    )


def python_rows(table: Any) -> list[dict[str, Any]]:
    """Returns the rows of an Arrow table as dicts. A time outside Python's range becomes text."""
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (OverflowError, ValueError):
        with open_connection() as duck:
            duck.register("given", table)
            rows = [*rows_of(duck, "from given")]
    return rows


def rows_of(duck: Connection, sql: str) -> Iterator[dict[str, Any]]:
    """Yields the rows of a query as dicts.

    Dates and timestamps are Python objects, unless they are outside the range of Python's types.
    """
    query = python_query(duck, sql, times=True)
    # A relation is computed whole, other than what is executed: see `whole_sql`.
    for row in duck.query(query.sql).fetchall():
        yield dict(zip(query.columns, query.row(row), strict=True))


def arrow_query(duck: Connection, sql: str, *, parquet: bool, names: Names = tuple) -> ExactQuery:
    """Rewrites a query so that Arrow can represent the values of its rows exactly.

    If `parquet` is True, a Parquet file can also represent the values. `names` makes the names of
    the columns distinct. Raises the errors of `python_query`.
    """
    return _exact_query(
        duck,
        sql,
        names,
        lambda each, kind, column: (arrow_sql(each, kind, column, parquet=parquet), False),
    )


def _exact_query(
    duck: Connection,
    sql: str,
    names: Names,
    write: Callable[[str, Any, str], tuple[str, bool]],
) -> ExactQuery:
    found = duck.query(sql)
    columns, kinds = names(found.columns), found.types
    given = [f"_{place}" for place in range(len(columns))]
    written = [
        write(f"_answer.{each}", kind, column)
        for each, kind, column in zip(given, kinds, columns, strict=True)
    ]
    types = tuple(map(str, kinds))
    is_same = all(f"_answer.{each}" == to for each, (to, _) in zip(given, written, strict=True))
    if is_same and columns == tuple(found.columns):
        return ExactQuery(sql, columns, types)
    return ExactQuery(
        _projected_sql(sql, given, columns, [each for each, _ in written]),
        columns,
        types,
        tuple(place for place, (_, is_json) in enumerate(written) if is_json),
    )


def _projected_sql(
    sql: str, given: Sequence[str], columns: Sequence[str], written: Sequence[str]
) -> str:
    selected = ", ".join(
        f"{each} as {quoted(column)}" for each, column in zip(written, columns, strict=True)
    )
    # On a line of its own, so that a comment at the query's end comments out nothing of ours.
    return f"select {selected} from (\n{sql}\n) as _answer({', '.join(given)})"
