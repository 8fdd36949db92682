"""The folds `min_` and `max_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from kappa.declare.folds.fold import Quote, ReaggregatedFold, Types, ignoring_nulls, merge_sides
from kappa.declare.folds.returned_columns import ReturnedColumns


def min_(column: str) -> Min:
    """Keeps the least value of a column; nulls are ignored. Exact.

    Example:
        Table("pages", keys=("page",), fold={"least_ms": min_("ms")})
    """
    return Min(column)


def max_(column: str) -> Max:
    """Keeps the greatest value of a column; nulls are ignored. Exact.

    Example:
        Table("pages", keys=("page",), fold={"most_ms": max_("ms")})
    """
    return Max(column)


class _Extreme(ReaggregatedFold):
    """A fold that stores the least or the greatest value.

    `beyond` is the SQL operator "<" or ">". If it holds between a contributed value and the stored
    value, the contributed value replaces the stored value.
    """

    beyond: ClassVar[str]

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        yield name, str(rows.ordered_type_of(str(self.column), self.text_of(name)))

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        held, contributed = merge_sides(quote(name))
        both = f"case when {contributed} {self.beyond} {held} then {contributed} else {held} end"
        return {quote(name): ignoring_nulls(held, contributed, both)}


class Min(_Extreme):
    """The fold that stores the least value."""

    kind = "min"
    beyond = "<"


class Max(_Extreme):
    """The fold that stores the greatest value."""

    kind = "max"
    beyond = ">"
