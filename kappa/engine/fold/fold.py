"""The SQL that makes rows contributions to a table, one row per key (laws 4 and 9). Pure.

A merge folds contributions into the table (kappa/tables/merge.py). The meaning of each kind of fold
is in kappa/folds; combine.py is for the kinds that no merge can express.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from kappa.base.sql import spark_quote
from kappa.engine.decode.fate import Fate
from kappa.folds.order import ORDER_COLUMNS
from kappa.state.build import TableBirth

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
# The fates of records that become latest rows.
_KEPT = frozenset({Fate.DECODED, Fate.TOMBSTONE})


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
        for sql in folds[name].aggregates(name, types, given)
    )


def latest_aggregate(table: TableBirth) -> str:
    """Returns Spark's SQL for the newest of one key's records, as a struct of the columns."""
    values = ", ".join(spark_quote(name) for name, _ in table.columns)
    return f"max_by(struct({values}), struct({', '.join(_ORDER)}))"


def latest_table(decoded: pa.Table, table: TableBirth) -> pa.Table:
    """Finds the newest decoded record per key; a tombstone leaves a hidden row (law 4)."""
    columns = [decoded.column(name).to_pylist() for name in (table.keys[0], *_ORDER, "_fate")]
    newest: dict[object, tuple[tuple[int, int, int], int]] = {}
    for place, (key, log_time, partition, offset, fate) in enumerate(zip(*columns, strict=True)):
        order = (log_time, partition, offset)
        if fate in _KEPT and (key not in newest or newest[key][0] < order):
            newest[key] = order, place
    kept = decoded.take(pa.array([place for _, place in newest.values()], pa.int64()))
    deleted = pa.array(
        [fate == Fate.TOMBSTONE for fate in kept.column("_fate").to_pylist()], pa.bool_()
    )
    return kept.append_column("_deleted", deleted).select([name for name, _ in table.columns])
