"""The only meaning of a declared query in DuckDB, and whether slices can read the query.

In a slice the tables of a view are named subqueries. A table has a schema, which could distinguish
two relations of the same name; a named subquery has no schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.base.duck import DUCKDB_ERRORS, Connection, told_by, without_kind
from kappa.base.sql import quoted
from kappa.tables.views.nulls import asof_joins, without_nulls
from kappa.tables.views.trees import sql_of, tree_of


def why_not_bound(duck: Connection, sql: str, relations: Mapping[str, str]) -> str | None:
    """Returns why a query over these named relations cannot be read, or None.

    `duck` has the tables, and reads no rows.
    """
    named = ", ".join(f"{quoted(name)} as ({each})" for name, each in relations.items())
    try:
        duck.sql(f"with {named} select * from (\n{sql}\n)" if named else sql)
    except DUCKDB_ERRORS as error:
        return without_kind(told_by(error)[0])
    return None


def declared_sql(duck: Connection, sql: str) -> str:
    """Returns a declared query in its only meaning, which is the same under all of DuckDB's plans.

    The result is the query itself if there is no as-of join.
    """
    if "asof" not in sql.lower():
        return sql
    tree = tree_of(duck, sql)
    return sql_of(duck, without_nulls(tree)) if asof_joins(tree) else sql
