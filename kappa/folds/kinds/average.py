"""The fold `avg_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.folds.exactness import Exactness
from kappa.folds.fold import MergedFold, Quote, Types, sides
from kappa.folds.kinds.sums import narrow, sum_aggregate, sum_updated, summed_type
from kappa.folds.returned import Returned
from kappa.values.columns import parse_type


def avg_(column: str) -> Average:
    """Averages a numeric column, nulls ignored; double, null if no value is left.

    It is kept as a sum and a count, by the rules of `sum_`. For whole numbers and decimals it is
    exact up to the last division, and a sum that does not fit stops the job. Averages of doubles
    depend on the order.

    Example:
        Table("pages", keys=("page",), fold={"mean_ms": avg_("ms")})
    """
    return Average(column)


class Average(MergedFold):
    """The average of the values that are not null. Hidden columns keep sum and number."""

    kind = "avg"

    def stored(self, name: str, rows: Returned) -> Iterator[tuple[str, str]]:
        summed = summed_type(self, name, rows)
        yield name, "double"
        yield _sum(name), str(summed)
        yield _count(name), "bigint"

    def following(self, name: str) -> tuple[str, ...]:
        return (name,)

    def sums(self, name: str) -> tuple[str, ...]:
        return (_sum(name),)

    def exactness(self, name: str, types: Types) -> Exactness:
        return Exactness.ROUNDED if types.get(_sum(name)) == "double" else Exactness.EXACT

    def aggregates(self, name: str, types: Types, given: Types) -> Iterator[str]:
        value, kind = self.value(given), parse_type(given[str(self.column)])
        yield f"{sum_aggregate(value, kind, types[_sum(name)])} as {spark_quote(_sum(name))}"
        yield f"count({value}) as {spark_quote(_count(name))}"

    def combinations(self, name: str, types: Types) -> Iterator[str]:
        for hidden in map(spark_quote, (_sum(name), _count(name))):
            yield f"sum({hidden}) as {hidden}"

    def combined(self, name: str, types: Types) -> Mapping[str, str]:
        kind = types[_sum(name)]
        total = narrow(spark_quote(_sum(name)), kind)
        return {_sum(name): total, name: _quotient(total, spark_quote(_count(name)), kind)}

    def updated(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        total = sum_updated(*sides(quote(_sum(name))), types[_sum(name)])
        counted = "({} + {})".format(*sides(quote(_count(name))))
        kept = {quote(_sum(name)): total, quote(_count(name)): counted}
        return kept | self._served(name, types, quote, total, counted)

    def inserted(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        total = narrow(f"s.{quote(_sum(name))}", types[_sum(name)])
        counted = f"s.{quote(_count(name))}"
        return {quote(_sum(name)): total} | self._served(name, types, quote, total, counted)

    def _served(
        self, name: str, types: Types, quote: Quote, total: str, counted: str
    ) -> dict[str, str]:
        # A table of contributions that wait has no served column.
        kind = types[_sum(name)]
        return {quote(name): _quotient(total, counted, kind)} if name in types else {}


def _quotient(total: str, counted: str, kind: str) -> str:
    # Engines cast decimals to doubles in different ways, but all read a decimal's text as the
    # nearest double.
    exact = f"cast({total} as string)" if kind.startswith("decimal") else total
    divided = f"cast({exact} as double) / cast({counted} as double)"
    return f"case when {counted} > 0 then {divided} end"


def _sum(name: str) -> str:
    """Returns the hidden column of the sum."""
    return f"_{name}_sum"


def _count(name: str) -> str:
    """Returns the hidden column of the number of values."""
    return f"_{name}_count"
