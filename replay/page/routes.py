"""The addresses of all pages: overview, rollouts, history, data and boards.

Each address looks once, makes the values of a page, and renders the values. No decision is made
here, and nothing is changed: actions that a page offers (promote, abandon, undo, a query) are
requests of scripts to the API.

The file of a board is read at each request, so a reload of the page shows a change. All clients
that watch a board share a look at the queries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from kappa.base.errors import DeclarationError, KappaError
from kappa.base.sql import quoted
from kappa.declare.board import board_name, boards_in
from kappa.replay.page.api import desk_of
from kappa.replay.page.boards import BoardAnswer, answer_board, is_behind
from kappa.replay.page.build_rates import BuildHistories
from kappa.replay.page.overview import health_of, phase_health, pipeline_cards
from kappa.replay.page.rollout import rollout_view, service_actions, undo_action
from kappa.replay.page.samples import SampledRows, sampled_rows, samples_of
from kappa.replay.page.table import first_query, table_view
from kappa.replay.page.timeline import timeline_moments, undo_to
from kappa.replay.page.topic import TopicRates, as_text, newest_records, topic_rates
from kappa.replay.rollout.generation import code_of, generation_details, retired_text, serving_in
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.rollout_numbers import rollout_of_number
from kappa.replay.rollout.state import State
from kappa.replay.status.alerts import alert_statuses, shown_alerts
from kappa.replay.status.outgoing_changes import sends_at_switch, sent_in
from kappa.replay.status.shared_looks import SharedLooks
from kappa.serving.http import login, static
from kappa.serving.http.bounds import client_of
from kappa.serving.http.page.render import HEADERS, page_html
from kappa.serving.http.problem import HttpError
from kappa.serving.http.stand import stand_of
from kappa.serving.outlets.sinks.sink_status import sink_statuses
from kappa.serving.query.pin.moments import AtGeneration
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.rejects import Reject, RejectFilter, newest_rejects
from kappa.serving.query.sandbox.question import Question
from kappa.serving.query.tables import ServedTable, served_tables
from kappa.state.build import read_birth
from kappa.state.journal.events import PipelineRetired
from kappa.state.lease import sorted_leases

if TYPE_CHECKING:
    from kappa.replay.status.status import BuildStatus

router = APIRouter(include_in_schema=False)
ROUTERS = (router, static.router, login.router)
# So many fit a screen or two; the API has all.
_MOMENTS = 100
_ROWS = 12
_REJECTS = 50
_ALERTS = 50
_LETTERS = 20
# A board is there to be watched: queries may take up to a third of the time.
_REST = 2


def render_page(
    request: Request, name: str, state: State, now: datetime, **values: Any
) -> Response:
    """Renders a page and returns it as a response."""
    desk = desk_of(request)
    supervised = desk.here.running is not None
    where = request.url.path

    def health(build: BuildStatus) -> object:
        return health_of(build, now, supervised=supervised)

    html = page_html(
        name,
        now=now,
        generation=state.generation,
        supervised=supervised,
        with_token=request.app.state.token is not None,
        where=where,
        health=health,
        phase_health=phase_health,
        **values,
    )
    return Response(html, headers=dict(HEADERS), media_type="text/html")


@router.get("/")
def show_overview(request: Request) -> Response:
    """Shows each pipeline: the live build, its freshness, rate and lag, and the candidate."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    trails = _histories_of(request, desk)
    found = pipeline_cards(status, state, lambda build: trails.points_of(build, now), now)
    return render_page(
        request,
        "overview",
        state,
        now,
        cards=found,
        status=status,
        broker=desk.here.bootstrap_servers,
        sinks=sink_statuses(desk.here.store, now.timestamp()),
        deeds={
            each.pipeline: (
                *undo_action(state, each.pipeline),
                *service_actions(state, each.pipeline),
            )
            for each in found
        },
    )


@router.get("/rollouts/{number}")
def show_rollout(request: Request, number: int) -> Response:
    """Shows a rollout."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    wanted = _rollout_numbered(state, number)
    build = next((each for each in status.builds if each.build == wanted.build), None)
    return render_page(
        request,
        "rollout",
        state,
        now,
        view=rollout_view(state, wanted, build, status.end),
        sends=sends_at_switch(desk.here.store, state, wanted, most=desk.here.settings.alerts.most),
        status=status,
    )


@router.get("/rollouts/{number}/samples")
def show_samples(request: Request, number: int) -> Response:
    """Shows samples of the rows in which a rollout's build and the live build differ."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    view = rollout_view(state, _rollout_numbered(state, number), None, None)
    found, trouble, underway = tuple[SampledRows, ...](), None, False
    if view.comparable and view.live_build is not None:
        try:
            compared = samples_of(desk, view.live_build, view.rollout.build)
            found, underway = () if compared is None else sampled_rows(compared), compared is None
        except KappaError as error:
            trouble = error
    return render_page(
        request, "samples", state, now, view=view, found=found, trouble=trouble, underway=underway
    )


