"""A child process that says what a pipeline's function returns: `python -m kappa.engine.children.describe FOLDER`.

FOLDER holds request.json (outputs.py writes it) and gets answer.json: for each pipeline its tables' columns, or one
sentence that refuses it. The function is run on empty frames in a real Spark session; no row is read and none computed:
what would look at rows is refused where it is called. Read next: rowlocal.py, which judges the plan.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from kappa.base.errors import DeclarationError
from kappa.base.jars import Jars
from kappa.code.importer import open_sources
from kappa.code.project import line_in, load_module, pipelines_in, said
from kappa.code.sources import Sources
from kappa.declare.pipeline import ORIGIN_COLUMNS, Pipeline
from kappa.declare.table import FOLD_ORDER_COLUMNS, Table
from kappa.engine.fold.fold import spark_ddl
from kappa.engine.spark.rowlocal import TELLING_CALLS, changing, not_row_local
from kappa.engine.spark.session import Profile, boot
from kappa.values.columns import parse_type

_PLATFORM_NAMES = frozenset(name for name, _ in (*ORIGIN_COLUMNS, *FOLD_ORDER_COLUMNS))
# Calls that run a job, or keep something: on a slice of the log their answer would be about that slice only.
_LOOKING = (
    *(
        "collect",
        "count",
        "first",
        "head",
        "take",
        "tail",
        "show",
        "isEmpty",
        "toPandas",
        "toArrow",
        "toLocalIterator",
        "toJSON",
        "foreach",
        "foreachPartition",
    ),
    *(
        "approxQuantile",
        "corr",
        "cov",
        "crosstab",
        "freqItems",
        "cache",
        "persist",
        "checkpoint",
        "localCheckpoint",
        "writeTo",
    ),
)
_LOOKING_PROPERTIES = ("rdd", "write", "writeStream")
# What Delta takes for a column's name without column mapping, which other readers don't know.
_COLUMN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")


def main(scratch: Path) -> None:
    """Answers one request."""
    request = json.loads((scratch / "request.json").read_text(encoding="utf-8"))
    jars = Jars(broker=(), spark=tuple(map(Path, request["jars"])))
    sources = Sources(Path(request["folder"]))
    machine = boot(
        profile=Profile.TAIL, name="describe", memory="512m", jars=jars, local_dir=scratch, cores=1
    )
    open_sources(sources)
    # While the JVM boots; what a file makes at its top is made before there is a session.
    pipelines = {
        name: next(
            each for _, each in pipelines_in(load_module(module, sources)) if each.name == name
        )
        for name, module in request["pipelines"].items()
    }
    spark = machine.session()
    watch = Watch(sources.folder)
    answers: dict[str, Any] = {}
    for name, pipeline in pipelines.items():
        try:
            answers[name] = asdict(describe(spark, pipeline, watch))
        except DeclarationError as refused:
            answers[name] = {"message": refused.message, "hint": refused.hint}
    spark.stop()
    (scratch / "answer.json").write_text(json.dumps(answers), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Description:
    """The columns, with Spark's types, that a pipeline's function returns for each of its tables; and what in it gives another value each time."""

    tables: Mapping[str, list[tuple[str, str]]]
    changing: tuple[str, ...]


def describe(spark: SparkSession, pipeline: Pipeline, watch: Watch) -> Description:
    """What a pipeline's function returns. Raises DeclarationError, with the line."""
    frames = {
        parameter: spark.createDataFrame([], spark_ddl(pipeline.columns_of(topic)))
        for parameter, topic in pipeline.inputs.items()
    }
    inputs = {_leaves(frame)[0] for frame in frames.values()}
    with watch:
        returned = _called(pipeline, frames, watch.folder)
    rows = _checked(pipeline, returned)
    plans = {table: _plan(frame) for table, frame in rows.items()}
    for table, frame in rows.items():
        refused = not_row_local(
            plans[table], [leaf is not None and leaf in inputs for leaf in _leaves(frame)]
        )
        if refused is not None:
            where = next(
                (watch.sites[call] for call in (*refused.calls, "sql") if call in watch.sites),
                str(pipeline.source),
            )
            raise DeclarationError(
                f"{where}: the function of pipeline {pipeline.name} {refused.what} (in the rows of table {table})",
                hint=refused.hint,
            )
    tables = {
        table.name: list(_columns(table, rows[table.name])) for table in pipeline.function_tables
    }
    return Description(
        tables, tuple(sorted({kind for plan in plans.values() for kind in changing(plan)}))
    )


