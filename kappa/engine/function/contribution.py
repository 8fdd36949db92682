"""The contributions of a slice: the function's rows, folded by key.

The user's function runs on decoded rows, and its result is checked against the build's tables. If
the function raises an error, or returns other columns than at the build's birth, the job stops with
an error that names the line of the user's code, since the same slice would fail again.

Small slices run through a plan that is made once. Spark needs some 200 ms to call the function and
to make the plan, and some 30 ms to run the plan; these times add to the delay with which readers
see a record. The same plan computes new rows in each run because the plan's leaves read other rows
(engine/fold/file_scan.py). Spark stores nothing between the runs: a row-by-row function needs no
exchange and no cache, and the plan contains neither. Usually a function that reads a clock or uses
random numbers is refused. If such a function was accepted, the function is planned again for each
slice, since Spark computes such values while planning.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kappa.base.errors import Broken, KappaError
from kappa.base.sql import spark_quote, text
from kappa.declare.folds.sums import carried_type
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import Array, Scalar, Struct, Type, parse_type
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS
from kappa.engine.fold.combine import aggregates
from kappa.engine.fold.file_scan import Leaf, session_of_leaves
from kappa.engine.function.expired_rows import EXPIRED, EXPIRED_COLUMNS, expired_rows
from kappa.engine.function.failure import REPLAY, raised_here
from kappa.engine.spark.function_plan import changing, class_of, nested
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import table_births

_READ = "LogicalRelation"
_ID = re.compile(r"#(\d+)")
# Parts of a physical plan that keep computed rows.
_KEEPING = ("Exchange", "InMemoryTableScan", "AdaptiveSparkPlan")


class Function:
    """A pipeline's function, with the check of its result against a build's tables."""

    def __init__(self, pipeline: Pipeline, tables: Mapping[str, TableBirth]) -> None:
        self._pipeline = pipeline
        self._tables = {table.name: tables[table.name] for table in pipeline.function_tables}
        # Shapes that were found right; the same function gives the same shapes, slice after slice.
        self._right: set[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = set()

    def contributions(
        self, inputs: Mapping[str, DataFrame], *, one_partition: bool = False
    ) -> dict[str, DataFrame]:
        """Calls the function, and returns a lazy frame of contributions for each of its tables.

        Depending on the table, a frame contains rows to append unchanged, one row per key to fold
        in, or the rows that a step folds. If rows expire, another frame, named EXPIRED, contains
        the expired rows (expired_rows.py). `inputs` contains a frame per parameter. If
        `one_partition` is True, each result is computed in a single partition. If the function
        fails or returns other tables or columns, raises Broken with the line of the user's code.
        """
        returned = self._called(inputs)
        given = {
            name: {
                field.name: field.dataType.simpleString() for field in returned[name].schema.fields
            }
            for name in self._tables
        }
        self._check_shapes(given)
        if one_partition:
            returned = {name: rows.coalesce(1) for name, rows in returned.items()}
        contributed = {
            name: _for_step(returned[name], table)
            if table.steps_over
            else _selected(returned[name], table.columns)
            if not table.keys
            else _folded(returned[name], table, given[name])
            for name, table in self._tables.items()
        }
        expired = expired_rows(tuple(self._tables.values()), returned)
        return contributed if expired is None else {**contributed, EXPIRED: expired}

    def _called(self, inputs: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
        pipeline = self._pipeline
        try:
            returned: Any = pipeline.function(**inputs)
        except Exception as error:
            raise raised_here(error, pipeline) from error
        wanted = sorted(self._tables)
        if (
            not isinstance(returned, Mapping)
            or sorted(returned) != wanted
            or not all(isinstance(rows, DataFrame) for rows in returned.values())
        ):
            got = (
                ", ".join(sorted(map(str, returned)))
                if isinstance(returned, Mapping)
                else type(returned).__name__
            )
            raise Broken(
                f"{pipeline.source}: pipeline {pipeline.name} returned {got or 'nothing'},"
                f" not one DataFrame for each of {', '.join(wanted) or 'no table'}",
                hint=REPLAY,
            )
        return returned

    def _check_shapes(self, given: Mapping[str, Mapping[str, str]]) -> None:
        shape = tuple((name, tuple(columns.items())) for name, columns in given.items())
        if shape in self._right:
            return
        outputs = {
            name: {
                column: _type(kind, f"{self._pipeline.source}: table {name}")
                for column, kind in columns.items()
            }
            for name, columns in given.items()
        }
        for made in table_births(self._pipeline, outputs):
            born = self._tables.get(made.name)
            if born is not None and (_as_born(made, born), made.steps_over) != (
                born.columns,
                born.steps_over,
            ):
                raise Broken(
                    f"{self._pipeline.source}: pipeline {self._pipeline.name} returns"
                    f" {_columns_text(made)} for table {made.name},"
                    f" which was born with {_columns_text(born)}",
                    hint="a function's columns may not depend on the data;"
                    " kappa deploy takes a changed one as a new version",
                )
        self._right.add(shape)


def columns_used(rows: DataFrame) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Returns, for each file that a frame reads, the file's columns and the used columns.

    Each pair contains two sets: the names of the columns that the frame reads from the file, and
    the names of those columns that the frame uses.
    """
    # The plan is of another frame than the frame that runs: a plan that was made before `persist`
    # would never read the persisted rows.
    plan = rows.alias("looked_at")._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # as in describe.py
    return used_columns(json.loads(plan.toJSON()), str(plan.output().toString()))


def _selected(rows: DataFrame, columns: tuple[tuple[str, str], ...]) -> DataFrame:
    return rows.select(*(F.col(spark_quote(name)) for name, _ in columns))


