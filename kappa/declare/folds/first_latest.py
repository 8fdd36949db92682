"""The folds `first` and `latest`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import MergedFold, Quote, Types
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS, later_condition, order_column
from kappa.declare.folds.returned_columns import ReturnedColumns

_ORDER = tuple(name for name, _ in FOLD_ORDER_COLUMNS)


def first(column: str) -> First:
    """Keeps the earliest value of a column; nulls are ignored. Exact.

    Rows are ordered by log time, topic, partition and offset. If a record has several rows, the
    least of their values is kept.

    Example:
        Table("pages", keys=("page",), fold={"first_visitor": first("visitor")})
    """
    return First(column)


def latest(column: str) -> Latest:
    """Keeps the newest value of a column; nulls are ignored. Exact.

    Rows are ordered by log time, topic, partition and offset. If a record has several rows, the
    greatest of their values is kept.

    Example:
        Table("pages", keys=("page",), fold={"last_visitor": latest("visitor")})
    """
    return Latest(column)


class _Picked(MergedFold):
    """A fold that stores the first or the last value in the order of the log.

    `end` is the SQL aggregate function that picks the value.
    """

    by_order = True
    end: ClassVar[str]

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        yield name, str(rows.type_of(str(self.column), self.text_of(name)))
        rows.check_columns(FOLD_ORDER_COLUMNS, self.text_of(name))
        yield from ((order_column(name, of), kind) for of, kind in FOLD_ORDER_COLUMNS)

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        value = self.input_sql(given)
        # The value is last, because among several rows of the same record the choice must not
        # depend on the order of the rows.
        row = f"struct({', '.join(_ORDER)}, {value} as value)"
        picked = f"{self.end}({row}) filter (where {value} is not null)"
        yield f"{picked}.value as {spark_quote(name)}"
        yield from (f"{picked}.{of} as {spark_quote(order_column(name, of))}" for of in _ORDER)

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        order = [spark_quote(order_column(name, of)) for of in _ORDER]
        by = f"struct({', '.join(order)})) filter (where {order[0]} is not null)"
        yield from (
            f"{self.end}_by({column}, {by} as {column}" for column in (spark_quote(name), *order)
        )

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        """Returns SQL for the columns of a stored row after a merge, by quoted column name.

        The columns are the value, and hidden columns with the log time, topic, partition and offset
        of the record from which the value comes. If the contributed value is null, the SQL keeps
        the stored value.
        """
        columns = [quote(name), *(quote(order_column(name, of)) for of in _ORDER)]
        held, contributed = ([f"{side}.{column}" for column in columns[1:]] for side in "ts")
        wins = self.wins_condition(contributed, held)
        when = f"{contributed[0]} is not null and ({held[0]} is null or {wins})"
        return {
            column: f"case when {when} then s.{column} else t.{column} end" for column in columns
        }

    def wins_condition(self, contributed: list[str], held: list[str]) -> str:
        """Returns the SQL condition that the contributed value replaces the stored value.

        `contributed` and `held` contain SQL for the position of each value in the log: its log
        time, topic, partition and offset.
        """
        return later_condition(contributed, held)


class First(_Picked):
    """The fold that stores the earliest value in the order of the log."""

    kind = "first"
    end = "min"

    def wins_condition(self, contributed: list[str], held: list[str]) -> str:
        return later_condition(held, contributed)


class Latest(_Picked):
    """The fold that stores the newest value in the order of the log."""

    kind = "latest"
    end = "max"