class Watch:
    """While entered, notes the line of each telling call and refuses those that look at rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites: dict[str, str] = {}
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.sites.clear()
        for kind in (ClassicDataFrame, ClassicColumn, SparkSession):
            for name in TELLING_CALLS - set(_LOOKING_PROPERTIES):
                self._replace(kind, name, self._traced)
        for name in _LOOKING:
            self._replace(ClassicDataFrame, name, self._refusing)
        for name in _LOOKING_PROPERTIES:
            self._replace(
                ClassicDataFrame, name, lambda each, _: property(self._refusing(each, None))
            )

    def __exit__(self, *error: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _replace(self, kind: type, name: str, make: Callable[[str, Any], Any]) -> None:
        before = getattr(kind, name, None)
        if before is None:
            return
        own = name in vars(kind)
        original = vars(kind).get(name)
        setattr(kind, name, make(name, before))
        self._undo.append(lambda: setattr(kind, name, original) if own else delattr(kind, name))

    def _traced(self, name: str, before: Any) -> Any:
        def traced(*arguments: Any, **named: Any) -> Any:
            site = self._site()
            if site is not None:
                self.sites.setdefault(name, site)
            return before(*arguments, **named)

        return traced

    def _refusing(self, name: str, _before: Any) -> Any:
        def refusing(*_arguments: Any, **_named: Any) -> Any:
            raise DeclarationError(
                f"{self._site()}: the function looks at its rows by {name}, and what it saw would be of one slice only",
                hint="return the frames as they are: Kappa runs them; what concerns many rows is a fold or a View",
            )

        return refusing

    def _site(self) -> str | None:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # the documented way to a caller's line
        while frame is not None:
            if Path(frame.f_code.co_filename).is_relative_to(self.folder):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return None


def _plan(frame: DataFrame) -> list[Any]:
    found: list[Any] = json.loads(_analyzed(frame).toJSON())
    return found


def _leaves(frame: DataFrame) -> list[int | None]:
    """Of each leaf of a frame's plan, in order, the number of what it reads: no name tells that, since Spark renames."""
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
            f"{where}: the function of pipeline {pipeline.name} fails: {_SQLSTATE.sub('', said(error))}",
            hint="it is run on frames without rows",
        ) from error


def _checked(pipeline: Pipeline, returned: object) -> dict[str, DataFrame]:
    source, name = pipeline.source, pipeline.name
    if not isinstance(returned, Mapping):
        what = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise DeclarationError(
            f"{source}: the function of pipeline {name} returns {what}",
            hint='return {"table": frame}, one for each table',
        )
    wanted = [table.name for table in pipeline.function_tables]
    for each, frame in returned.items():
        if each in {table.name for table in pipeline.latest_tables}:
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for table {each}, which takes them from its topic",
                hint=f"leave {each} out of what the function returns",
            )
        if each not in wanted:
            near = difflib.get_close_matches(str(each), wanted, n=1)
            raise DeclarationError(
                f"{source}: pipeline {name} returns rows for {each!r}, which it does not write",
                hint=f"did you mean {near[0]}?" if near else f'add Table("{each}") to writes',
            )
        if not isinstance(frame, DataFrame):
            raise DeclarationError(
                f"{source}: pipeline {name} returns a {type(frame).__name__} for table {each}, and not a DataFrame"
            )
    missing = [each for each in wanted if each not in returned]
    if missing:
        raise DeclarationError(
            f"{source}: pipeline {name} returns no rows for table {missing[0]}",
            hint=f'return {{"{missing[0]}": frame, ...}}, or take it out of writes',
        )
    return {str(each): frame for each, frame in returned.items()}


def _columns(table: Table, frame: DataFrame) -> Iterator[tuple[str, str]]:
    # A keyed table takes only what its keys and folds name; what else the rows hold may be of any type.
    order = [name for name, _ in FOLD_ORDER_COLUMNS] if table.by_order else []
    needed = (
        None
        if table.appends or table.ordered is not None
        else {
            *table.keys,
            *(column for fold in table.fold.values() for column in fold.inputs),
            *order,
        }
    )
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
                f"{what}, which is no name of a stored column",
                hint="use letters, digits and underscores: .alias(...)",
            )
        if field.name.startswith("_") and field.name not in _PLATFORM_NAMES:
            raise DeclarationError(
                what,
                hint="a leading underscore marks the platform's own columns: .alias(...) without it",
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


if __name__ == "__main__":
    main(Path(sys.argv[1]))
