"""The command `kappa graph`: shows how topics, tables, views and outlets feed each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.base.errors import KappaError, UsageError
from kappa.commands.terminal.options import here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form

if TYPE_CHECKING:
    from kappa.kafka.client import Log
    from kappa.replay.status.context import ProjectContext
    from kappa.replay.status.graph import ProjectGraph


class GraphForm(StrEnum):
    """The format in which the lineage is printed."""

    TABLE = "table"
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


def graph(
    context: typer.Context,
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]", help="only what feeds this pipeline, and what it feeds"
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE.COLUMN", help="what feeds this column, and what the column feeds"
        ),
    ] = None,
    output: Annotated[
        GraphForm, typer.Option("-o", "--output", help="the form of the output")
    ] = GraphForm.TABLE,
) -> None:
    """Show how topics, pipelines, tables, views, sinks, alerts and boards feed each other.

    The graph contains everything that serves, and everything that a rollout adds, changes, replays
    or removes. The page shows the same graph, live.

    With --column, the graph contains columns of served tables and views, and fields of topics. The
    sources of a column are known once its pipeline has been deployed.
    """
    from kappa.code.names import written_pipelines
    from kappa.declare.board import boards_in
    from kappa.replay.status.graph import observe_graph, part_of_graph
    from kappa.replay.status.status import observe_status
    from kappa.replay.status.topics.topic_growth import begin_rates
    from kappa.serving.query.reader.views import tables_named
    from kappa.state.record_cache import ReadMemory

    here = here_of(context)
    if column is not None:
        if pipeline is not None:
            raise UsageError(
                "--column shows a column in the whole project, and not in a pipeline",
                hint=f"leave {pipeline} out: kappa graph --column {column}",
            )
        _print_graph(here, _column_graph(here, column), output)
        return
    state = here.state()
    project, log = here.settings.project, _log_or_none(here)
    memory = ReadMemory(here.store)
    births = map(memory.birth, state.wanted_builds())
    topics = {topic.name for birth in births for topic in birth.topics}
    rates: Mapping[str, float | None] = {}
    try:
        end_rates = None if log is None or not topics else begin_rates(log, topics)
    except KappaError as error:
        say(f"rates are unknown: {error.message}")
        end_rates = None
    status = observe_status(here.store, log, memory=memory)
    with suppress(KappaError):
        rates = {} if end_rates is None else end_rates()
    found = observe_graph(
        *(memory.birth, state, status, boards_in(project)),
        *(tables_named, rates, written_pipelines(project)),
    )
    if all(each.kind == "board" for each in found.nodes):
        raise UsageError(
            "no pipeline has a build yet, and no file declares one", hint="deploy one: kappa deploy"
        )
    if pipeline is not None:
        found = part_of_graph(found, pipeline)
    _print_graph(here, found, output)


def _column_graph(here: ProjectContext, column: str) -> ProjectGraph:
    """Returns the lineage of a column of a served table or view.

    `column` is `TABLE.COLUMN`. Raises UsageError if no serving build has the column.
    """
    from kappa.code.names import written_pipelines
    from kappa.replay.status.column_graph import column_graph
    from kappa.state.build import read_birth

    births = {name: read_birth(here.store, build) for name, build in here.state().serving.items()}
    try:
        return column_graph(births, column)
    except UsageError as error:
        # A table that is declared alone has no plan of Spark yet.
        declared = {
            table: each.name
            for each in written_pipelines(here.settings.project)
            if each.name not in births
            for _, table in each.relations
        }
        table = next((each for each in declared if column.startswith(f"{each}.")), None)
        if table is None:
            raise
        raise UsageError(
            f"table {table} of pipeline {declared[table]} serves nothing yet: the sources of its "
            "columns are not known before the first deploy",
            hint=f"deploy it: kappa deploy {declared[table]}",
        ) from error


def _print_graph(here: ProjectContext, found: ProjectGraph, output: GraphForm) -> None:
    from kappa.replay.status.graph import graph_document, graph_listing, mermaid_text

    match output:
        case GraphForm.MERMAID:
            sys.stdout.write(mermaid_text(found))
        case GraphForm.JSON:
            sys.stdout.write(f"{json.dumps(graph_document(found), indent=2)}\n")
        case GraphForm.SVG:
            from kappa.replay.page.graph_layout import draw_graph
            from kappa.serving.http.page.render import graph_svg

            sys.stdout.write(graph_svg(draw_graph(found), here.settings.project.name))
        case GraphForm.TABLE:
            print_listing(Form.TABLE, graph_listing(found))


def _log_or_none(here: ProjectContext) -> Log | None:
    """Returns a client of the broker, or None if it is not known or does not answer."""
    try:
        return here.log(looks=True) if here.bootstrap_servers else None
    except KappaError as error:
        say(f"lags are unknown: {error.message}")
        return None
