"""The fold `count`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import MergedFold, Quote, Types, merge_sides
from kappa.declare.folds.returned_columns import ReturnedColumns


def count(column: str | None = None) -> Count:
    """Counts the rows, or the values of `column` that are not null. Exact.

    The type is bigint.

    Example:
        Table("pages", keys=("page",), fold={"visits": count(), "timed": count("ms")})
    """
    return Count(column)


class Count(MergedFold):
    """The fold that counts rows, or the values of a column that are not null."""

    kind = "count"

    @property
    def given_columns(self) -> tuple[object, ...]:
        return self.input_columns

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        if self.column is not None:
            rows.type_of(self.column, self.text_of(name))
        yield name, "bigint"

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        counted = "1" if self.column is None else self.input_sql(given)
        yield f"count({counted}) as {spark_quote(name)}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        yield f"sum({spark_quote(name)}) as {spark_quote(name)}"

    def updated_values(self, name: str, types: Types, quote: Quote) -> Mapping[str, str]:
        held, contributed = merge_sides(quote(name))
        return {quote(name): f"{held} + {contributed}"}
