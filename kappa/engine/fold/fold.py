"""SQL that makes rows contributions to a table (laws 4 and 9).

Each key has a single contribution. A merge folds contributions into the table
(kappa/tables/merge.py). The meaning of each kind of fold is in kappa/declare/folds; combine.py is
for the kinds that no merge can express. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.base.sql import spark_quote
from kappa.state.table import TableBirth


def spark_ddl(columns: Iterable[tuple[str, str]]) -> str:
    """Returns columns (name, Spark's type) as Spark reads a schema."""
    return ", ".join(f"{spark_quote(name)} {kind}" for name, kind in columns)


def aggregates(table: TableBirth, given: Mapping[str, str]) -> tuple[str, ...]:
    """Lists Spark's SQL that aggregates each folded column.

    The aggregation is over the rows of a key. `given` are the columns of these rows, with types.
    """
    types, folds = dict(table.columns), table.folds
    # In the table's order: the order of `fold` depends on the birth certificate's JSON.
    return tuple(
        sql
        for name, _ in table.columns
        if name in folds
        for sql in folds[name].contribution_sql(name, types, given)
    )
