"""Gives declared queries a form with exactly one meaning, and checks that slices can use them.

In a slice, a view's query reads its tables as named subqueries. A table has a schema, which can
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
    """Returns the reason why DuckDB cannot run a query over named subqueries, or None.

    `relations` maps the name of each subquery to its query. `duck` is a connection in which the
    tables of these queries exist; no rows are read.
    """
    named = ", ".join(f"{quoted(name)} as ({each})" for name, each in relations.items())
    try:
        duck.sql(f"with {named} select * from (\n{sql}\n)" if named else sql)
    except DUCKDB_ERRORS as error:
        return without_kind(told_by(error)[0])
    return None


def declared_sql(duck: Connection, sql: str) -> str:
    """Returns a declared query in a form that has the same result under all of DuckDB's plans.

    Only a query with an as-of join is changed: its conditions then exclude nulls.
    """
    if "asof" not in sql.lower():
        return sql
    tree = tree_of(duck, sql)
    return sql_of(duck, without_nulls(tree)) if asof_joins(tree) else sql
