"""The fold `set_`."""

from __future__ import annotations

from collections.abc import Iterator

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Fold, Types, whole_option
from kappa.declare.folds.returned import ReturnedColumns
from kappa.declare.values.columns import Array


def set_(column: str, *, limit: int = 1000) -> DistinctSet:
    """Keeps the distinct values, nulls ignored, as a sorted array, empty if no value is left.

    Exact, up to `limit` values. Of more, the `limit` least by hash are kept: a sample that is the
    same for any slices. The boolean column `<name>_overflow` beside the set is then true.

    Example:
        Table("pages", keys=("page",), fold={"visitors": set_("visitor", limit=100)})
    """
    return DistinctSet(column, (whole_option("set_", "limit", limit, 1, 100_000),))


def overflow_column(column: str) -> str:
    """Returns the served column that is true if a fold had more values than it keeps."""
    return f"{column}_overflow"


class DistinctSet(Fold):
    """The distinct values, of many a sample."""

    kind = "set"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        yield name, str(Array(rows.distinct_type_of(str(self.column), self.text_of(name))))
        yield overflow_column(name), "boolean"

    def extra_columns(self, name: str) -> tuple[str, ...]:
        return (overflow_column(name),)

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        found = f"collect_set({self.input_sql(given)})"
        yield f"{self._cut_to_limit(found)} as {spark_quote(name)}"
        yield (
            f"size({found}) > {self.option_value('limit')} as {spark_quote(overflow_column(name))}"
        )

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        own, overflow = spark_quote(name), spark_quote(overflow_column(name))
        found = f"array_distinct(flatten(collect_list({own})))"
        yield f"{self._cut_to_limit(found)} as {own}"
        yield f"bool_or({overflow}) or size({found}) > {self.option_value('limit')} as {overflow}"

    def _cut_to_limit(self, values: str) -> str:
        """Returns Spark's SQL that keeps so many of an array's distinct values, sorted (law 8)."""
        hashed = (
            f"array_sort(transform({values}, each -> "
            "struct(xxhash64(each) as hash, each as value)))"
        )
        return (
            f"array_sort(transform(slice({hashed}, 1, {self.option_value('limit')}), each -> "
            "each.value))"
        )
