"""The addresses of data: tables with some rows, topics with newest records, rejects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request, Response

from kappa.base.errors import KappaError
from kappa.base.sql import quoted
from kappa.replay.page.answer import page
from kappa.replay.page.api import desk_of
from kappa.replay.page.table import first_query, table_view
from kappa.replay.page.topic import Paces, as_text, newest_records, topic_rates
from kappa.replay.status.alerts import alert_statuses, shown_alerts
from kappa.serving.http.bounds import client_of
from kappa.serving.http.problem import HttpError
from kappa.serving.http.stand import stand_of
from kappa.serving.query.reader.table_sql import schema_of
from kappa.serving.query.reader.views import tables_named
from kappa.serving.query.rejects import Reject, Wanted, newest_rejects
from kappa.serving.query.sandbox.question import Question
from kappa.state.build import read_birth
from kappa.state.lease import sorted_leases

# So many fit a screen or two; all of them are in the API.
_ROWS = 12
_REJECTS = 50
_ALERTS = 50
_LETTERS = 20

router = APIRouter(include_in_schema=False)


@router.get("/tables")
def tables(request: Request) -> Response:
    """Shows all tables and views that serve."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    live = {each.pipeline: each for each in status.builds if each.role == "live"}
    return page(
        request,
        "tables",
        state,
        now,
        tables=desk.tables(state.generation) if state.generation else (),
        live=live,
    )


@router.get("/tables/{pipeline}/{name}")
def table(request: Request, pipeline: str, name: str) -> Response:
    """Shows a table with some of its rows, and a box for SQL."""
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
            client=client_of(request.scope),
        )
    except KappaError as error:
        trouble = error
    live = next((each for each in status.builds if each.build == found.build), None)
    return page(
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
def alerts(request: Request) -> Response:
    """Shows the alerts, their last messages on the page, and their dead letters."""
    here, now = desk_of(request).here, datetime.now(UTC)
    state = here.state()
    found = alert_statuses(here.store)
    shown = shown_alerts(here.store, (each.name for each in found), _ALERTS)
    return page(request, "alerts", state, now, found=found, shown=shown, most=_LETTERS)


@router.get("/topics")
def topics(request: Request) -> Response:
    """Shows the topics of the broker."""
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
    return page(
        request, "topics", state, now, topics=found, rates=rates, readers=readers, trouble=trouble
    )


@router.get("/topics/{name}")
def topic(request: Request, name: str) -> Response:
    """Shows the newest records of a topic."""
    desk, now = desk_of(request), datetime.now(UTC)
    state, status = desk.here.state(), desk.status()
    view = newest_records(desk, name)
    builds = [each for each in status.builds if name in each.topics]
    return page(
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
    """Shows the newest rejects."""
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
    return page(
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
    """Returns some rows of a table by the sandbox: a view may be as slow as a query."""
    stand = stand_of(request)
    reply = stand.sandbox.ask(
        stand.store,
        Question(f"from {whole} limit {_ROWS}"),
        lease_seconds=stand.lease_seconds,
        client=client_of(request.scope),
    )
    with reply.body as body:
        document: dict[str, Any] = json.loads(body.read())
    return document


def _paces(request: Request) -> Paces:
    paces: Paces = request.app.state.__dict__.setdefault("paces", Paces())
    return paces
