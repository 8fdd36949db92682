"""The fold `avg_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.fold import MergedFold, Quote, Types, merge_sides
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.sums import Total, summed_type, total_columns, total_of
from kappa.declare.values.columns import parse_type


def avg_(column: str) -> Average:
    """Averages the values of a numeric column; nulls are ignored.

    The result is a double, or null if there are no values. The average is computed from a sum and a
    count; the sum is stored in the same way as that of `sum_`. Even if the sum is too large for the
    type of `sum_`, the average is not null. Averages of whole numbers and decimals are exact up to
    the last division. Averages of doubles depend on the order of the rows.

    Example:
        Table("pages", keys=("page",), fold={"mean_ms": avg_("ms")})
    """
    return Average(column)


class Average(MergedFold):
    """The fold that averages the values that are not null.

    Two hidden columns of the table contain the sum and the number of these values.
    """

    kind = "avg"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        yield name, "double"
        yield from total_columns(name, summed_type(self, name, rows))
        yield _count_column(name), "bigint"

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (name,)

    def narrow_sums(self, name: str, types: Types) -> tuple[str, ...]:
        total = total_of(name, types)
        return (total.column,) if total.is_narrow else ()

    def value_exactness(self, name: str, types: Types) -> Exactness:
        # Without types, as far as the declaration decides it.
        is_double = bool(types) and total_of(name, types).kind == "double"
        return Exactness.ROUNDED if is_double else Exactness.EXACT

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        value, kind = self.input_sql(given), parse_type(given[str(self.column)])
        yield from total_of(name, types).contribution_sql(value, kind)
        yield f"count({value}) as {spark_quote(_count_column(name))}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        yield from total_of(name, types).combination_sql()
        hidden = spark_quote(_count_column(name))
        yield f"sum({hidden}) as {hidden}"

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        total, counted = total_of(name, types), spark_quote(_count_column(name))
        kept = total.combined_sql()
        return {**kept, name: _quotient_sql(total, kept, counted)}

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        counted = "({} + {})".format(*merge_sides(quote(_count_column(name))))
        total = total_of(name, types)
        kept = total.updated_values(quote)
        return self._quoted_values(name, types, quote, total, kept, counted) | {
            quote(_count_column(name)): counted
        }

    def inserted_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        total = total_of(name, types)
        kept = total.inserted_values(quote)
        return self._quoted_values(
            name, types, quote, total, kept, f"s.{quote(_count_column(name))}"
        )

    def _quoted_values(
        self,
        name: str,
        types: Types,
        quote: Quote,
        total: Total,
        kept: Mapping[str, str],
        counted: str,
    ) -> dict[str, str]:
        # A table of waiting contributions has no served column.
        served = {name: _quotient_sql(total, kept, counted)} if name in types else {}
        return {quote(column): sql for column, sql in {**kept, **served}.items()}


def _quotient_sql(total: Total, kept: Mapping[str, str], counted: str) -> str:
    return f"case when {counted} > 0 then {total.quotient_sql(kept, counted)} end"


def _count_column(name: str) -> str:
    """Returns the name of the hidden column that contains the number of averaged values."""
    return f"_{name}_count"
