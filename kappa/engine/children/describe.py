"""A program that checks pipelines' functions, and finds the columns of the functions' tables.

A spare runs the program. The argument is a folder with the file request.json, which
rollout/plan/declared_pipelines.py writes. The program writes answer.json to this folder. For each
pipeline, the answer contains the columns of the tables, or an error that refuses the pipeline. The
program runs each function on empty frames in a real Spark session. No row is read or computed:
call_guard.py refuses calls that would read rows. engine/spark/function_plan.py checks the
function's plan.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import DeclarationError, ExitCode, did_you_mean
from kappa.base.sql import spark_ddl
from kappa.code.importer import open_sources
from kappa.code.project import error_line, line_in, load_pipeline
from kappa.code.sources import Sources
from kappa.code.spark_child import PROGRESS, begin_pipeline_limits, put_answer
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS
from kappa.declare.folds.returned_columns import missing_column_error
from kappa.declare.pipeline import ORIGIN_COLUMNS, Pipeline
from kappa.declare.table import Table
from kappa.declare.values.columns import parse_type
from kappa.engine.children.call_guard import Watch
from kappa.engine.children.law_cache import shape_of
from kappa.engine.spark.function_plan import changing, frame_sources, not_row_local
from kappa.engine.spark.session import booted_ahead

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")
_PLATFORM_NAMES = frozenset(name for name, _ in (*ORIGIN_COLUMNS, *FOLD_ORDER_COLUMNS))
# Column names that Delta accepts without column mapping, which other readers do not know.
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def main(arguments: list[str]) -> int:
    """Describes the pipelines of a request, writes the answers, and returns the exit code."""
    scratch = Path(arguments[0])
    request = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    sources = Sources(Path(request["folder"]))
    open_sources(sources)
    # This runs while the JVM boots: the top of a file is run without a session.
    pipelines = loaded_pipelines(scratch, request["pipelines"], sources)
    spark = booted_ahead().session()
    watch = Watch(sources.folder)
    for name, pipeline in pipelines.items():
        begin_pipeline_limits(name)
        print(f"{PROGRESS}runs {name} on empty tables", file=sys.stderr, flush=True)
        try:
            answer = asdict(describe(spark, pipeline, watch))
        except DeclarationError as refused:
            answer = {"message": refused.message, "hint": refused.hint}
        put_answer(scratch, name, answer)
    return ExitCode.OK


def loaded_pipelines(
    scratch: Path, modules: Mapping[str, str], sources: Sources
) -> Mapping[str, Pipeline]:
    """Loads the pipelines of a request, and returns the loaded pipelines by name.

    `modules` maps the name of each pipeline to its module. If a pipeline cannot be loaded, writes
    an answer with the error to the folder `scratch`: the pipeline's file may have changed since the
    request.
    """
    pipelines = {}
    for name, module in modules.items():
        try:
            pipelines[name] = load_pipeline(name, module, sources)
        except DeclarationError as refused:
            put_answer(scratch, name, {"message": refused.message, "hint": refused.hint})
    return pipelines


@dataclass(frozen=True, slots=True)
class Description:
    """The columns that a function returns for each table, with Spark's types.

    `changing` names the expressions in the function's plan whose values differ from run to run.
    `shape` is the digest of the plan without the values of literals; it is "" if the plan or a step
    runs Python. `lineage` contains, for each column of a returned frame, the fields from which the
    column is computed, as pairs (parameter of the function, field).
    """

    tables: Mapping[str, list[tuple[str, str]]]
    changing: tuple[str, ...]
    shape: str
    lineage: Mapping[str, Mapping[str, list[tuple[str, str]]]]


def describe(spark: SparkSession, pipeline: Pipeline, watch: Watch) -> Description:
    """Runs a pipeline's function on empty frames, and describes the frames that it returns.

    `watch` records the function's calls. Raises DeclarationError, with the line of the user's code,
    if the function fails, if it uses an operation that is not allowed, or if its result does not
    fit the declared tables.
    """
    frames = {
        parameter: spark.createDataFrame([], spark_ddl(pipeline.columns_of(topics[0])))
        for parameter, topics in pipeline.inputs.items()
    }
    parameters = {_leaves(frame)[0]: parameter for parameter, frame in frames.items()}
    topics_of = {leaf: pipeline.inputs[parameter] for leaf, parameter in parameters.items()}
    with watch:
        returned = _called(pipeline, frames, watch.folder)
    rows = frames_returned(pipeline, returned)
    plans = {table: _plan(frame) for table, frame in rows.items()}
    for table, frame in rows.items():
        refused = not_row_local(
            plans[table], [leaf is not None and leaf in topics_of for leaf in _leaves(frame)]
        )
        if refused is not None:
            where = next(
                (watch.sites[call] for call in (*refused.calls, "sql") if call in watch.sites),
                str(pipeline.source),
            )
            raise DeclarationError(
                f"{where}: the function of pipeline {pipeline.name} {refused.what}"
                f" (in the rows of table {table})",
                hint=refused.hint,
            )
    for ordered in (table for table in pipeline.function_tables if table.ordered is not None):
        _check_one_order(
            ordered,
            {
                name
                for leaf in _leaves(rows[ordered.name])
                for topic in topics_of[leaf]
                # A topic that joins a pattern later is another topic, too.
                for name in (topic.name, topic.of_pattern)
                if name is not None
            },
        )
    tables = {
        table.name: list(columns_of(table, rows[table.name])) for table in pipeline.function_tables
    }
    return Description(
        tables,
        tuple(sorted({kind for plan in plans.values() for kind in changing(plan)})),
        shape_of(plans, pipeline.function_tables),
        {
            table.name: _lineage(
                plans[table.name],
                [parameters[leaf] for leaf in _leaves(rows[table.name])],
                tables[table.name],
            )
            for table in pipeline.function_tables
        },
    )


def _lineage(
    plan: list[Any], leaves: list[str], columns: list[tuple[str, str]]
) -> dict[str, list[tuple[str, str]]]:
    """Returns, for each of the `columns`, the fields from which the column is computed.

    `leaves` contains the function's parameter at each leaf of the plan. A field is a pair
    (parameter, field name).
    """
    found = frame_sources(plan)
    return {
        column: sorted({(leaves[leaf], field) for leaf, field in found[column]})
        for column, _ in columns
        if column in found
    }


def _check_one_order(table: Table, topics: set[str]) -> None:
    """Raises DeclarationError if an ordered table gets rows from several of the `topics`.

    Records of different topics have no order between them.
    """
    if len(topics) > 1:
        raise DeclarationError(
            f"{table.source}: table {table.name} is folded in the order of the log, and its rows"
            f" are of topics {' and '.join(sorted(topics))}, which have no order between them",
            hint="give it the rows of one topic: make a table for each topic, or produce both kinds"
            " of events to one topic",
        )


def _plan(frame: DataFrame) -> list[Any]:
    found: list[Any] = json.loads(_analyzed(frame).toJSON())
    return found


def _leaves(frame: DataFrame) -> list[int | None]:
    """Returns the ids of the relations at the leaves of a frame's plan, in order.

    Names do not identify a relation, because Spark renames relations. The frames passed to the
    function are relations over an RDD. The id of any other leaf is None.
    """
    leaves = _analyzed(frame).collectLeaves()
    each = [leaves.apply(place) for place in range(leaves.size())]
    return [
        leaf.rdd().id() if leaf.getClass().getSimpleName() == "LogicalRDD" else None
        for leaf in each
    ]


def _analyzed(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001  # the analysed plan has no public door in Python


def _called(pipeline: Pipeline, frames: Mapping[str, DataFrame], folder: Path) -> object:
    try:
        return pipeline.function(**frames)
    except DeclarationError:
        raise
    except (Exception, SystemExit) as error:
        where = line_in(error, folder) or str(pipeline.source)
        raise DeclarationError(
            f"{where}: the function of pipeline {pipeline.name} fails:"
            f" {_SQLSTATE.sub('', error_line(error))}",
            hint="it is run on frames without rows",
        ) from error


def frames_returned(pipeline: Pipeline, returned: object) -> dict[str, DataFrame]:
    """Returns the frames that a pipeline's function has returned, by table.

    Raises DeclarationError if the function has returned no mapping, or if a frame is missing,
    unexpected, or not a DataFrame.
    """
    source, name = pipeline.source, pipeline.name
    if not isinstance(returned, Mapping):
        what = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise DeclarationError(
            f"{source}: the function of pipeline {name} returns {what}",
            hint='return {"table": frame}, one for each table',
        )
    wanted = [table.name for table in pipeline.function_tables]
    for each, frame in returned.items():
        own = {table.name: "topic" for table in pipeline.latest_tables}
        own |= {table.name: "file" for table in pipeline.tables if table.file is not None}
        if each in own:
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for table {each},"
                f" which takes them from its {own[each]}",
                hint=f"leave {each} out of what the function returns",
            )
        if each not in wanted:
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for {each!r}, which it does not write",
                hint=did_you_mean(str(each), wanted) or f'add Table("{each}") to writes',
            )
        if not isinstance(frame, DataFrame):
            raise DeclarationError(
                f"{source}: pipeline {name} returns a {type(frame).__name__} for table {each},"
                " and not a DataFrame"
            )
    missing = [each for each in wanted if each not in returned]
    if missing:
        raise DeclarationError(
            f"{source}: pipeline {name} returns no rows for table {missing[0]}",
            hint=f'return {{"{missing[0]}": frame, ...}}, or take it out of writes',
        )
    return {str(each): frame for each, frame in returned.items()}


def columns_of(table: Table, frame: DataFrame) -> Iterator[tuple[str, str]]:
    """Yields the columns of a frame that a table stores, as pairs of name and Spark type.

    Raises DeclarationError if a column is missing, or is not allowed in a table.
    """
    # A keyed table takes only the columns of its keys and folds; other columns may be of any type.
    order = [name for name, _ in FOLD_ORDER_COLUMNS] if table.by_order else []
    needs = None if table.is_append_only or table.ordered is not None else _needs(table)
    needed = None if needs is None else {*needs, *order}
    returned = [field.name for field in frame.schema.fields]
    for name, what in (needs or {}).items():
        if name not in returned:
            raise missing_column_error(f"{table.source}: table {table.name}", name, what, returned)
    seen: set[str] = set()
    for field in frame.schema.fields:
        if needed is not None and field.name not in needed:
            continue
        what = f"{table.source}: table {table.name} gets the column {field.name}"
        if field.name.lower() in seen:
            raise DeclarationError(
                f"{what} twice",
                hint="names are compared without regard to case; give one of them an alias",
            )
        seen.add(field.name.lower())
        if not _COLUMN_NAME.fullmatch(field.name):
            raise DeclarationError(
                f"{what}, which is not the name of a stored column",
                hint="use letters, digits and underscores: .alias(...)",
            )
        if field.name.startswith("_") and field.name not in _PLATFORM_NAMES:
            raise DeclarationError(
                what,
                hint="a leading underscore marks the platform's own columns:"
                " .alias(...) without it",
            )
        kind = field.dataType.simpleString()
        try:
            parse_type(kind)
        except DeclarationError:
            raise DeclarationError(
                f"{what} of type {kind}, which a table cannot have",
                hint=f'cast it: .withColumn("{field.name}", F.col("{field.name}").cast("string"))',
            ) from None
        yield field.name, kind


def _needs(table: Table) -> dict[str, str]:
    """Returns the columns that the table's keys and folds read from the function's frame.

    Each column is mapped to a text that explains why the column is needed.
    """
    return {
        **{
            column: f"{name} = {fold}"
            for name, fold in table.fold.items()
            for column in fold.input_columns
        },
        **{key: f"its key {key}" for key in table.keys},
    }
