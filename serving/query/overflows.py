"""Counts the folded values in served tables that exceed their type or their size limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from kappa.base.sql import quoted
from kappa.declare.folds.sizes import MOST_BYTES
from kappa.declare.folds.sum import Sum
from kappa.serving.query.pin.snapshot import Snapshot
from kappa.serving.query.query import ask_snapshot
from kappa.serving.query.reader.reader import Reader
from kappa.serving.query.reader.relations import put_tables
from kappa.serving.query.reader.table_sql import schema_of
from kappa.state.build import Birth
from kappa.state.store import Store
from kappa.state.table import TableBirth


@dataclass(frozen=True, slots=True)
class Overflow:
    """A folded column of a served table whose value is incomplete in `rows` rows.

    If `is_cut` is False, the column is a sum that does not fit its type, and the value is null. If
    `is_cut` is True, the column is an array whose values have too many bytes, and the array
    contains only its first values.
    """

    pipeline: str
    table: str
    column: str
    rows: int
    is_cut: bool = False

    @property
    def as_text(self) -> str:
        """Describes the overflow in a sentence for users."""
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        if self.is_cut:
            return (
                f"{self.column} has values of more than {MOST_BYTES >> 20} MiB in {rows} of table"
                f" {self.table}, and keeps the first values"
            )
        return f"{self.column} does not fit its type in {rows} of table {self.table}, and is null"


@dataclass(frozen=True, slots=True)
class OverflowMark:
    """A boolean column that is true in each row whose folded value is incomplete.

    `column` is the folded column, and `mark` is the boolean column. If `is_cut` is True, the folded
    column is an array that lacks values because of its size limit. Otherwise, it is a sum that
    exceeds its type, and is null.
    """

    table: str
    column: str
    mark: str
    is_cut: bool


def overflow_marks(birth: Birth) -> tuple[OverflowMark, ...]:
    """Lists the boolean columns of a build that mark incomplete folded values.

    A value is incomplete if it exceeds its type or its size limit.
    """
    return tuple(
        OverflowMark(table.name, name, mark, is_cut=not isinstance(fold, Sum))
        for table in birth.tables
        for name, fold in table.folds.items()
        # An old build has no such columns, and values of few bytes need none.
        if (mark := fold.overflow_mark(name)) in dict(table.columns)
    )


def count_overflows(store: Store) -> tuple[Overflow, ...]:
    """Counts, for each folded column of the served tables, the rows with an incomplete value.

    A value is incomplete if it exceeds its type or its size limit. Only columns with at least one
    such row are returned.
    """
    return ask_snapshot(
        store,
        lambda reader, snapshot: tuple(_overflows_in(reader, snapshot, store)),
        lease_seconds=60.0,
    )


def _overflows_in(reader: Reader, snapshot: Snapshot, store: Store) -> Iterator[Overflow]:
    cannot_be_read = {(each.pipeline, each.name) for each in reader.broken}
    counts: list[str] = []
    counted: list[tuple[str, OverflowMark]] = []
    for pipeline, build in sorted(snapshot.serving.items()):
        birth = snapshot.births[build]
        marks = [
            each for each in overflow_marks(birth) if (pipeline, each.table) not in cannot_be_read
        ]
        # Hidden columns are in a schema of their own.
        hidden = f"{schema_of(pipeline)} with hidden columns"
        cut = {each.table for each in marks if each.is_cut}
        if cut:
            tables = tuple(each for each in birth.tables if each.name in cut)
            frontier = snapshot.frontiers[build]
            put_tables(reader, hidden, replace(birth, tables=tables), frontier, store, columns=_all)
        for each in marks:
            schema = hidden if each.is_cut else schema_of(pipeline)
            counted.append((pipeline, each))
            counts.append(
                f"select {len(counts)}, count(*) from {quoted(schema)}.{quoted(each.table)}"
                f" where {quoted(each.mark)}"
            )
    if counts:
        for place, rows in reader.rows(" union all ".join(counts)).rows:
            if rows:
                pipeline, each = counted[int(place)]
                yield Overflow(pipeline, each.table, each.column, int(rows), each.is_cut)


def _all(table: TableBirth) -> tuple[tuple[str, str], ...]:
    return table.columns