@router.get("/history")
def show_history(request: Request, before: int | None = None) -> Response:
    """Shows the timeline: the newest part, or the part older than record `before`."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    moments = timeline_moments(state, before=before, most=_MOMENTS + 1)
    return render_page(
        request,
        "history",
        state,
        now,
        moments=moments[:_MOMENTS],
        more=len(moments) > _MOMENTS,
        before=before,
    )


@router.get("/generations/{number}")
def show_generation(request: Request, number: int) -> Response:
    """Shows a generation and the builds that served in that generation."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    births = {build: read_birth(here.store, build) for build in serving_in(state, number).values()}
    found = generation_details(
        state,
        number,
        births,
        {build: code_of(here.store, birth) for build, birth in births.items()},
        sent_in(here.store, state, number, most=here.settings.alerts.most),
    )
    tables, trouble = tuple[ServedTable, ...](), None
    try:
        tables = desk.shared_look(
            f"tables of generation {number}",
            lambda: served_tables(
                here.store, when=AtGeneration(number), lease_seconds=here.lease_seconds
            ),
            generation=state.generation,
        )
    except KappaError as error:
        trouble = error
    return render_page(
        request,
        "generation",
        state,
        now,
        shown=found,
        left=retired_text(found.served) if isinstance(found.served, PipelineRetired) else "",
        tables=tables,
        trouble=trouble,
        deeds=tuple(undo_to(state, number)),
    )


def _rollout_numbered(state: State, number: int) -> Rollout:
    try:
        return rollout_of_number(state, number)
    except KappaError as error:
        raise HttpError(404, error.message, hint="the history lists those that there are") from None


def _histories_of(request: Request, desk: SharedLooks) -> BuildHistories:
    trails: BuildHistories = request.app.state.__dict__.setdefault(
        "trails", BuildHistories(desk.here.store)
    )
    return trails


@router.get("/tables")
def show_tables(request: Request) -> Response:
    """Shows all tables and views that serve."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    live = {each.pipeline: each for each in status.builds if each.role == "live"}
    return render_page(
        request,
        "tables",
        state,
        now,
        tables=desk.tables(state.generation) if state.generation else (),
        live=live,
    )


@router.get("/tables/{pipeline}/{name}")
def show_table(request: Request, pipeline: str, name: str) -> Response:
    """Shows a table with some rows, and a box for SQL."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status, here = desk.here.state(), desk.status(), desk.here
    found = (
        next(
            (
                each
                for each in desk.tables(state.generation)
                if (each.pipeline, each.name) == (pipeline, name)
            ),
            None,
        )
        if state.generation
        else None
    )
    if found is None:
        raise HttpError(
            404,
            f"pipeline {pipeline[:80]} serves no table {name[:80]}",
            hint="the tables are listed under /tables",
        )
    view = table_view(
        found,
        read_birth(here.store, found.build),
        sorted_leases(here.store, now.timestamp())[0],
        tables_named,
        whole=f"{quoted(schema_of(pipeline))}.{quoted(name)}",
    )
    rows, trouble = None, None
    try:
        rows = desk.shared_look(
            f"rows of {view.whole} in {found.build}",
            lambda: _sample_rows(request, view.whole),
            generation=state.generation,
            client=client_of(request.scope),
        )
    except KappaError as error:
        trouble = error
    live = next((each for each in status.builds if each.build == found.build), None)
    return render_page(
        request,
        "table",
        state,
        now,
        view=view,
        rows=rows,
        trouble=trouble,
        live=live,
        sql=first_query(found, view.whole),
    )


@router.get("/alerts")
def show_alerts(request: Request) -> Response:
    """Shows the alerts, the last messages on the page, and the dead letters."""
    here, now = desk_of(request).here, datetime.now(UTC)
    state = here.state()
    found = alert_statuses(here.store)
    shown = shown_alerts(here.store, (each.name for each in found), _ALERTS)
    return render_page(request, "alerts", state, now, found=found, shown=shown, most=_LETTERS)


