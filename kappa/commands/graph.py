"""The command `kappa graph`: which topics, tables, views and outlets feed each other."""

from __future__ import annotations

import json
import sys
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


class GraphForm(StrEnum):
    """The form in which the lineage is printed."""

    TABLE = "table"
    MERMAID = "mermaid"
    SVG = "svg"
    JSON = "json"


def graph(
    context: typer.Context,
    pipeline: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]",
            show_default=False,
            help="only what feeds this pipeline, and what it feeds",
        ),
    ] = None,
    output: Annotated[
        GraphForm, typer.Option("-o", "--output", help="the form of the output")
    ] = GraphForm.TABLE,
) -> None:
    """Show what feeds what: topics, pipelines, tables, views, sinks, alerts and boards.

    The graph has what serves, and what a rollout adds, changes, replays or removes. The page shows
    the same picture, live.
    """
    from kappa.declare.board import boards_in
    from kappa.replay.status.graph import (
        graph_document,
        graph_listing,
        mermaid_text,
        observe_graph,
        part_of_graph,
    )
    from kappa.replay.status.status import observe_status
    from kappa.serving.query.reader.views import tables_named

    here = here_of(context)
    state = here.state()
    found = observe_graph(
        here.store,
        state,
        observe_status(here.store, _log_or_none(here)),
        boards_in(here.settings.project),
        tables_named,
        {},
    )
    if all(each.kind == "board" for each in found.nodes):
        raise UsageError("no pipeline has a build yet", hint="deploy one: kappa deploy")
    if pipeline is not None:
        found = part_of_graph(found, pipeline)
    match output:
        case GraphForm.MERMAID:
            sys.stdout.write(mermaid_text(found))
        case GraphForm.JSON:
            sys.stdout.write(f"{json.dumps(graph_document(found), indent=2)}\n")
        case GraphForm.SVG:
            from kappa.replay.page.drawn_graph import draw_graph
            from kappa.serving.http.page.render import graph_svg

            sys.stdout.write(graph_svg(draw_graph(found), here.settings.project.name))
        case GraphForm.TABLE:
            print_listing(Form.TABLE, graph_listing(found))


def _log_or_none(here: ProjectContext) -> Log | None:
    """Returns the broker's client for the lags, or None if no broker is known."""
    try:
        return here.log(looks=True) if here.bootstrap_servers else None
    except KappaError as error:
        say(f"lags are unknown: {error.message}")
        return None
