"""The pages' addresses: each looks once, makes the values of one page of it, and has them rendered. Nothing is decided or changed here.

What a page asks for (promote, abandon, undo, a query) its scripts ask of the API. Read next: desk.py (what is looked at), the
modules beside this one (what is told), serving/page (how).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from kappa.base.errors import KappaError
from kappa.state.build import read_birth
from kappa.state.lease import sorted_leases
from kappa.values.columns import quoted
from replay.http.api import desk_of
from replay.look.desk import Desk
from replay.page.compared import samples_of
from replay.page.overview import cards, health_of, phase_health
from replay.page.rollout import SampledRows, rollout_view, sampled, undo_deed
from replay.page.table import first_query, table_view
from replay.page.timeline import timeline, undo_to
from replay.page.topic import Paces, as_text, newest_records, topic_rates
from replay.page.trail import Trails
from replay.rollout.show import code_of, serving_in, shown
from replay.rollout.state import State
from serving.http import login, static
from serving.http.http import stand_of
from serving.http.problem import HttpError
from serving.page.render import HEADERS, page_html
from serving.pin.past import AtGeneration
from serving.query.table_sql import schema_of
from serving.query.tables import ServedTable, served_tables
from serving.query.views import tables_named
from serving.rejects.rejects import Reject, Wanted, newest_rejects
from serving.sandbox.question import Question

if TYPE_CHECKING:
    from replay.look.status import BuildStatus

# So many fit a screen or two; all of them are in the API.
_ROWS = 12
_REJECTS = 50
_MOMENTS = 100

router = APIRouter(include_in_schema=False)
ROUTERS = (router, static.router, login.router)


@router.get("/")
def overview(request: Request) -> Response:
    """Each pipeline: what serves, how fresh, how fast, how far behind, and what is on its way."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    trails = _trails(request, desk)
    found = cards(status, state, lambda build: trails.of(build, now), now)
    return _page(
        request,
        "overview",
        state,
        now,
        cards=found,
        status=status,
        broker=desk.here.bootstrap_servers,
        deeds={each.pipeline: tuple(undo_deed(state, each.pipeline)) for each in found},
    )


@router.get("/rollouts/{number}")
def rollout(request: Request, number: int) -> Response:
    """One rollout."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    try:
        wanted = state.rollout(number)
    except KeyError:
        raise HttpError(
            404, f"there is no rollout {number}", hint="the history lists those that there are"
        ) from None
    build = next((each for each in status.builds if each.build == wanted.build), None)
    return _page(
        request,
        "rollout",
        state,
        now,
        view=rollout_view(state, wanted, build, status.end),
        status=status,
    )


@router.get("/rollouts/{number}/samples")
def samples(request: Request, number: int) -> Response:
    """The rows that differ, some of each kind, of a rollout's build and the one that it is compared with."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    try:
        view = rollout_view(state, state.rollout(number), None, None)
    except KeyError:
        raise HttpError(
            404, f"there is no rollout {number}", hint="the history lists those that there are"
        ) from None
    found, trouble, underway = tuple[SampledRows, ...](), None, False
    if view.comparable and view.live_build is not None:
        try:
            compared = samples_of(desk, view.live_build, view.rollout.build)
            found, underway = () if compared is None else sampled(compared), compared is None
        except KappaError as error:
            trouble = error
    return _page(
        request, "samples", state, now, view=view, found=found, trouble=trouble, underway=underway
    )


@router.get("/history")
def history(request: Request, before: int | None = None) -> Response:
    """The timeline, the newest of it, or what is older than record `before`."""
    desk, now = desk_of(request), datetime.now(UTC)
    state = desk.here.state()
    moments = timeline(state, before=before, most=_MOMENTS + 1)
    return _page(
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
    """One generation: what it served."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    births = {build: read_birth(here.store, build) for build in serving_in(state, number).values()}
    found = shown(
        state,
        number,
        births,
        {build: code_of(here.store, birth) for build, birth in births.items()},
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
    return _page(
        request,
        "generation",
        state,
        now,
        shown=found,
        tables=tables,
        trouble=trouble,
        deeds=tuple(undo_to(state, number)),
    )


@router.get("/tables")
def tables(request: Request) -> Response:
    """All tables and views that serve."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    live = {each.pipeline: each for each in status.builds if each.role == "live"}
    return _page(
        request,
        "tables",
        state,
        now,
        tables=desk.tables(state.generation) if state.generation else (),
        live=live,
    )


@router.get("/tables/{pipeline}/{name}")
def table(request: Request, pipeline: str, name: str) -> Response:
    """One of them, with some of its rows, and a box for SQL."""
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
        rows = desk.look(
            f"rows of {view.whole} in {found.build}",
            lambda: _sample(request, view.whole),
            generation=state.generation,
        )
    except KappaError as error:
        trouble = error
    live = next((each for each in status.builds if each.build == found.build), None)
    return _page(
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


@router.get("/topics")
def topics(request: Request) -> Response:
    """The topics of the broker."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, found, trouble = desk.here.state(), list[dict[str, Any]](), None
    known: Mapping[str, float | None] = {}
    try:
        found, known = desk.topics().objects(), topic_rates(desk, _paces(request))
    except KappaError as error:
        trouble = error
    rates = {each["topic"]: known.get(each["topic"]) for each in found}
    readers = {
        each["topic"]: sorted(
            {build.pipeline for build in desk.status().builds if each["topic"] in build.topics}
        )
        for each in found
    }
    return _page(
        request, "topics", state, now, topics=found, rates=rates, readers=readers, trouble=trouble
    )


@router.get("/topics/{name}")
def topic(request: Request, name: str) -> Response:
    """The newest records of one."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    view = newest_records(desk, name)
    builds = [each for each in status.builds if name in each.topics]
    return _page(
        request,
        "topic",
        state,
        now,
        view=view,
        rate=topic_rates(desk, _paces(request)).get(name),
        builds=builds,
    )


@router.get("/rejects")
def rejects(request: Request, pipeline: str = "", reason: str = "", build: str = "") -> Response:
    """The newest records that were not valid."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, here = desk.here.state(), desk.here
    found, trouble = tuple[Reject, ...](), None
    if state.generation:
        try:
            wanted = Wanted(pipeline or None, build or None, reason or None)
            found = desk.look(
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
    return _page(
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


def _sample(request: Request, whole: str) -> dict[str, Any]:
    """Some rows of a table, as a stranger's query would get them: views may be as slow as they like."""
    stand = stand_of(request)
    reply = stand.sandbox.ask(
        stand.store, Question(f"from {whole} limit {_ROWS}"), lease_seconds=stand.lease_seconds
    )
    with reply.body as body:
        document: dict[str, Any] = json.loads(body.read())
    return document


def _page(request: Request, name: str, state: State, now: datetime, **told: Any) -> Response:
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
        **told,
    )
    return Response(html, headers=dict(HEADERS), media_type="text/html")


def _paces(request: Request) -> Paces:
    paces: Paces = request.app.state.__dict__.setdefault("paces", Paces())
    return paces


def _trails(request: Request, desk: Desk) -> Trails:
    trails: Trails = request.app.state.__dict__.setdefault("trails", Trails(desk.here.store))
    return trails
