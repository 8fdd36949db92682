"""The fold `kll`: a quantile, estimated with a KLL sketch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.sql import spark_quote
from kappa.declare.folds.exactness import Exactness, range_columns
from kappa.declare.folds.fold import Fold, Types, whole_option
from kappa.declare.folds.returned_columns import ReturnedColumns
from kappa.declare.folds.sketches import sketch_column
from kappa.declare.values.columns import INTEGERS, Decimal, Scalar


def kll(column: str, rank: float, *, k: int = 200) -> Kll:
    """Estimates a quantile of a column. The type is bigint for whole numbers, otherwise double.

    Nulls are ignored. The estimate is one of the values, and its rank is close to `rank`: in 99 of
    100 cases the two ranks differ by at most 2.3 / `k`^0.97, which is 1.3 % by default. The value
    is approximate: a KLL sketch uses random numbers, so a replay of the same records may compute
    another value. For the ranks 0 and 1, the result is exactly the least and the greatest value.

    Example:
        Table("pages", keys=("page",), fold={"p99_ms": kll("ms", 0.99)})
    """
    if not isinstance(rank, int | float) or isinstance(rank, bool) or not 0 <= rank <= 1:
        raise DeclarationError(
            f"{Source.of_caller()}: kll has rank={rank!r}, which is not a number from 0 to 1",
            hint='the median is kll("...", 0.5)',
        )
    return Kll(column, (("rank", float(rank)), whole_option("kll", "k", k, 8, 65_535)))


class Kll(Fold):
    """The fold that estimates a quantile.

    Hidden columns contain the sketch, and the bounds between which the true value is.
    """

    kind = "kll"

    def stored_columns(self, name: str, rows: ReturnedColumns) -> Iterator[tuple[str, str]]:
        kind = rows.type_of(str(self.column), self.text_of(name))
        if isinstance(kind, Scalar) and kind.name in INTEGERS:
            served = "bigint"
        elif str(kind) in {"double", "float"} or isinstance(kind, Decimal):
            served = "double"
        else:
            raise rows.table_error(
                f"folds {self.text_of(name)} over the type {kind}",
                hint="only numbers have quantiles here",
            )
        yield name, served
        yield sketch_column(name), "binary"
        yield from ((each, served) for each in range_columns(name))

    def derived_columns(self, name: str, types: Types) -> tuple[str, ...]:
        return (name, *range_columns(name))

    def compared_columns(self, name: str) -> tuple[str, ...]:
        return range_columns(name)

    def value_exactness(self, name: str, types: Types) -> Exactness:
        return Exactness.APPROXIMATE

    def contribution_sql(self, name: str, types: Types, given: Types) -> Iterator[str]:
        served, value = types[name], self.input_sql(given)
        sketched = f"kll_sketch_agg_{served}(cast({value} as {served}), {self.option_value('k')})"
        yield f"{sketched} as {spark_quote(sketch_column(name))}"

    def combination_sql(self, name: str, types: Types) -> Iterator[str]:
        sketch = spark_quote(sketch_column(name))
        yield f"kll_merge_agg_{types[name]}({sketch}, {self.option_value('k')}) as {sketch}"

    def combined_sql(self, name: str, types: Types) -> Mapping[str, str]:
        sketch = spark_quote(sketch_column(name))
        ranks = zip((name, *range_columns(name)), self._quantile_ranks(), strict=True)
        return {column: _quantile_sql(sketch, types[name], rank) for column, rank in ranks}

    def _quantile_ranks(self) -> tuple[float, float, float]:
        """Returns the declared rank, and a lower and a higher rank.

        The true quantile is almost surely between the sketch's values for the lower and the higher
        rank. Both differ from the declared rank by twice the limit of the rank's error. The error
        is within the limit in 99 of 100 cases, and exceeds twice the limit in only one of a million
        cases (DataSketches' KllHelper.getNormalizedRankError).
        """
        rank, error = (
            float(self.option_value("rank")),
            2.296 / float(self.option_value("k")) ** 0.9723,
        )
        # The least and the greatest value are kept exactly, and no rank is beyond them.
        return rank, max(rank - 2 * error, 0.0), min(rank + 2 * error, 1.0)


def _quantile_sql(sketch: str, kind: str, rank: float) -> str:
    # An empty sketch has no quantile, and Spark raises.
    return (
        f"case when kll_sketch_get_n_{kind}({sketch}) > 0 "
        f"then kll_sketch_get_quantile_{kind}({sketch}, {rank!r}D) end"
    )
