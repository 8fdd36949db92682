"""Expired rows: contributions to rows of a table that have already expired.

A contributed row is expired if its time plus its table's expiry span is before the log time of the
row's record. Then the whole record becomes a reject. So the log alone decides about each record,
and each replay decides the same. A row that is not expired cannot contribute to an expired row of
the table (kappa/state/log_clock.py explains why). If several rows of a record are expired, the
reject's detail names a row of the first table with expired rows; among the expired rows of that
table, it names the row with the earliest time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from kappa.base.sql import spark_quote
from kappa.base.units import exact_duration
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.table import Expiry
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.reason import Reason
from kappa.engine.function.refused_records import REFUSED_COLUMNS, Refused, raw_records, refused_of
from kappa.engine.read.source import LogSource
from kappa.state.table import TableBirth

# The name among a function's frames; no table's name begins with an underscore.
EXPIRED = "_expired"
_PLACE = FOLD_ORDER_COLUMNS[1:]
# The number of the table among the function's tables, and the microseconds that a row's time lies
# before the log time.
EXPIRED_COLUMNS = (("table", "int"), ("behind", "bigint"), *_PLACE)


def expired_rows(
    tables: Sequence[TableBirth], returned: Mapping[str, DataFrame]
) -> DataFrame | None:
    """Returns the expired rows of a function's tables, or None if no table has an expiry."""
    found = [
        _expired(returned[table.name], number, table.expiry)
        for number, table in enumerate(tables)
        if table.expiry is not None
    ]
    return reduce(DataFrame.unionAll, found) if found else None


def refused_for(expired: pa.Table, tables: Sequence[TableBirth], source: LogSource) -> Refused:
    """Returns the rejects for the records that contribute the rows `expired`.

    The raw records are read from the log again. If the records came from an archive and the log no
    longer contains them, the rejects have no key, no value and no headers.
    """
    places = _places(expired, tables)
    return refused_of(places, Reason.EXPIRED, raw_records(places, source))


def _expired(rows: DataFrame, number: int, expiry: Expiry) -> DataFrame:
    # A row without a time is never gone.
    behind = f"_log_time * 1000 - unix_micros({spark_quote(expiry.column)})"
    return rows.where(f"{behind} > {expiry.after_ms * 1000}").selectExpr(
        f"{number} as `table`", f"{behind} as behind", *(name for name, _ in _PLACE)
    )


def _places(expired: pa.Table, tables: Sequence[TableBirth]) -> pa.Table:
    """Returns one row per record that contributes expired rows, in the order of the log.

    The row contains the record's place and the detail of its reject.
    """
    place = [name for name, _ in _PLACE]
    first = (
        expired.sort_by([("table", "ascending"), ("behind", "descending")])
        .group_by(place, use_threads=False)
        .aggregate([("table", "first"), ("behind", "first")])
        .sort_by([(name, "ascending") for name in place])
    )
    before, after = (
        pa.array(texts, pa.string()).take(first["table_first"])
        for texts in zip(*map(_detail, tables), strict=True)
    )
    milliseconds = pc.divide(first["behind_first"], 1000).cast(pa.string())
    details = pc.binary_join_element_wise(before, milliseconds, after, "")
    return pa.table(
        [*(first[name] for name in place), details], names=[name for name, _ in REFUSED_COLUMNS]
    ).cast(arrow_schema(REFUSED_COLUMNS))


def _detail(table: TableBirth) -> tuple[str, str]:
    """Returns the two parts of a reject's detail: before and after a number of milliseconds.

    The number says how many milliseconds the row's time is before the log time. Both parts are ""
    if the table has no expiry.
    """
    if table.expiry is None:
        return "", ""
    return (
        f"{table.expiry.column} of table {table.name} lies ",
        f" ms before the log's time; rows are gone after {exact_duration(table.expiry.after_ms)}",
    )
