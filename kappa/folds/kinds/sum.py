"""The fold `sum_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.folds.exactness import Exactness
from kappa.folds.fold import MergedFold, Quote, Types, sides
from kappa.folds.kinds.sums import narrow, sum_aggregate, sum_updated, summed_type
from kappa.folds.returned import Returned
from kappa.values.columns import parse_type


def sum_(column: str) -> Sum:
    """Adds a numeric column, nulls ignored; null if no value is left.

    Exact for whole numbers (bigint; overflow stops the job) and decimals; sums of doubles depend
    on the order.

    Example:
        Table("pages", keys=("page",), fold={"ms": sum_("ms")})
    """
    return Sum(column)


class Sum(MergedFold):
    """The sum of the values that are not null."""

    kind = "sum"

    def stored(self, name: str, rows: Returned) -> Iterator[tuple[str, str]]:
        yield name, str(summed_type(self, name, rows))

    def sums(self, name: str) -> tuple[str, ...]:
        return (name,)

    def exactness(self, name: str, types: Types) -> Exactness:
        return Exactness.ROUNDED if types.get(name) == "double" else Exactness.EXACT

    def aggregates(self, name: str, types: Types, given: Types) -> Iterator[str]:
        kind = parse_type(given[str(self.column)])
        yield f"{sum_aggregate(self.value(given), kind, types[name])} as {spark_quote(name)}"

    def combinations(self, name: str, types: Types) -> Iterator[str]:
        yield f"sum({spark_quote(name)}) as {spark_quote(name)}"

    def combined(self, name: str, types: Types) -> Mapping[str, str]:
        return {name: narrow(spark_quote(name), types[name])}

    def updated(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        return {quote(name): sum_updated(*sides(quote(name)), types[name])}

    def inserted(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        return {quote(name): narrow(f"s.{quote(name)}", types[name])}
