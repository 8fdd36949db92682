"""The fold `count_distinct`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.fold import Fold, Types, whole_option
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.sizes import always_fits, is_large, size_of
from kappa.declare.values.columns import Array, parse_type


def count_distinct(column: str, *, limit: int = 10_000) -> CountDistinct:
    """Counts the distinct values of a column; nulls are ignored. Exact up to `limit` values.

    The type is bigint. A hidden column stores the values. As soon as there are more than `limit`
    values, or more than 16 MiB of values, the count becomes null and stays null, and the values are
    deleted. `limit` is at most 100,000. A lower limit keeps rows small. `hll` can estimate any
    number of distinct values.

    Example:
        Table("pages", keys=("page",), fold={"visitors": count_distinct("visitor")})
    """
    return CountDistinct(column, (whole_option("count_distinct", "limit", limit, 1, 100_000),))


class CountDistinct(Fold):
    """The fold that counts the distinct values of a column.

    A hidden column contains the values. If there are too many values, the count is null.
    """

    kind = "count_distinct"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        kind = rows.distinct_type_of(str(self.column), self.text_of(name))
        yield name, "bigint"
        yield _values_column(name), str(Array(kind))

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (name,)

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        found = f"collect_set({self.input_sql(given)})"
        values = _values_column(name)
        yield f"{self._within_limit(found, types[values])} as {spark_quote(values)}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        values = spark_quote(_values_column(name))
        # A null already had too many values, and a union of more has no fewer.
        found = f"array_distinct(flatten(collect_list({values})))"
        whole = f"case when bool_and({values} is not null) then {found} end"
        yield f"{self._within_limit(whole, types[_values_column(name)])} as {values}"

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        values = spark_quote(_values_column(name))
        return {name: f"case when {values} is not null then cast(size({values}) as bigint) end"}

    def _within_limit(self, values: str, stored: str) -> str:
        """Returns Spark SQL for an array of values. The SQL returns null if the array is too large.

        `values` is the SQL of the array, and `stored` is the array's type. The limits are the
        fold's option `limit` for the number of values, and `MOST_BYTES` for their total size.
        """
        array = parse_type(stored)
        assert isinstance(array, Array), "distinct values are stored as an array"
        limit, size = int(self.option_value("limit")), size_of(array.element)
        fits = f"size({values}) <= {limit}"
        if not always_fits(size, limit):
            fits += f" and not {is_large(values, size)}"
        return f"case when {fits} then {values} end"


def _values_column(name: str) -> str:
    """Returns the name of the hidden column that contains the distinct values."""
    return f"_{name}_values"
