"""The folds `hll` and `theta`, which estimate the number of distinct values with sketches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.sql import spark_quote
from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.fold import Fold, Types, whole_option
from kappa.declare.folds.returned_columns import ReturnedColumns


def hll(column: str, *, lg_k: int = 12) -> Hll:
    """Estimates the number of distinct values of a column with a HyperLogLog sketch.

    The type is bigint. Nulls are ignored. The sketch has at most 2^`lg_k` bytes. The standard error
    is 1.04 / sqrt(2^lg_k), which is 1.6 % by default. The estimate for the same records is always
    the same, however the records are divided into slices.

    Example:
        Table("pages", keys=("page",), fold={"visitors": hll("visitor")})
    """
    return Hll(column, (whole_option("hll", "lg_k", lg_k, 4, 21),))


def theta(column: str, *, lg_k: int = 12) -> Theta:
    """Estimates the number of distinct values of a column with a theta sketch.

    The type is bigint. Nulls are ignored. The result is exact up to 2^`lg_k` values; the sketch
    needs 8 bytes for each of these values. For more values, the standard error is 1 / sqrt(2^lg_k),
    which is 1.6 % by default. The estimate for the same records is always the same, however the
    records are divided into slices.

    Example:
        Table("pages", keys=("page",), fold={"visitors": theta("visitor", lg_k=14)})
    """
    return Theta(column, (whole_option("theta", "lg_k", lg_k, 4, 26),))


def sketch_column(column: str) -> str:
    """Returns the name of the hidden column with the sketch from which an estimate is computed."""
    return f"_{column}_sketch"


class _Distinct(Fold):
    """A fold that estimates the number of distinct values with a sketch."""

    is_sketched = True

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        rows.distinct_type_of(str(self.column), self.text_of(name))
        yield name, "bigint"
        yield sketch_column(name), "binary"

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (name,)

    def value_exactness(self, name: str, types: Types) -> Exactness:
        return Exactness.ESTIMATED

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        value = self.input_sql(given)
        # Spark's sketches ignore an empty text, and take only some types: hashes let each value
        # count.
        hashed = f"case when {value} is not null then xxhash64({value}) end"
        sketch = spark_quote(sketch_column(name))
        yield f"{self.kind}_sketch_agg({hashed}, {self.option_value('lg_k')}) as {sketch}"


class Hll(_Distinct):
    """The fold that estimates the number of distinct values with a HyperLogLog sketch."""

    kind = "hll"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        sketch = spark_quote(sketch_column(name))
        yield f"hll_union_agg({sketch}) as {sketch}"

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        sketch = spark_quote(sketch_column(name))
        # A sketch remembers the order in which values came, and estimates by that order, until a
        # union with another sketch, or even with itself.
        return {name: f"hll_sketch_estimate(hll_union({sketch}, {sketch}))"}


class Theta(_Distinct):
    """The fold that estimates the number of distinct values with a theta sketch."""

    kind = "theta"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        sketch = spark_quote(sketch_column(name))
        # A union keeps exactly the 2^lg_k least hashes, in whatever order the sketches met them.
        yield f"theta_union_agg({sketch}, {self.option_value('lg_k')}) as {sketch}"

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        return {name: f"theta_sketch_estimate({spark_quote(sketch_column(name))})"}
