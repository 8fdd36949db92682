"""The fold `count`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import MergedFold, Quote, Types, sides
from kappa.declare.folds.returned import Returned


def count(column: str | None = None) -> Count:
    """Counts rows, or with a column the values that are not null. Exact; bigint.

    Example:
        Table("pages", keys=("page",), fold={"visits": count(), "timed": count("ms")})
    """
    return Count(column)


class Count(MergedFold):
    """The number of rows, or of values that are not null."""

    kind = "count"

    @property
    def given(self) -> tuple[object, ...]:
        return self.inputs

    def stored(self, name: str, rows: Returned) -> Iterator[tuple[str, str]]:
        if self.column is not None:
            rows.type_of(self.column, self.text_of(name))
        yield name, "bigint"

    def aggregates(self, name: str, types: Types, given: Types) -> Iterator[str]:
        counted = "1" if self.column is None else self.value(given)
        yield f"count({counted}) as {spark_quote(name)}"

    def combinations(self, name: str, types: Types) -> Iterator[str]:
        yield f"sum({spark_quote(name)}) as {spark_quote(name)}"

    def updated(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        held, contributed = sides(quote(name))
        return {quote(name): f"{held} + {contributed}"}
