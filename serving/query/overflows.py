"""The count of sums in served tables that do not fit their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.base.sql import quoted, text
from kappa.declare.folds.sum import Sum
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import ask_snapshot
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.table_sql import schema_of
from kappa.state.build import Birth
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Overflow:
    """The rows of a served table in which a sum does not fit.

    Such a sum does not fit its type, and is null.
    """

    pipeline: str
    table: str
    column: str
    rows: int

    @property
    def as_text(self) -> str:
        """Returns the overflow in words."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"{self.column} does not fit its type in {rows} of table {self.table}, and is null"


def overflow_marks(birth: Birth) -> Mapping[tuple[str, str], str]:
    """Returns the column that marks a sum which does not fit, by table and sum."""
    return {
        (table.name, name): mark
        for table in birth.tables
        for name, fold in table.folds.items()
        if isinstance(fold, Sum)
        for mark in fold.extra_columns(name)
        # An old build has no such columns.
        if mark in dict(table.columns)
    }


def count_overflows(store: Store, *, lease_seconds: float = 60.0) -> tuple[Overflow, ...]:
    """Counts the sums of served tables that do not fit their types.

    Each overflow has at least one row. A table and column without an overflow are left out.
    """
    return ask_snapshot(
        store,
        lambda reader, snapshot: tuple(_overflows_in(reader, snapshot)),
        lease_seconds=lease_seconds,
    )


def _overflows_in(reader: Reader, snapshot: Snapshot) -> Iterator[Overflow]:
    cannot_be_read = {(each.pipeline, each.name) for each in reader.broken}
    counts = [
        f"select {text(pipeline)}, {text(table)}, {text(column)}, count(*)"
        f" from {quoted(schema_of(pipeline))}.{quoted(table)} where {quoted(mark)}"
        for pipeline, build in sorted(snapshot.serving.items())
        for (table, column), mark in overflow_marks(snapshot.births[build]).items()
        if (pipeline, table) not in cannot_be_read
    ]
    if counts:
        for pipeline, table, column, rows in reader.rows(" union all ".join(counts)).rows:
            if rows:
                yield Overflow(str(pipeline), str(table), str(column), int(rows))
