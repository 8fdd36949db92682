"""A spare's program that finds the columns of functions, and judges functions.

The argument is a folder that has request.json (code/outputs.py writes it) and gets answer.json: for
each pipeline the columns of the tables, or a sentence that refuses the pipeline. The function is
run on empty frames in a real Spark session. No row is read and no row is computed: calls that would
look at rows are refused (watch.py). engine/spark/rowlocal.py judges the plan.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kappa.base.errors import DeclarationError, ExitCode
from kappa.code.importer import open_sources
from kappa.code.project import error_line, line_in, load_pipeline
from kappa.code.sources import Sources
from kappa.code.spark_child import PROGRESS, begin_with, put_answer
from kappa.declare.pipeline import Pipeline
from kappa.declare.table import Table
from kappa.engine.children.returned import columns_of, frames_returned
from kappa.engine.children.watch import Watch
from kappa.engine.fold.fold import spark_ddl
from kappa.engine.spark.rowlocal import changing, not_row_local
from kappa.engine.spark.session import booted_ahead

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")


def main(arguments: list[str]) -> int:
    """Answers a request; returns the exit code."""
    scratch = Path(arguments[0])
    request = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    sources = Sources(Path(request["folder"]))
    open_sources(sources)
    # This runs while the JVM boots: the top of a file is run without a session.
    pipelines = loaded_pipelines(scratch, request["pipelines"], sources)
    spark = booted_ahead().session()
    watch = Watch(sources.folder)
    for name, pipeline in pipelines.items():
        begin_with(name)
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
    """Returns the pipelines of a request. Puts an answer for a file that cannot be loaded.

    A file may be saved between the request and the loading.
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

    `changing` names expressions that give another value each time.
    """

    tables: Mapping[str, list[tuple[str, str]]]
    changing: tuple[str, ...]


def describe(spark: SparkSession, pipeline: Pipeline, watch: Watch) -> Description:
    """Describes a pipeline's function. Raises DeclarationError, with the line."""
    frames = {
        parameter: spark.createDataFrame([], spark_ddl(pipeline.columns_of(topics[0])))
        for parameter, topics in pipeline.inputs.items()
    }
    topics_of = {
        _leaves(frames[parameter])[0]: topics for parameter, topics in pipeline.inputs.items()
    }
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
        tables, tuple(sorted({kind for plan in plans.values() for kind in changing(plan)}))
    )


def _check_one_order(table: Table, topics: set[str]) -> None:
    """Raises DeclarationError if an ordered table takes rows of several topics (law 4)."""
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
    """Returns the numbers of the relations at the leaves of a frame's plan, in order.

    Names do not identify a relation, since Spark renames.
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
