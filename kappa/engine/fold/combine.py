"""Contributions by key in SQL, and the combination of folds that no merge can express.

Each key has a single contribution per slice. A merge statement folds contributions into the table
(kappa/tables/merge.py). kappa/declare/folds defines the meaning of each kind of fold.

No merge can express sets, top rows and sketches. For such folds, affected_rows.py reads the stored
rows of the touched keys at the version of the previous slice, and these rows are joined with the
slice's contributions. One aggregation per key, defined here in Spark's SQL, then computes the
table's new rows, which replace the stored rows. For small slices, the plan of the aggregation is
made once and reused (engine/fold/file_scan.py); a large slice is combined by a join. If a table has
one such fold, the aggregation computes all folds of the table. All other tables are merged.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.sql import spark_quote
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.affected_rows import touched_frame, touched_rows
from kappa.engine.fold.file_scan import Leaf, session_of_leaves
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns


class Combiner:
    """The combination of a slice's contributions to a table with the table's stored rows."""

    def __init__(self, table: TableBirth, path: str, folder: str) -> None:
        """Creates the combination for the table at `path`.

        Files with the rows of the current slice are written to `folder`. `path` and `folder` are
        paths or URLs.
        """
        self._table = table
        self._path = path
        self._folder = folder
        types = dict(table.columns)
        self._contributed = contribution_columns(table)
        self._stored = tuple((name, types[name]) for name, _ in self._contributed)
        self._here: _Plan | None = None

    def here(self, contributions: pa.Table, version: int) -> pa.Table:
        """Combines a small slice's contributions with the stored rows, and returns the new rows.

        `version` is the table's version after the previous slice.
        """
        if self._here is None:
            self._here = _Plan(self._table, self._stored, self._contributed, self._folder)
        return self._here.run(
            touched_rows(self._path, version, self._stored, contributions.select(self._table.keys)),
            contributions,
        )

    def at_spark(self, contributions: DataFrame, version: int) -> DataFrame:
        """Combines a large slice's contributions with the stored rows, and returns the new rows.

        `version` is the table's version after the previous slice. Spark reads the contributions
        twice, so the caller must persist them.
        """
        keys = contributions.select(*map(spark_quote, self._table.keys))
        return _combined(
            self._table,
            touched_frame(contributions.sparkSession, self._path, version, self._stored, keys),
            contributions,
        )


class _Plan:
    """The Spark plan that combines small slices, made once for a table.

    The plan reads two files, whose rows are replaced before each run: the stored rows of the
    touched keys, and the contributions.
    """

    def __init__(
        self,
        table: TableBirth,
        stored: tuple[tuple[str, str], ...],
        contributed: tuple[tuple[str, str], ...],
        folder: str,
    ) -> None:
        self._table = table
        self._schema = arrow_schema(table.columns)
        self._leaves = (
            Leaf(f"{folder}/stored.parquet", stored),
            Leaf(f"{folder}/contributed.parquet", contributed),
        )
        # Threads commit the tables, and no thread has a session of its own: the process's session.
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
    """Combines stored rows and contributions, and returns a frame of the table's new rows.

    `stored` contains the table's rows, and `contributed` the contributions to the same keys. With
    `one_partition`, all rows are in a single partition, so the aggregation needs no exchange.
    """
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


def aggregates(table: TableBirth, given: Mapping[str, str]) -> tuple[str, ...]:
    """Returns Spark SQL expressions that aggregate the rows of a key into one contribution.

    `given` contains the columns of these rows, with their types.
    """
    types, folds = dict(table.columns), table.folds
    # In the table's order: the order of `fold` depends on the birth certificate's JSON.
    return tuple(
        sql
        for name, _ in table.columns
        if name in folds
        for sql in folds[name].contribution_sql(name, types, given)
    )


def combinations(table: TableBirth) -> tuple[str, ...]:
    """Returns Spark SQL expressions that fold all rows of a key into one row.

    The rows are the stored row and the contributions. Pure.
    """
    types, folds = dict(table.columns), table.folds
    return tuple(
        sql
        for name, _ in table.columns
        if name in folds
        for sql in folds[name].combination_sql(name, types)
    )


def combined_columns(table: TableBirth) -> tuple[str, ...]:
    """Returns Spark SQL expressions that compute a table's columns from the folded values.

    Sums are cast to the stored type. Some columns are computed from hidden columns. Pure.
    """
    types = dict(table.columns)
    combined = {
        column: sql
        for name, fold in table.folds.items()
        for column, sql in fold.combined_sql(name, types).items()
    }
    return tuple(
        f"{combined.get(name, spark_quote(name))} as {spark_quote(name)}"
        for name, _ in table.columns
    )
