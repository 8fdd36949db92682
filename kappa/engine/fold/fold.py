"""The SQL that makes rows contributions to a table, one row per key (laws 4 and 9). Pure.

A merge folds contributions into the table (kappa/tables/merge.py). The meaning of each kind of fold
is in kappa/declare/folds; combine.py is for the kinds that no merge can express.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.base.sql import spark_quote
from kappa.state.table import TableBirth


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Returns columns, by name and Spark's type, as Spark reads a schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)


def aggregates(table: TableBirth, given: Mapping[str, str]) -> tuple[str, ...]:
    """Lists Spark's SQL that aggregates each folded column over rows of one key.

    `given` are the columns of the rows, with their types.
    """
    types, folds = dict(table.columns), table.folds
    # In the table's order: that of `fold` depends on the birth certificate's JSON.
    return tuple(
        sql
        for name, _ in table.columns
        if name in folds
        for sql in folds[name].contribution_sql(name, types, given)
    )
