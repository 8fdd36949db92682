"""Describes the pipelines that the project's files declare, without connecting to a broker.

Spark describes the function of a pipeline once per rows version, in a child process:
engine/children/describe.py runs the function on data frames without rows. The result is stored in
`cache/describe/<rows version>.json`. No JVM is needed if the function was described before, or if
all tables of the pipeline are made from topics without a function.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from kappa.base.errors import DeclarationError, KappaError, joined_error
from kappa.base.fork_call import OverLimit, call_within
from kappa.base.settings import Settings
from kappa.code.code_snapshot import snapshot_files
from kappa.code.fingerprint import compute_fingerprint, declared_rows_version
from kappa.code.project import PipelinePlace, load_files
from kappa.code.sources import Find
from kappa.code.spark_child import ask_program
from kappa.declare.alert import Alert
from kappa.declare.pipeline import Pipeline
from kappa.declare.sink import Sink
from kappa.declare.values.columns import Type, parse_type
from kappa.replay.rollout.plan.determinism import find_doubts, spark_findings
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.finding import Finding
from kappa.state.build import Lineage
from kappa.state.documents import cached_json
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.shape import table_births
from kappa.tables.views.view_tables import with_views
from kappa.tables.views.ways import ways_of

# Limits for one pipeline's queries over no rows: usually 0.1 s and 50 MB on a quiet machine.
_SQL_SECONDS = 30.0
_SQL_MEMORY = 2 << 30


class DeclaredProject(NamedTuple):
    """The declared pipelines of a project, and the errors of its files.

    `names` contains the names of all pipelines. `found` maps the name of each requested pipeline to
    its declaration, or to the error of the declaration. If all pipelines were requested, `found`
    also maps the path of each file with an error to this error. `unloadable` maps the path of each
    file that Python cannot import to the error.
    """

    names: frozenset[str]
    found: Mapping[str, Declared | DeclarationError]
    unloadable: Mapping[str, DeclarationError]


def describe_declared_pipelines(
    settings: Settings,
    store: Store,
    only: Collection[str] = (),
    *,
    show: Callable[[str], None] = lambda _step: None,
) -> DeclaredProject:
    """Returns the names of all pipelines, and the declarations of the pipelines in `only`.

    An empty `only` means all pipelines. A pipeline with mistakes has an error instead of a
    declaration; the error reports all mistakes that were found. If `only` is empty, the result also
    contains the error of each file that cannot be loaded, by path. If `only` names a pipeline that
    no loaded file declares, the error of the first unloadable file is raised. `show` is called at
    the beginning of each slow step, with a description of the step.
    """
    show("reads the project's files")
    project = load_files(settings.project)
    if not project.pipelines.keys() >= set(only):
        project.ensure_loaded()
    find = functools.cache(project.sources.find)
    wanted = {
        name: pipeline for name, pipeline in project.pipelines.items() if not only or name in only
    }
    prints = {
        name: compute_fingerprint(
            pipeline, project.places[name].module, project.places[name].attribute, find
        )
        for name, pipeline in wanted.items()
    }
    outputs = describe_functions(
        settings,
        store,
        project.sources.folder,
        {
            name: PipelineToDescribe(
                pipeline,
                project.places[name].module,
                declared_rows_version(pipeline, prints[name].parts),
            )
            for name, pipeline in wanted.items()
        },
        show,
    )
    show("reads views, checks and code")

    def declare(name: str, pipeline: Pipeline, output: Outputs) -> Declared:
        tables, ways = _born_tables(pipeline, output)
        place, folder = project.places[name], project.sources.folder
        found = code_doubts(pipeline, place, find)
        line = f"{Path(pipeline.source.file).relative_to(folder)}:{pipeline.source.line}"
        return Declared(
            pipeline=pipeline,
            module=place.module,
            version=prints[name].version,
            parts=prints[name].parts,
            tables=tables,
            files=snapshot_files(place.module, find),
            doubtful=(*found, *spark_findings(output.changing, found, line)),
            ways=ways,
            lineage=_by_topic(pipeline, output),
        )

    each: dict[str, Declared | DeclarationError] = {} if only else {**project.refused}
    for name, pipeline in wanted.items():
        output = outputs[name]
        try:
            if isinstance(output, DeclarationError):
                raise output
            each[name] = declare(name, pipeline, output)
        except DeclarationError as error:
            doubts = code_doubts(pipeline, project.places[name], find)
            each[name] = _with_doubts(error, doubts)
    return DeclaredProject(frozenset(project.pipelines), each, project.refused)


def _by_topic(pipeline: Pipeline, output: Outputs) -> Lineage:
    """Returns the fields from which each column is computed, as (topic, field).

    `output` names the parameters of the function instead of topics. All topics of a pattern have
    the same fields, so the result names the pattern instead of these topics.
    """
    topics = {
        parameter: dict.fromkeys(each.of_pattern or each.name for each in bound)
        for parameter, bound in pipeline.inputs.items()
    }
    return {
        table: {
            column: tuple(
                (topic, field) for parameter, field in fields for topic in topics[parameter]
            )
            for column, fields in columns.items()
        }
        for table, columns in output.lineage.items()
    }


def _with_doubts(error: DeclarationError, doubts: tuple[Finding, ...]) -> DeclarationError:
    """Returns an error that also reports the lint's findings in the pipeline's code."""
    found = (DeclarationError(each.message, hint=each.hint) for each in doubts)
    return joined_error((error, *found)) or error


def _born_tables(
    pipeline: Pipeline, output: Outputs
) -> tuple[tuple[TableBirth, ...], Mapping[str, str]]:
    """Returns the tables and maintained views of a pipeline, and the way of each maintained view.

    Raises DeclarationError, with the line, if views, checks or outlets do not fit the tables. To
    find such mistakes, the pipeline's queries are run over tables without rows. A query may never
    end, so the queries run in a separate process with limits on time and memory.
    """
    tables = table_births(pipeline, output.tables)
    if not (
        pipeline.views
        or any(table.checks for table in pipeline.tables)
        or _outlets_to_fit(pipeline)
    ):
        return tables, {}

    def born() -> tuple[tuple[TableBirth, ...], Mapping[str, str]]:
        _raise_all(_refused_views(pipeline, tables))
        with_theirs = with_views(pipeline, tables)
        _raise_all(
            (*_unreadable_sql(pipeline, with_theirs), *_unfit_outlets(pipeline, with_theirs))
        )
        return with_theirs, {view: str(way) for view, way in ways_of(with_theirs).items()}

    try:
        return call_within(born, seconds=_SQL_SECONDS, memory=_SQL_MEMORY)
    except OverLimit as error:
        raise DeclarationError(
            f"{pipeline.source}: the views and checks of pipeline {pipeline.name} were run over "
            f"tables without rows, and {error.message}",
            hint="a query makes only rows that follow from those of its tables: look for a range, "
            "or a recursion without end",
        ) from None


def _raise_all(mistakes: Iterable[DeclarationError]) -> None:
    """Raises one error that reports all of these mistakes. Does nothing if there are none."""
    error = joined_error(mistakes)
    if error is not None:
        raise error


def code_doubts(pipeline: Pipeline, place: PipelinePlace, find: Find) -> tuple[Finding, ...]:
    """Returns the lint's findings in all code that a pipeline runs, without duplicates.

    This is the code that the pipeline's function and the steps of its ordered folds reach.
    """
    return tuple(
        dict.fromkeys(
            found
            for root in pipeline.code_roots(place.module, place.attribute)
            for found in find_doubts(*root, find)
        )
    )


def _refused_views(
    pipeline: Pipeline, tables: tuple[TableBirth, ...]
) -> Iterator[DeclarationError]:
    """Yields an error for each view whose result depends on more than the pipeline's tables.

    For example, the view reads a file, or calls a nondeterministic function. Yields nothing if the
    pipeline has no maintained view. Otherwise every view is tested, because a maintained view may
    read the other views.
    """
    if not any(view.is_maintained for view in pipeline.views):
        return
    from kappa.serving.query.reader.views import view_refusals  # noqa: PLC0415  # it takes DuckDB

    refused = view_refusals(tables, {view.name: view.sql for view in pipeline.views})
    for view in pipeline.views:
        if (error := refused.get(view.name)) is not None:
            yield DeclarationError(
                f"{view.source}: view {view.name} cannot be read: {error.message}", hint=error.hint
            )


def _unreadable_sql(
    pipeline: Pipeline, tables: tuple[TableBirth, ...]
) -> Iterator[DeclarationError]:
    """Yields an error for each view and each check that DuckDB cannot execute.

    The error names the line of the declaration. Without this test, such a mistake would only be
    found at the end of a whole replay.
    """
    if not (pipeline.views or any(table.checks for table in pipeline.tables)):
        return
    from kappa.serving.query.reader.views import unreadable_sql  # noqa: PLC0415  # it takes DuckDB

    refused = unreadable_sql(tables, pipeline.view_queries)
    places = {view.name: (view.source, f"view {view.name}") for view in pipeline.views}
    places |= {
        f"{each.name}: {check}": (each.source, f"the check {check!r} of {kind} {each.name}")
        for kind, declarations in (("table", pipeline.tables), ("view", pipeline.views))
        for each in declarations
        for check in each.checks
    }
    for name, error in refused.items():
        source, what = places[name]
        yield DeclarationError(f"{source}: {what} cannot be read: {error.message}", hint=error.hint)


def _outlets_to_fit(pipeline: Pipeline) -> list[Sink | Alert]:
    return [
        each
        for each in pipeline.outlets
        if each.columns is not None
        or each.where is not None
        or (isinstance(each, Sink) and each.format.text is not None)
    ]


def _unfit_outlets(
    pipeline: Pipeline, tables: tuple[TableBirth, ...]
) -> Iterator[DeclarationError]:
    """Yields an error for each sink or alert that does not fit its table.

    A mistake may be in the columns or the condition of the outlet, or in the format of the sink.
    """
    if not (outlets := _outlets_to_fit(pipeline)):
        return
    from kappa.serving.outlets.changes.filter import Filter, ensure_fits  # noqa: PLC0415  # it takes DuckDB

    named = {table.name: table for table in tables}
    for each in outlets:
        chosen, table = Filter(each.columns, each.where), named[each.of]
        try:
            ensure_fits(chosen, table)
            if isinstance(each, Sink):
                each.format.ensure_fits(chosen.shown_columns(table.served, table.keys))
        except KappaError as error:
            yield DeclarationError(
                f"{each.source}: {each.part_name}: {error.message}", hint=error.hint
            )


# A change asks Spark anew: 2 has the lineage of columns.
_FORMAT = 2
# A function that takes longer than this on no rows hangs.
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outputs:
    """The output of a function: for each table, the type of each column, in the function's order.

    `changing` contains Spark's names of the nondeterministic expressions in the function. `lineage`
    contains the fields from which each column is computed, as (parameter of the function, field).
    """

    tables: Mapping[str, Mapping[str, Type]]
    changing: tuple[str, ...] = ()
    lineage: Lineage = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineToDescribe:
    """A pipeline to describe, its module, and the rows version that names the cached result."""

    pipeline: Pipeline
    module: str
    rows_version: str


def describe_functions(
    settings: Settings,
    store: Store,
    folder: Path,
    wanted: Mapping[str, PipelineToDescribe],
    show: Callable[[str], None] = lambda _step: None,
) -> Mapping[str, Outputs | DeclarationError]:
    """Returns the outputs of each pipeline's function, or the error that refuses the pipeline.

    `folder` is the folder of the project's files. The outputs come from the cache if the rows
    version was described before. An error names the line of the function, and one of three reasons:
    the function fails, is not row-local, or does not return all columns that the tables need.
    `show` is called at the beginning of each slow step, with a description of the step.
    """
    found: dict[str, Outputs | DeclarationError] = {}
    for name, described in wanted.items():
        kept = (
            Outputs({})
            if not described.pipeline.function_tables
            else _read_cached(store, described.rows_version)
        )
        if kept is not None:
            found[name] = kept
    missing = {name: described for name, described in wanted.items() if name not in found}
    if missing:
        answers = _ask_child(settings, folder, missing, show)
        for name, described in missing.items():
            answer = answers[name]
            if "message" in answer:
                found[name] = DeclarationError(answer["message"], hint=answer["hint"])
                continue
            store.put_json(_cache_name(described.rows_version), {"format": _FORMAT, **answer})
            found[name] = _parsed_outputs(answer)
    return found


def _read_cached(store: Store, rows_version: str) -> Outputs | None:
    document = cached_json(store, _cache_name(rows_version))
    return (
        _parsed_outputs(document)
        if document is not None and document.get("format") == _FORMAT
        else None
    )


def _ask_child(
    settings: Settings,
    folder: Path,
    missing: Mapping[str, PipelineToDescribe],
    show: Callable[[str], None],
) -> Any:
    def cut(name: str, last: str | None) -> Mapping[str, str]:
        pipeline = missing[name].pipeline
        what = (
            f"did not return within {_SECONDS:g} seconds, on no rows"
            if last is None
            else f"ended its process, on no rows: {last}"
        )
        return {
            "message": f"{pipeline.source}: the function of pipeline {name} {what}",
            "hint": "it must only build up frames and return them",
        }

    return ask_program(
        settings,
        folder,
        "kappa.engine.children.describe",
        {name: described.module for name, described in missing.items()},
        seconds=lambda _left: _SECONDS,
        cut=cut,
        say=show,
    )


def _parsed_outputs(answer: Mapping[str, Any]) -> Outputs:
    tables = {
        table: {column: parse_type(kind) for column, kind in columns}
        for table, columns in answer["tables"].items()
    }
    lineage = {
        table: {
            column: tuple((parameter, name) for parameter, name in fields)
            for column, fields in columns.items()
        }
        for table, columns in answer["lineage"].items()
    }
    return Outputs(tables, tuple(answer["changing"]), lineage)


def _cache_name(rows_version: str) -> str:
    return f"cache/describe/{rows_version}.json"
