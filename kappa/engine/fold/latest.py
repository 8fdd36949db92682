"""The rows of a latest table: the newest decoded record per key, here and at Spark.

A tombstone leaves a hidden row, so that an older record that arrives later stays behind it (law 4).
The table's columns and the condition of its merge are in kappa/tables/latest.py.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa.base.sql import spark_quote
from kappa.declare.table import DELETED
from kappa.engine.decode.fate import Fate
from kappa.folds.order import ORDER_COLUMNS
from kappa.state.build import TableBirth

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
# The fates of records that become latest rows.
_KEPT = frozenset({Fate.DECODED, Fate.TOMBSTONE})


def latest_table(decoded: pa.Table, table: TableBirth) -> pa.Table:
    """Finds the newest decoded record per key, by Arrow."""
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
    return kept.append_column(DELETED, deleted).select([name for name, _ in table.columns])


def latest_frame(decoded: DataFrame, table: TableBirth) -> DataFrame:
    """Returns a frame that finds the newest decoded record per key."""
    kept = decoded.where(f"_fate in ({', '.join(str(int(fate)) for fate in sorted(_KEPT))})")
    return (
        kept.withColumn(DELETED, F.expr(f"_fate = {int(Fate.TOMBSTONE)}"))
        .groupBy(F.col(spark_quote(table.keys[0])))
        .agg(F.expr(latest_aggregate(table)).alias("_newest"))
        .selectExpr("_newest.*")
    )


def latest_aggregate(table: TableBirth) -> str:
    """Returns Spark's SQL for the newest of one key's records, as a struct of the columns."""
    values = ", ".join(spark_quote(name) for name, _ in table.columns)
    return f"max_by(struct({values}), struct({', '.join(_ORDER)}))"
