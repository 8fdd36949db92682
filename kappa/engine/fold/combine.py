"""Folds that no merge can say: sets, top rows and sketches are combined with the rows of their keys, and these written whole.

The rows of the touched keys are read at the version of the slice before (engine/fold/touched.py) and put beside what the slice
contributes; then one aggregation per key, written once here in Spark's SQL, gives the table's new rows, for a small slice by
a plan that is made once (engine/fold/leaf.py), for a large one by a join. A table that has one such fold has all its folds combined
so; other tables are merged as ever. Read next: engine/fold/fold.py for what a slice contributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.sql import spark_quote
from kappa.declare.table import FOLD_ORDER_COLUMNS, FoldKind, Option, overflow_column
from kappa.engine.fold.fold import least_by_hash
from kappa.engine.fold.leaf import Leaf, session_of_leaves
from kappa.engine.fold.touched import touched_frame, touched_rows
from kappa.state.build import TableBirth, range_columns
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import order_column, sketch_column, top_column
from kappa.values.arrow import arrow_schema


class Combiner:
    """Combines what slices contribute to one table with the rows of their keys."""

    def __init__(self, table: TableBirth, path: str, folder: Path) -> None:
        """`path` is the table's; `folder` takes the rows of the slice that is being folded."""
        self._table = table
        self._path = path
        self._folder = folder
        types = dict(table.columns)
        self._contributed = contribution_columns(table)
        self._stored = tuple((name, types[name]) for name, _ in self._contributed)
        self._here: _Plan | None = None

    def here(self, contributions: pa.Table, version: int) -> pa.Table:
        """The new rows of a small slice's keys; `version` is the table's, of the slice before."""
        if self._here is None:
            self._here = _Plan(self._table, self._stored, self._contributed, self._folder)
        return self._here.run(
            touched_rows(self._path, version, self._stored, contributions.select(self._table.keys)),
            contributions,
        )

    def at_spark(self, contributions: DataFrame, version: int) -> DataFrame:
        """The new rows of a large slice's keys. It reads the contributions twice: they are to be kept."""
        keys = contributions.select(*map(spark_quote, self._table.keys))
        return _combined(
            self._table,
            touched_frame(contributions.sparkSession, self._path, version, self._stored, keys),
            contributions,
        )


