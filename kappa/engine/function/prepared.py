"""A function as a plan that is run for every small slice.

The plan is made once. Calling the function, analysing and planning take Spark some 200 ms, and
running the plan some 30: freshness depends on these times. The same plan gives other rows each time
because of its leaves (engine/fold/leaf.py). Spark keeps nothing from one run to the next, since the
plan has no exchange and no cache, which a row-by-row function does not need. If a function reads a
clock or throws dice, and was let through, the function is planned anew for each slice: Spark
computes that part when planning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import Broken
from kappa.base.sql import spark_quote
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.fold.leaf import Leaf, session_of_leaves
from kappa.engine.function.contribution import Function
from kappa.engine.function.expired import EXPIRED, EXPIRED_COLUMNS
from kappa.engine.spark.rowlocal import changing
from kappa.engine.spark.united import united
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns

# Parts of a physical plan that keep computed rows.
_KEEPING = ("Exchange", "InMemoryTableScan", "AdaptiveSparkPlan")


class Prepared:
    """Contributions of small slices to all tables of a function."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        function: Function,
        tables: Mapping[str, TableBirth],
        folder: str,
    ) -> None:
        """Makes the plan, and raises Broken as `Function` does.

        `folder`, a path or URL, takes the rows of the slice that is being folded.
        """
        self._pipeline = pipeline
        self._function = function
        self._columns = {
            table.name: tables[table.name].steps_over or contribution_columns(tables[table.name])
            for table in pipeline.function_tables
        }
        if any(table.refuses_expired for table in pipeline.function_tables):
            self._columns[EXPIRED] = EXPIRED_COLUMNS
        self._leaves = {
            topic.name: Leaf(f"{folder}/{topic.name}.parquet", pipeline.columns_of(topic))
            for topic in pipeline.input_topics
        }
        self._session = session_of_leaves(spark)
        self._plan = self._planned()
        # PySpark has no public way to a plan's tree.
        analyzed = self._plan._jdf.queryExecution().analyzed()  # noqa: SLF001
        self._changes = bool(changing(json.loads(analyzed.toJSON())))

    def run(self, rows: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Returns the contributions of a slice to each table.

        `rows` are the slice's valid records, per topic. If rows expire, the expired rows are in the
        result, too.
        """
        self._put(rows)
        together: pa.Table = self._plan.toArrow()
        return {
            name: _unpacked(together, place, arrow_schema(columns))
            for place, (name, columns) in enumerate(self._columns.items())
        }

    def run_apart(self, rows: Mapping[str, pa.Table]) -> None:
        """Computes one table after the other.

        So of several errors the same error is always raised.
        """
        self._put(rows)
        for frame in self._frames.values():
            frame.toArrow()

    def _put(self, rows: Mapping[str, pa.Table]) -> None:
        fits = [leaf.put(rows.get(name)) for name, leaf in self._leaves.items()]
        if self._changes or not all(fits):
            self._plan = self._planned()

    def _planned(self) -> DataFrame:
        inputs = {
            parameter: united(self._leaves[topic.name].frame(self._session) for topic in topics)
            for parameter, topics in self._pipeline.inputs.items()
        }
        # In a single partition each, an aggregation needs no exchange.
        self._frames = self._function.contributions(inputs, one_partition=True)
        plan = self._together(self._frames)
        physical = str(plan._jdf.queryExecution().executedPlan().toString())  # noqa: SLF001  # `explain` prints it and gives nothing back
        keeping = next((word for word in _KEEPING if word in physical), None)
        if keeping is not None:
            raise Broken(
                f"{self._pipeline.source}: pipeline {self._pipeline.name} keeps or moves rows"
                f" between runs ({keeping} in its plan)",
                hint="leave cache, repartition and the like out of the function",
            )
        return plan

    def _together(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Packs all tables' contributions into one frame.

        So one action computes all contributions. The frame has a column per table, a struct.
        """
        packed = [
            frames[name].selectExpr(
                f"{place} as place",
                *(
                    _packed(other, columns, own=other == name)
                    for other, columns in self._columns.items()
                ),
            )
            for place, name in enumerate(self._columns)
        ]
        rows = packed[0]
        for more in packed[1:]:
            rows = rows.unionAll(more)
        return rows


def _packed(name: str, columns: tuple[tuple[str, str], ...], *, own: bool) -> str:
    if own:
        names = ", ".join(spark_quote(column) for column, _ in columns)
        return f"struct({names}) as {spark_quote(name)}"
    fields = ", ".join(f"{spark_quote(column)}: {kind}" for column, kind in columns)
    return f"cast(null as struct<{fields}>) as {spark_quote(name)}"


def _unpacked(together: pa.Table, place: int, schema: pa.Schema) -> pa.Table:
    own = (
        together.filter(pc.equal(together.column("place"), place))
        .column(place + 1)
        .combine_chunks()
    )
    return pa.Table.from_arrays(own.flatten(), names=schema.names).cast(schema)