def _for_step(rows: DataFrame, table: TableBirth) -> DataFrame:
    """Selects the columns of the rows that are passed to a step.

    If Spark computes a row with a time outside the years 1 to 9999, the computation raises an
    error, since Python's types cannot represent the time.
    """
    return rows.select(
        *(F.expr(_pythons(name, parse_type(kind), table.name)) for name, kind in table.steps_over)
    )


def _pythons(column: str, kind: Type, table: str) -> str:
    """Returns a Spark SQL expression for a column.

    The expression raises an error if the value contains a time that Python cannot represent.
    """
    sql = spark_quote(column)
    beyond = _beyond(sql, kind)
    if not beyond:
        return sql
    why = (
        f"concat({text(f'{column} of table {table} is ')}, cast({sql} as string), ', and a step is "
        "given times of the years 1 to 9999')"
    )
    return f"case when {beyond} then raise_error({why}) else {sql} end as {sql}"


def _beyond(sql: str, kind: Type, depth: int = 0) -> str:
    """Returns the SQL condition for a value that contains a time that Python cannot represent.

    `sql` is the expression for the value. Returns "" if the type contains no times.
    """
    match kind:
        case Scalar("date"):
            return f"({sql} < date '0001-01-01' or {sql} > date '9999-12-31')"
        case Scalar("timestamp"):
            return f"(unix_micros({sql}) not between {FIRST_MICROS} and {LAST_MICROS})"
        case Array(element):
            inside = _beyond(f"_e{depth}", element, depth + 1)
            return inside and f"exists({sql}, _e{depth} -> coalesce({inside}, false))"
        case Struct(fields):
            found = (
                _beyond(f"{sql}.{spark_quote(each.name)}", each.type, depth) for each in fields
            )
            return " or ".join(f"coalesce({each}, false)" for each in found if each)
        case _:
            return ""


def _folded(rows: DataFrame, table: TableBirth, given: Mapping[str, str]) -> DataFrame:
    return rows.groupBy(*(F.col(spark_quote(key)) for key in table.keys)).agg(
        *(F.expr(fold) for fold in aggregates(table, given))
    )


def _as_born(made: TableBirth, born: TableBirth) -> tuple[tuple[str, str], ...]:
    """Returns the columns of `made` in the form in which Kappa declared them at the build's birth.

    `born` is the table as recorded at the build's birth. The version of Kappa at that time may have
    declared fewer columns for the folds, or narrower types for sums.
    """
    kinds, folds = dict(born.columns), born.folds.items()
    narrow = {each for name, fold in folds for each in fold.narrow_sums(name, kinds)}
    beside = {each for name, fold in folds for each in fold.extra_columns(name)}
    later = {
        name
        for name, _ in made.columns
        if name not in kinds
        and (name in beside or ((born.fold or born.steps_over) and name.startswith("_")))
    }
    return tuple(
        (name, kinds[name] if name in narrow and carried_type(kinds[name]) == kind else kind)
        for name, kind in made.columns
        if name not in later
    )


def _type(kind: str, where: str) -> Type:
    try:
        return parse_type(kind)
    except KappaError as error:
        raise Broken(f"{where}: {error.message}", hint=error.hint) from error


def _columns_text(table: TableBirth) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in table.columns)


def united(frames: Iterable[DataFrame]) -> DataFrame:
    """Returns one frame with the rows of all `frames`, which have the same columns."""
    return functools.reduce(lambda one, other: one.union(other), frames)


def used_columns(
    plan: Iterable[Mapping[str, Any]], output: str
) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Returns, for each file that a plan reads, the read columns and the used columns.

    Each pair contains two sets of column names. A column is used if any part of the plan refers to
    it, or if `output` refers to it; `output` is the text of the plan's output, such as `List(a#0,
    b#1L)`. If the plan reads parts of structs, Spark has already removed unused columns from the
    first set.
    """
    nodes = list(plan)
    used = {
        number for node in nodes if class_of(node) != _READ for _, number in _attributes(node)
    } | set(map(int, _ID.findall(output)))
    read = [_attributes(node["output"]) for node in nodes if class_of(node) == _READ]
    return [
        (
            frozenset(name for name, _ in columns),
            frozenset(name for name, number in columns if number in used),
        )
        for columns in read
    ]


def _attributes(part: Any) -> list[tuple[str, int]]:
    """Returns the references to columns in a part of a plan, as pairs (name, number).

    The number identifies the column within the plan.
    """
    return [
        (str(each["name"]), int(each["exprId"]["id"]))
        for each in nested(part)
        if class_of(each) == "AttributeReference"
    ]


class Prepared:
    """The plan that computes the contributions of small slices to all tables of a function."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        function: Function,
        tables: Mapping[str, TableBirth],
        folder: str,
    ) -> None:
        """Makes the plan.

        `folder` is a path or URL for the rows of the current slice. Raises Broken in the same cases
        as `Function.contributions`. Also raises Broken if the plan caches rows or exchanges rows
        between partitions.
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
        """Runs the plan on the valid records of a slice, and returns the contributions by table.

        `rows` contains the slice's valid records per topic. If rows expire, the result also
        contains the expired rows, under the name EXPIRED.
        """
        self._put(rows)
        together: pa.Table = self._plan.toArrow()
        return {
            name: _unpacked(together, place, arrow_schema(columns))
            for place, (name, columns) in enumerate(self._columns.items())
        }

    def run_apart(self, rows: Mapping[str, pa.Table]) -> None:
        """Runs the function on `rows`, for one table after the other, and discards the results.

        `rows` contains valid records per topic. The order of the tables is always the same. So if
        the records cause several errors, each call raises the same error.
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
        """Combines the contributions to all tables into one frame, which one action computes.

        The frame has a struct column per table.
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
