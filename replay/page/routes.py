"""The addresses of the overview, rollouts, history and generations.

data_routes.py and board_routes.py have the others. Each looks once, makes the values of one page,
and renders them. Nothing is decided or changed here: what a page asks for (promote, abandon, undo,
a query) its scripts ask of the API.
"""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from kappa.base.errors import KappaError
from kappa.replay.page import board_routes, data_routes
from kappa.replay.page.answer import page
from kappa.replay.page.api import desk_of
from kappa.replay.page.compared import samples_of
from kappa.replay.page.overview import cards
from kappa.replay.page.rollout import (
    SampledRows,
    rollout_view,
    sampled,
    service_deeds,
    undo_deed,
)
from kappa.replay.page.timeline import timeline, undo_to
from kappa.replay.page.trail import Trails
from kappa.replay.rollout.generation import code_of, left_text, serving_in, shown
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.rollout_numbers import numbered
from kappa.replay.rollout.state import State
from kappa.replay.status.desk import Desk
from kappa.replay.status.sending import sending, sent_in
from kappa.serving.http import login, static
from kappa.serving.http.problem import HttpError
from kappa.serving.outlets.sinks.sink_status import sink_statuses
from kappa.serving.query.pin.moments import AtGeneration
from kappa.serving.query.tables import ServedTable, served_tables
from kappa.state.build import read_birth
from kappa.state.journal.events import PipelineRetired

# So many fit a screen or two; all of them are in the API.
_MOMENTS = 100

router = APIRouter(include_in_schema=False)
ROUTERS = (router, board_routes.router, data_routes.router, static.router, login.router)


@router.get("/")
def overview(request: Request) -> Response:
    """Shows each pipeline: what serves, how fresh, how fast, its lag, and its candidate."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    trails = _trails(request, desk)
    found = cards(status, state, lambda build: trails.of(build, now), now)
    return page(
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
                *undo_deed(state, each.pipeline),
                *service_deeds(state, each.pipeline),
            )
            for each in found
        },
    )


@router.get("/rollouts/{number}")
def rollout(request: Request, number: int) -> Response:
    """Shows one rollout."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    wanted = _numbered(state, number)
    build = next((each for each in status.builds if each.build == wanted.build), None)
    return page(
        request,
        "rollout",
        state,
        now,
        view=rollout_view(state, wanted, build, status.end),
        sends=sending(desk.here.store, state, wanted, most=desk.here.settings.alerts.most),
        status=status,
    )


@router.get("/rollouts/{number}/samples")
def samples(request: Request, number: int) -> Response:
    """Shows samples of the rows in which a rollout's build and the live one differ."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    view = rollout_view(state, _numbered(state, number), None, None)
    found, trouble, underway = tuple[SampledRows, ...](), None, False
    if view.comparable and view.live_build is not None:
        try:
            compared = samples_of(desk, view.live_build, view.rollout.build)
            found, underway = () if compared is None else sampled(compared), compared is None
        except KappaError as error:
            trouble = error
    return page(
        request, "samples", state, now, view=view, found=found, trouble=trouble, underway=underway
    )


@router.get("/history")
def history(request: Request, before: int | None = None) -> Response:
    """Shows the timeline: its newest part, or what is older than record `before`."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    moments = timeline(state, before=before, most=_MOMENTS + 1)
    return page(
        request,
        "history",
        state,
        now,
        moments=moments[:_MOMENTS],
        more=len(moments) > _MOMENTS,
        before=before,
    )


@router.get("/generations/{number}")
def generation(request: Request, number: int) -> Response:
    """Shows one generation and what it served."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    births = {build: read_birth(here.store, build) for build in serving_in(state, number).values()}
    found = shown(
        state,
        number,
        births,
        {build: code_of(here.store, birth) for build, birth in births.items()},
        sent_in(here.store, state, number, most=here.settings.alerts.most),
    )
    tables, trouble = tuple[ServedTable, ...](), None
    try:
        tables = desk.look(
            f"tables of generation {number}",
            lambda: served_tables(
                here.store, when=AtGeneration(number), lease_seconds=here.lease_seconds
            ),
            generation=state.generation,
        )
    except KappaError as error:
        trouble = error
    return page(
        request,
        "generation",
        state,
        now,
        shown=found,
        left=left_text(found.served) if isinstance(found.served, PipelineRetired) else "",
        tables=tables,
        trouble=trouble,
        deeds=tuple(undo_to(state, number)),
    )


def _numbered(state: State, number: int) -> Rollout:
    try:
        return numbered(state, number)
    except KappaError as error:
        raise HttpError(404, error.message, hint="the history lists those that there are") from None


def _trails(request: Request, desk: Desk) -> Trails:
    trails: Trails = request.app.state.__dict__.setdefault("trails", Trails(desk.here.store))
    return trails
