"""The rows of a latest table: the newest decoded record per key, here and in files.

A tombstone leaves a hidden row, so that an older record that arrives later stays behind it (law 4).
The table's columns are in kappa/tables/shape.py, the condition of its merge in merge.py.
"""

from __future__ import annotations

import pyarrow as pa

from kappa.base.sql import quoted
from kappa.declare.options import DELETED
from kappa.engine.decode.fate import Fate
from kappa.folds.order import ORDER_COLUMNS
from kappa.state.table import TableBirth

_ORDER = tuple(name for name, _ in ORDER_COLUMNS)
# They name one record of a topic.
_PLACE = ("_partition", "_offset")
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


def latest_sql(table: TableBirth, decoded: str) -> str:
    """Returns DuckDB's query that finds the newest decoded record per key.

    `decoded` is a query for decoded records of one topic. A record's place is found by key, and
    then the record by its place: so its other columns are read once, and of the newest alone.
    """
    key, deleted = quoted(table.keys[0]), quoted(DELETED)
    fates = ", ".join(str(int(fate)) for fate in sorted(_KEPT))
    kept = f"from ({decoded}) where _fate in ({fates})"
    columns = ", ".join(
        f"_fate = {int(Fate.TOMBSTONE)} as {deleted}" if name == DELETED else quoted(name)
        for name, _ in table.columns
    )
    newest = f"select max(struct_pack({', '.join(_ORDER)})) as _newest {kept} group by {key}"
    return (
        f"select {columns} from (select * {kept}) semi join (select unnest(_newest) from"
        f" ({newest})) using ({', '.join(_PLACE)})"
    )


def latest_input(table: TableBirth) -> tuple[tuple[str, str], ...]:
    """Returns the columns of decoded records that the query reads."""
    of_events = (column for column in table.columns if column[0] != DELETED)
    return *of_events, ("_fate", "tinyint")