@router.get("/topics")
def show_topics(request: Request) -> Response:
    """Shows the topics of the broker."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, found, trouble = desk.here.state(), list[dict[str, Any]](), None
    known: Mapping[str, float | None] = {}
    try:
        found, known = desk.topics().row_objects(), topic_rates(desk, _topic_rates_of(request))
    except KappaError as error:
        trouble = error
    rates = {each["topic"]: known.get(each["topic"]) for each in found}
    readers = {
        each["topic"]: sorted(
            {build.pipeline for build in desk.status().builds if each["topic"] in build.topics}
        )
        for each in found
    }
    return render_page(
        request, "topics", state, now, topics=found, rates=rates, readers=readers, trouble=trouble
    )


@router.get("/topics/{name}")
def show_topic(request: Request, name: str) -> Response:
    """Shows the newest records of a topic."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    view = newest_records(desk, name)
    builds = [each for each in status.builds if name in each.topics]
    return render_page(
        request,
        "topic",
        state,
        now,
        view=view,
        rate=topic_rates(desk, _topic_rates_of(request)).get(name),
        builds=builds,
    )


@router.get("/rejects")
def show_rejects(
    request: Request, pipeline: str = "", reason: str = "", build: str = ""
) -> Response:
    """Shows the newest rejects."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found, trouble = tuple[Reject, ...](), None
    if state.generation:
        try:
            wanted = RejectFilter(pipeline or None, build or None, reason or None)
            found = desk.shared_look(
                f"rejects {wanted}",
                lambda: newest_rejects(
                    here.store, wanted, limit=_REJECTS, lease_seconds=here.lease_seconds
                ),
                generation=state.generation,
            )
        except KappaError as error:
            trouble = error
    counted = desk.counted_rejects(state.generation) if state.generation else {}
    asked = {"pipeline": pipeline, "reason": reason, "build": build}
    return render_page(
        request,
        "rejects",
        state,
        now,
        found=found,
        trouble=trouble,
        counted=counted,
        asked=asked,
        as_text=as_text,
    )


def _sample_rows(request: Request, whole: str) -> dict[str, Any]:
    """Returns some rows of a table from the sandbox: a view may be as slow as a query."""
    stand = stand_of(request)
    reply = stand.sandbox.ask_query(
        stand.store,
        Question(f"from {whole} limit {_ROWS}"),
        lease_seconds=stand.lease_seconds,
        client=client_of(request.scope),
    )
    with reply.body as body:
        document: dict[str, Any] = json.loads(body.read())
    return document


def _topic_rates_of(request: Request) -> TopicRates:
    paces: TopicRates = request.app.state.__dict__.setdefault("paces", TopicRates())
    return paces


@router.get("/boards")
def show_boards(request: Request) -> Response:
    """Shows all boards of the project, also boards whose file has a mistake."""
    desk, now = desk_of(request), datetime.now(UTC)
    found = boards_in(desk.here.settings.project)
    return render_page(
        request,
        "boards",
        desk.here.state(),
        now,
        boards={name: each for name, each in found.items() if not isinstance(each, KappaError)},
        wrong={name: each for name, each in found.items() if isinstance(each, KappaError)},
    )


@router.get("/boards/{name}")
def show_board(request: Request, name: str, *, kiosk: bool = False) -> Response:
    """Shows a board with all charts; `kiosk`: alone, in large letters, for a wall screen."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found = boards_in(here.settings.project).get(board_name(name))
    if found is None:
        raise HttpError(
            404,
            f"the project has no board {name[:80]}",
            hint="a board is a file boards/NAME.toml beside kappa.toml; /boards lists them",
        )
    answer: BoardAnswer | None = None
    trouble: KappaError | None = None
    if isinstance(found, DeclarationError):
        trouble = found
    else:
        stand, asked, client = stand_of(request), found, client_of(request.scope)
        try:
            answer = desk.shared_look(
                f"board {asked}",
                lambda: answer_board(
                    here.store,
                    stand.sandbox,
                    asked,
                    lease_seconds=stand.lease_seconds,
                    client=client,
                ),
                generation=state.generation,
                rest=_REST,
                client=client,
            )
        except KappaError as error:
            trouble = error
    return render_page(
        request,
        "board",
        state,
        now,
        title=name if isinstance(found, DeclarationError) else found.title,
        address=f"/boards/{quote(name)}",
        kiosk=kiosk,
        answer=answer,
        trouble=trouble,
        behind=answer is not None and is_behind(here.store, answer),
        reads=json.dumps([] if answer is None else answer.reads),
    )
