"""The fold `set_`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Fold, Types, whole_option
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.sizes import always_fits, first_values, is_large, size_of, sum_of_sizes
from kappa.declare.values.columns import Array, Type, parse_type


def set_(column: str, *, limit: int = 1000) -> DistinctSet:
    """Keeps the distinct values of a column as a sorted array; nulls are ignored.

    Exact up to `limit` values and up to 16 MiB. The array is empty if there are no values. If there
    are more values, the fold keeps the values with the least hashes: `limit` values, or as many as
    fit into 16 MiB. This sample does not depend on how records are divided into slices. The boolean
    column `<name>_overflow` is true if the array is only a sample.

    Example:
        Table("pages", keys=("page",), fold={"visitors": set_("visitor", limit=100)})
    """
    return DistinctSet(column, (whole_option("set_", "limit", limit, 1, 100_000),))


def overflow_column(column: str) -> str:
    """Returns the name of the served boolean column that shows whether values were dropped.

    The column is true if a fold had more values than it may keep.
    """
    return f"{column}_overflow"


def cut_column(column: str) -> str:
    """Returns the name of the hidden boolean column that shows why values were dropped.

    The column is true if values were dropped because of their size in bytes.
    """
    return f"_{column}_cut"


class DistinctSet(Fold):
    """The fold that stores the distinct values, or a sample of them if there are too many."""

    kind = "set"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        kind = rows.distinct_type_of(str(self.column), self.text_of(name))
        yield name, str(Array(kind))
        yield overflow_column(name), "boolean"
        if not always_fits(size_of(kind), self._limit):
            yield cut_column(name), "boolean"

    def extra_columns(self, name: str) -> tuple[str, ...]:
        return (overflow_column(name),)

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (cut_column(name),) if cut_column(name) in types else ()

    def overflow_mark(self, name: str) -> str | None:
        return cut_column(name)

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        yield from self._set_sql(name, types, f"collect_set({self.input_sql(given)})")

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        found = f"array_distinct(flatten(collect_list({spark_quote(name)})))"
        before = f"bool_or({spark_quote(overflow_column(name))}) or "
        yield from self._set_sql(name, types, found, before)

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        size = f"size({spark_quote(name)})"
        is_cut = f"{spark_quote(overflow_column(name))} and {size} < {self._limit}"
        return {cut_column(name): is_cut}

    def _set_sql(self, name: str, types: Types, found: str, before: str = "") -> Iterator[str]:
        """Yields Spark SQL that keeps the values of an array with the least hashes.

        So many values are kept as the limits for number and bytes allow. `found` is the SQL of the
        array of distinct values. `before` is the beginning of an SQL condition, up to and including
        `or`, that is true if values were already dropped; it may be empty.
        """
        kind = _element_type(types[name])
        by_hash = (
            f"array_sort(transform({found}, each -> struct(xxhash64(each) as hash, each as value)))"
        )
        size = sum_of_sizes({".value": size_of(kind)}, 0)
        kept = first_values(by_hash, self._limit, size)
        more = f"size({found}) > {self._limit}"
        if not always_fits(size, self._limit):
            # Of few bytes, which is the rule, the values need not be sorted once more.
            more += f" or ({is_large(found, size_of(kind))} and size({found}) > size({kept}))"
        yield f"array_sort(transform({kept}, each -> each.value)) as {spark_quote(name)}"
        yield f"{before}{more} as {spark_quote(overflow_column(name))}"

    @property
    def _limit(self) -> int:
        return int(self.option_value("limit"))


def _element_type(kind: str) -> Type:
    array = parse_type(kind)
    assert isinstance(array, Array), "a set is stored as an array"
    return array.element