class _Plan:
    """The combination as one plan that is made once, over a leaf of rows and a leaf of contributions."""

    def __init__(
        self,
        table: TableBirth,
        stored: tuple[tuple[str, str], ...],
        contributed: tuple[tuple[str, str], ...],
        folder: Path,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._table = table
        self._schema = arrow_schema(table.columns)
        self._leaves = (
            Leaf(folder / "stored.parquet", stored),
            Leaf(folder / "contributed.parquet", contributed),
        )
        # Tables are committed by threads, none of which has a session of its own: this is the process's.
        self._session = session_of_leaves(SparkSession.active())
        self._plan = self._planned()

    def run(self, *rows: pa.Table) -> pa.Table:
        fits = [leaf.put(each) for leaf, each in zip(self._leaves, rows, strict=True)]
        if not all(fits):
            self._plan = self._planned()
        combined: pa.Table = self._plan.toArrow()
        return combined.cast(self._schema)

    def _planned(self) -> DataFrame:
        stored, contributed = (leaf.frame(self._session) for leaf in self._leaves)
        return _combined(self._table, stored, contributed, one_partition=True)


def _combined(
    table: TableBirth, stored: DataFrame, contributed: DataFrame, *, one_partition: bool = False
) -> DataFrame:
    """The table's new rows, by its rows and contributions of the same keys; in one partition an aggregation needs no exchange."""
    carried = (
        f"cast({spark_quote(name)} as {kind}) as {spark_quote(name)}"
        for name, kind in contribution_columns(table)
    )
    rows = stored.selectExpr(*carried).unionAll(contributed)
    states = (
        (rows.coalesce(1) if one_partition else rows)
        .groupBy(*(F.col(spark_quote(key)) for key in table.keys))
        .agg(*map(F.expr, combinations(table)))
    )
    return states.selectExpr(*combined_columns(table))


def combinations(table: TableBirth) -> tuple[str, ...]:
    """Spark's SQL that folds rows and contributions of one key into one. Pure."""
    return tuple(
        each
        for name, _ in table.columns
        if name in table.fold
        for each in _combinations(name, FoldKind(table.fold[name][0]), table)
    )


def combined_columns(table: TableBirth) -> tuple[str, ...]:
    """Spark's SQL for the columns of a table, by what was folded: sums as narrow as they are stored, and what follows from hidden columns. Pure."""
    following = {
        column: sql
        for name, (how, _) in table.fold.items()
        for column, sql in _following(name, FoldKind(how), table).items()
    }
    return tuple(
        f"{following.get(name, spark_quote(name))} as {spark_quote(name)}"
        for name, _ in table.columns
    )


def _combinations(name: str, how: FoldKind, table: TableBirth) -> Iterator[str]:
    own, sketch, top = map(spark_quote, (name, sketch_column(name), top_column(name)))
    options = table.options.get(name, {})
    match how:
        case FoldKind.COUNT | FoldKind.SUM:
            yield f"sum({own}) as {own}"
        case FoldKind.MIN | FoldKind.MAX:
            yield f"{how}({own}) as {own}"
        case FoldKind.AND | FoldKind.OR:
            yield f"bool_{how}({own}) as {own}"
        case FoldKind.FIRST | FoldKind.LATEST:
            order = [spark_quote(order_column(name, of)) for of, _ in FOLD_ORDER_COLUMNS]
            by = f"{'max' if how is FoldKind.LATEST else 'min'}_by({{}}, struct({', '.join(order)})) filter (where {order[0]} is not null)"
            yield from (f"{by.format(column)} as {column}" for column in (own, *order))
        case FoldKind.SET:
            found = f"array_distinct(flatten(collect_list({own})))"
            overflow = spark_quote(overflow_column(name))
            yield f"{least_by_hash(found, options)} as {own}"
            yield f"bool_or({overflow}) or size({found}) > {options['limit']} as {overflow}"
        case FoldKind.TOP_K:
            yield f"slice(sort_array(flatten(collect_list({top})), false), 1, {options['k']}) as {top}"
        case FoldKind.HLL:
            yield f"hll_union_agg({sketch}) as {sketch}"
        case FoldKind.THETA:
            # Of a union exactly the 2^lg_k least hashes are kept, whatever the order in which sketches have met them.
            yield f"theta_union_agg({sketch}, {options['lg_k']}) as {sketch}"
        case FoldKind.KLL:
            yield f"kll_merge_agg_{dict(table.columns)[name]}({sketch}, {options['k']}) as {sketch}"


def _following(name: str, how: FoldKind, table: TableBirth) -> Mapping[str, str]:
    types, sketch = dict(table.columns), spark_quote(sketch_column(name))
    match how:
        case FoldKind.SUM:
            return {name: f"cast({spark_quote(name)} as {types[name]})"}
        case FoldKind.TOP_K:
            return {name: f"transform({spark_quote(top_column(name))}, each -> each.value)"}
        case FoldKind.HLL:
            # A sketch remembers the order in which it met values, and estimates by it, until it is united with another: with itself too.
            return {name: f"hll_sketch_estimate(hll_union({sketch}, {sketch}))"}
        case FoldKind.THETA:
            return {name: f"theta_sketch_estimate({sketch})"}
        case FoldKind.KLL:
            return dict(
                zip(
                    (name, *range_columns(name)),
                    (_quantile(sketch, types[name], rank) for rank in _ranks(table.options[name])),
                    strict=True,
                )
            )
        case _:
            return {}


def _ranks(options: Mapping[str, Option]) -> tuple[float, float, float]:
    """The rank that is asked for, and those between whose values the true one lies, all but surely.

    Within once the error it does in 99 of 100 cases; within twice, in a million. (DataSketches' KllHelper.getNormalizedRankError)
    """
    rank, error = float(options["rank"]), 2.296 / float(options["k"]) ** 0.9723
    # The least and the greatest value are kept exactly, and a rank beyond them has none.
    return rank, max(rank - 2 * error, 0.0), min(rank + 2 * error, 1.0)


def _quantile(sketch: str, kind: str, rank: float) -> str:
    # An empty sketch has no quantile, and Spark raises.
    return f"case when kll_sketch_get_n_{kind}({sketch}) > 0 then kll_sketch_get_quantile_{kind}({sketch}, {rank!r}D) end"
