"""The contributions of a slice: the user's function run on decoded rows, and folded by key.

The function is held to the build's tables. If it raises, or returns other columns than the build
was born with, the job stops with the user's line: the same slice would fail again.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kappa.base.errors import Broken, KappaError
from kappa.base.sql import spark_quote
from kappa.declare.pipeline import Pipeline
from kappa.engine.decode.fate import Fate
from kappa.engine.fold.fold import aggregates, latest_aggregate
from kappa.engine.spark.used import used_columns
from kappa.state.build import TableBirth
from kappa.tables.shape import table_births
from kappa.values.columns import Type, parse_type

_REPLAY = "mend the function and deploy it, as a new version: kappa deploy"
# How Spark reports a value that does not fit (SQLSTATE class 22), or a name or type (42), however
# deep in the causes of an error (ISO 9075-2, table 38).
_UNFIT = re.compile(r"(\[[A-Z_.]+\] [^\n]*?) SQLSTATE: (?:22|42)\w{3}")

# How a Python worker reports an error: its indented frames, the error, and the note of a step's
# loop.
_RAISED = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t]+.*\n)+(\S.*)(?:\n(the step of table .*))?"
)
_OURS = f"{Broken.__module__}.{Broken.__qualname__}: "
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_KAPPA = Path(__file__).parents[2]
# A value in an error may be long, and the error is kept.
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a pipeline's function: the line (`file:line`), the error, and what to do."""

    line: str
    # With its verb: `raised ZeroDivisionError: division by zero`.
    error: str
    hint: str


class Function:
    """A pipeline's function, held to the tables of one build."""

    def __init__(self, pipeline: Pipeline, tables: Mapping[str, TableBirth]) -> None:
        self._pipeline = pipeline
        self._tables = {table.name: tables[table.name] for table in pipeline.function_tables}
        # Shapes that were found right; the same function gives the same ones, slice after slice.
        self._right: set[tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = set()

    def contributions(
        self, inputs: Mapping[str, DataFrame], *, one_partition: bool = False
    ) -> dict[str, DataFrame]:
        """Returns one frame per table of the function. Nothing is computed yet.

        A frame has rows to append as they are, one row per key to fold in, or the rows that a step
        folds. `inputs` has a frame per parameter; with `one_partition` each result is computed in
        one. Raises Broken with the user's line.
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
        return {
            name: _selected(returned[name], table.steps_over or table.columns)
            if table.steps_over or not table.keys
            else _folded(returned[name], table, given[name])
            for name, table in self._tables.items()
        }

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
                hint=_REPLAY,
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
            if born is not None and (made.columns, made.steps_over) != (
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


def latest_frame(decoded: DataFrame, table: TableBirth) -> DataFrame:
    """Returns the newest of decoded records per key.

    A tombstone leaves a hidden row (law 4).
    """
    kept = decoded.where(f"_fate in ({int(Fate.DECODED)}, {int(Fate.TOMBSTONE)})").withColumn(
        "_deleted", F.expr(f"_fate = {int(Fate.TOMBSTONE)}")
    )
    return (
        kept.groupBy(F.col(spark_quote(table.keys[0])))
        .agg(F.expr(latest_aggregate(table)).alias("_newest"))
        .selectExpr("_newest.*")
    )


def columns_used(rows: DataFrame) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Returns, for each file that a frame reads, the names of its columns and of those it uses.

    See engine/spark/used.py.
    """
    # The plan of another frame than the one that runs: a plan that was made before `persist` would
    # never read the persisted rows.
    plan = rows.alias("looked_at")._jdf.queryExecution().optimizedPlan()  # noqa: SLF001  # as in describe.py
    return used_columns(json.loads(plan.toJSON()), str(plan.output().toString()))


def user_line(error: BaseException, pipeline: Pipeline) -> str:
    """Returns the last line of the user's own code that an error passed through, as file:line.

    Returns the line of the pipeline's declaration if it passed through none.
    """
    source = Path(pipeline.source.file)
    # A project's modules are beside or below the folder of its pipelines (kappa/code/project.py).
    project = source.parent.parent
    passed = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(project) and not _is_ours(frame.filename)
    ]
    return f"{passed[-1].filename}:{passed[-1].lineno}" if passed else str(pipeline.source)


def raised_here(error: Exception, pipeline: Pipeline) -> Broken:
    """Wraps an error that the user's code raised in this process, with its line and its notes."""
    noted = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
    return Broken(
        f"{user_line(error, pipeline)}: pipeline {pipeline.name} raised "
        f"{_error_text(error)}{noted}",
        hint=_REPLAY,
    )


