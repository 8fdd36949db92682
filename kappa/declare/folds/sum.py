"""The fold `sum_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.fold import MergedFold, Quote, Types
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.set import overflow_column
from kappa.declare.folds.sums import summed_type, total_columns, total_of
from kappa.declare.values.columns import parse_type


def sum_(column: str) -> Sum:
    """Adds the values of a numeric column; nulls are ignored. Without values, the sum is null.

    Exact for whole numbers (bigint) and decimals. Sums of doubles depend on the order of the rows.
    If a sum does not fit its type, the served sum is null, and the boolean column `<name>_overflow`
    is true. Hidden columns store the sum in a wider type. As soon as later records reduce the sum
    so that it fits its type, the sum is served again.

    Example:
        Table("pages", keys=("page",), fold={"ms": sum_("ms")})
    """
    return Sum(column)


class Sum(MergedFold):
    """The fold that adds the values that are not null.

    Hidden columns of the table contain the sum in a wider type than the served column.
    """

    kind = "sum"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        served = summed_type(self, name, rows)
        yield name, str(served)
        yield from total_columns(name, served)
        yield overflow_column(name), "boolean"

    def extra_columns(self, name: str) -> tuple[str, ...]:
        return (overflow_column(name),)

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        # Where a build was born before the total was wide, the sum is the total.
        total = total_of(name, types)
        return () if total.column == name else (name, overflow_column(name))

    def overflow_mark(self, name: str) -> str | None:
        return overflow_column(name)

    def narrow_sums(self, name: str, types: Types) -> tuple[str, ...]:
        total = total_of(name, types)
        return (total.column,) if total.is_narrow else ()

    def value_exactness(self, name: str, types: Types) -> Exactness:
        return Exactness.ROUNDED if types.get(name) == "double" else Exactness.EXACT

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        kind = parse_type(given[str(self.column)])
        yield from total_of(name, types).contribution_sql(self.input_sql(given), kind)

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        yield from total_of(name, types).combination_sql()

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        return self._with_served(name, types, total_of(name, types).combined_sql())

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        columns = self._with_served(name, types, total_of(name, types).updated_values(quote))
        return {quote(column): sql for column, sql in columns.items()}

    def inserted_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        columns = self._with_served(name, types, total_of(name, types).inserted_values(quote))
        return {quote(column): sql for column, sql in columns.items()}

    def _with_served(self, name: str, types: Types, kept: Mapping[str, str]) -> Mapping[str, str]:
        # A table of contributions that wait has no served column.
        if overflow_column(name) not in types:
            return kept
        total = total_of(name, types)
        value = total.value_sql(kept, types[name])
        is_lost = f"({kept[total.column]}) is not null and ({value}) is null"
        return {**kept, name: value, overflow_column(name): is_lost}
