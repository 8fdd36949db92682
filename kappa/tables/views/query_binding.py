"""Declared queries in a form with exactly one meaning in DuckDB, and a check for use in slices.

A slice gives a view's query its tables as named subqueries. A table has a schema, which can
distinguish two relations of the same name. A named subquery has no schema, so a query that depends
on schemas cannot run in a slice.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.duck import DUCKDB_ERRORS, Connection, told_by, without_kind
from kappa.base.sql import quoted
from kappa.tables.views.nulls import asof_joins, without_nulls
from kappa.tables.views.syntax_tree import sql_of, tree_of


def why_not_bound(duck: Connection, sql: str, relations: Mapping[str, str]) -> str | None:
    """Returns the reason why DuckDB cannot run a query over these named relations, or None.

    `relations` has a query per name. `duck` has the tables, and reads no rows.
    """
    named = ", ".join(f"{quoted(name)} as ({each})" for name, each in relations.items())
    try:
        duck.sql(f"with {named} select * from (\n{sql}\n)" if named else sql)
    except DUCKDB_ERRORS as error:
        return without_kind(told_by(error)[0])
    return None


def declared_sql(duck: Connection, sql: str) -> str:
    """Returns a declared query in a form that means the same under all of DuckDB's plans.

    Without an as-of join, the result is the query itself.
    """
    if "asof" not in sql.lower():
        return sql
    tree = tree_of(duck, sql)
    return sql_of(duck, without_nulls(tree)) if asof_joins(tree) else sql