def failure_of(error: Exception, pipeline: Pipeline) -> Failure | None:
    """Finds the failure of the function in an error of an action over the user's rows.

    Returns None if the function is not to blame. A worker that died, or had no memory left, proves
    nothing: it may do with fewer rows. Nor does a step of an ordered fold, which depends on earlier
    rows.
    """
    text = str(error)
    raised = _RAISED.search(text)
    if _of_step(raised, pipeline) is not None:
        return None
    if raised is not None and not raised[1].startswith("MemoryError"):
        frames = _FRAME.findall(raised[0])
        lines = [f"{file}:{line}" for file, line in frames if not _is_ours(file)]
        if lines:
            return Failure(lines[-1], _shortened(f"raised {raised[1]}"), _REPLAY)
        # PySpark's code alone finds a value of another type than its UDF declares. Our own code
        # decodes in workers, too.
        if not any(Path(file).is_relative_to(_KAPPA) for file, _ in _FRAME.findall(text)):
            return Failure(
                str(pipeline.source),
                _shortened(f"raised {raised[1]}"),
                f"see that each udf returns the type that it is declared with; {_REPLAY}",
            )
    unfit = unfit_in(text)
    if unfit is not None:
        line = _called_at(error) or str(pipeline.source)
        return Failure(
            line,
            _shortened(f"failed on a row: {unfit}"),
            "fold into a wider type, or use try_cast and the like where a value may not fit;"
            f" {_REPLAY}",
        )
    return None


def explained(error: Exception, pipeline: Pipeline) -> KappaError | None:
    """Returns an error of an action over the user's rows in a sentence of ours.

    Returns None if the rows are not to blame.
    """
    failure = failure_of(error, pipeline)
    if failure is None:
        return _of_step(_RAISED.search(str(error)), pipeline)
    return Broken(f"{failure.line}: pipeline {pipeline.name} {failure.error}", hint=failure.hint)


def _of_step(raised: re.Match[str] | None, pipeline: Pipeline) -> Broken | None:
    """Returns a worker's error of a step, whose loop has named the record.

    Returns None if the error is another one.
    """
    if raised is None or not (raised[2] or raised[1].startswith(_OURS)):
        return None
    if raised[1].startswith(_OURS):
        return Broken(raised[1].removeprefix(_OURS), hint=_REPLAY)
    lines = [f"{file}:{line}" for file, line in _FRAME.findall(raised[0]) if not _is_ours(file)]
    return Broken(
        f"{lines[-1] if lines else pipeline.source}: pipeline {pipeline.name} raised {raised[1]};"
        f" {raised[2]}",
        hint=_REPLAY,
    )


def unfit_in(text: str) -> str | None:
    """Returns Spark's sentence about a value that does not fit, or None if an error has none."""
    unfit = _UNFIT.search(text)
    return None if unfit is None else unfit[1]


def _called_at(error: Exception) -> str:
    if not isinstance(error, PySparkException):
        return ""
    for context in error.getQueryContext():
        site = context.callSite() if context.contextType().name == "DataFrame" else ""
        file, separator, line = str(site).strip().rpartition(":")
        if separator and line.strip().isdigit():
            return f"{file}:{line.strip()}"
    return ""


def _selected(rows: DataFrame, columns: tuple[tuple[str, str], ...]) -> DataFrame:
    return rows.select(*(F.col(spark_quote(name)) for name, _ in columns))


def _folded(rows: DataFrame, table: TableBirth, given: Mapping[str, str]) -> DataFrame:
    return rows.groupBy(*(F.col(spark_quote(key)) for key in table.keys)).agg(
        *(F.expr(fold) for fold in aggregates(table, given))
    )


def _is_ours(file: str) -> bool:
    # Compiled modules name their sources as they were where they were compiled.
    return (
        "site-packages" in file
        or "/pyspark/" in file
        or not Path(file).is_absolute()
        or Path(file).is_relative_to(_KAPPA)
    )


def _shortened(error: str) -> str:
    return error if len(error) <= _LONGEST else f"{error[: _LONGEST - 3]}..."


def _type(kind: str, where: str) -> Type:
    try:
        return parse_type(kind)
    except KappaError as error:
        raise Broken(f"{where}: {error.message}", hint=error.hint) from error


def _columns_text(table: TableBirth) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in table.columns)


def _error_text(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
