"""The routes of the HTTP API, which returns JSON documents and accepts intents.

The documents are the same as those of the commands with `-o json`. An intent is a request to
promote, undo, abandon, verify, retire, pause or resume. This module makes no decisions.
serving/http/http.py contains the server, replay/status/status_cache.py makes the observations, and
replay/page/routes.py contains the pages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kappa.base.errors import UsageError
from kappa.base.units import count_of
from kappa.replay.page.intents import (
    Intent,
    do_once,
    explain_intent,
    intent_details,
    record_intent,
)
from kappa.replay.rollout.history import (
    RolloutEntry,
    proof_records,
    rollout_entries,
    service_records,
)
from kappa.replay.rollout.operator_requests import ask_redrive
from kappa.replay.rollout.rollout_numbers import part_named, rollout_of_number
from kappa.replay.rollout.state import State
from kappa.replay.status.alerts import alert_statuses, alerts_listing, dead_letters_listing
from kappa.replay.status.listings import history_listing, rejects_listing
from kappa.replay.status.metrics import MetricFacts, metrics_text
from kappa.replay.status.status_cache import SharedLooks
from kappa.replay.status.status_text import status_document
from kappa.serving.access.roles import Act, ensure_may
from kappa.serving.http.app_state import API, OBJECT, ROWS, json_answer
from kappa.serving.http.exposition import MEDIA_TYPE
from kappa.serving.http.problem import HttpError
from kappa.serving.http.rights import asker, needs, rejects_asked
from kappa.serving.outlets.alerts.outbox import ask_for_dead_letters, found_dead_letters
from kappa.serving.outlets.sinks.sink_status import sink_statuses, sinks_listing
from kappa.serving.query.redrive import plan_lines, produce_redrive
from kappa.serving.query.rejects import RejectFilter, newest_rejects
from kappa.serving.query.render import to_json
from kappa.serving.query.tables import tables_listing
from kappa.state.disk_space import free_bytes
from kappa.state.frontier import Frontiers
from kappa.state.root import ensure_no_copy
from kappa.state.store import Store

router = APIRouter()


@router.get(f"{API}/builds", tags=["platform"], responses=json_answer(OBJECT))
@needs(Act.LOOK)
def builds(request: Request) -> Response:
    """Lists the live, idle and candidate builds, as `kappa status -o json` does."""
    return _json_response(_status_document_of(desk_of(request)))


@router.get(f"{API}/pipelines", tags=["platform"], responses=json_answer(OBJECT))
@needs(Act.LOOK)
def pipelines(request: Request) -> Response:
    """Lists each pipeline that has a build, together with its live, idle and candidate build."""
    status = _status_document_of(desk_of(request))
    found: dict[str, dict[str, Any]] = {}
    for row in status["builds"]:
        found.setdefault(
            row["pipeline"],
            {"pipeline": row["pipeline"], "live": None, "idle": None, "candidate": None},
        )[row["role"]] = row
    return _json_response({"generation": status["generation"], "pipelines": list(found.values())})


@router.get(f"{API}/rollouts", tags=["platform"], responses=json_answer(OBJECT))
@needs(Act.LOOK)
def rollouts(
    request: Request,
    active: Annotated[bool, Query(description="only those that have not ended")] = False,
) -> Response:
    """Lists all rollouts, oldest first. If a rollout has served, its entry includes the receipt.

    A later intent needs the `ETag` of this response as its `If-Match` header. The API refuses the
    intent if the generation has changed since this response.
    """
    state = desk_of(request).here.state()
    listing = history_listing(
        tuple(each for each in rollout_entries(state) if each.rollout.active or not active)
    ).row_objects()
    return _json_response(
        {"generation": state.generation, "rollouts": listing}, headers=_generation_header(state)
    )


@router.get(f"{API}/rollouts/{{number}}", tags=["platform"], responses=json_answer(OBJECT))
@needs(Act.LOOK)
def rollout(request: Request, number: int) -> Response:
    """Shows the rollout with the given number, in the same form as `GET /api/v1/rollouts`."""
    state = desk_of(request).here.state()
    try:
        wanted = rollout_of_number(state, number)
    except UsageError as error:
        raise HttpError(404, error.message, hint=error.hint) from None
    (row,) = history_listing((RolloutEntry(wanted, state.served_in(wanted.id)),)).row_objects()
    return _json_response(row, headers=_generation_header(state))


@router.get(f"{API}/history", tags=["platform"], responses=json_answer(ROWS))
@needs(Act.LOOK)
def history(request: Request) -> Response:
    """Lists rollouts, proofs, retirements, pauses and redrives, as `kappa history -o json` does."""
    state = desk_of(request).here.state()
    return _json_response(
        history_listing(
            rollout_entries(state), proof_records(state), service_records(state)
        ).row_objects(),
        headers=_generation_header(state),
    )


@router.get(f"{API}/tables", tags=["platform"], responses=json_answer(ROWS))
@needs(Act.READ)
def tables(request: Request) -> Response:
    """Lists the served tables, with the path and version that another tool needs to read each.

    The list equals that of `kappa tables -o json`, but contains only tables that the client may
    read.
    """
    desk = desk_of(request)
    readable = asker(request).tables
    found = [
        each for each in desk.tables(desk.generation()) if readable.allows(each.pipeline, each.name)
    ]
    return _json_response(tables_listing(found).row_objects())


@router.get(f"{API}/topics", tags=["platform"], responses=json_answer(ROWS))
@needs(Act.LOOK)
def topics(request: Request) -> Response:
    """Lists the topics of the broker and of the builds, as `kappa topics list -o json` does."""
    return _json_response(desk_of(request).topics().row_objects())


@router.get(f"{API}/sinks", tags=["platform"], responses=json_answer(ROWS))
@needs(Act.LOOK)
def sinks(request: Request) -> Response:
    """Lists the sinks with their sent records and last errors, as `kappa sinks -o json` does."""
    found = sink_statuses(desk_of(request).here.store, time.time())
    return _json_response(sinks_listing(found).row_objects())


@router.get(f"{API}/rejects", tags=["platform"], responses=json_answer(ROWS))
@needs(Act.READ, rejects_asked)
def rejects(
    request: Request,
    pipeline: str | None = None,
    build: str | None = None,
    reason: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> Response:
    """Lists the newest rejects of the serving builds, or of one build.

    The response equals the output of `kappa rejects -o json`.
    """
    here = desk_of(request).here
    found = newest_rejects(
        here.store,
        RejectFilter(*part_named(here.state, pipeline, build), reason),
        limit=limit,
        lease_seconds=here.lease_seconds,
    )
    return _json_response(rejects_listing(found).row_objects())


class RedriveRequest(BaseModel):
    """The body of a redrive request: rejected records that a person has corrected."""

    model_config = ConfigDict(extra="forbid")

    lines: tuple[str, ...] = Field(
        min_length=1,
        max_length=1000,
        description="fixed lines of `kappa rejects export`, each with the header kappa-redrive",
    )
    dry_run: bool = Field(default=False, description="only tell what would be produced")


@router.post(
    f"{API}/rejects/redrive",
    tags=["platform"],
    status_code=202,
    responses={
        200: {
            "description": "What would be produced",
            "content": {"application/json": {"schema": OBJECT}},
        },
        202: {"content": {"application/json": {"schema": OBJECT}}},
    },
)
@needs(Act.REDRIVE)
def redrive_rejects(
    request: Request,
    wanted: RedriveRequest,
    idempotency_key: Annotated[
        str | None, Header(description="the same request with the same key is done once")
    ] = None,
) -> Response:
    """Produces corrected rejects to their topics again, as `kappa rejects redrive` does.

    Each produced record is folded once, instead of the original record that its header names.
    """
    desk = desk_of(request)
    here = desk.here
    if not wanted.dry_run and idempotency_key is None:
        raise _no_key()
    ensure_no_copy(here.store)
    log = desk.must_reach_broker()
    # The newlines between the parts of a JSON text mean nothing; a line has none.
    lines = [" ".join(each.splitlines()).encode() for each in wanted.lines]

    def act() -> Mapping[str, Any]:
        planned = plan_lines(here.store, lines, lambda: log, lease_seconds=here.lease_seconds)
        count = sum(map(len, planned.records.values()))
        if not wanted.dry_run:
            ask_redrive(here.store, planned.pipelines)
            sent = produce_redrive(here.store, planned, log, lease_seconds=here.lease_seconds)
            count = sum(each.count for each in sent.values())
        return {
            "would" if wanted.dry_run else "did": planned.as_text.rstrip("\n"),
            "records": count,
            "folded_already": planned.folded_already,
            "unmended": planned.unmended,
        }

    return _tried_or_done_once(here.store, wanted, idempotency_key, act)


class RetryRequest(BaseModel):
    """The body of a request to send dead letters of an alert again."""

    model_config = ConfigDict(extra="forbid")

    alert: str = Field(description="the alert whose dead letters are sent again")
    id: str | None = Field(default=None, description="only the letter with this message id")
    dry_run: bool = Field(default=False, description="only tell what would be sent")


@router.post(
    f"{API}/alerts/retry",
    tags=["platform"],
    status_code=202,
    responses={
        200: {
            "description": "What would be sent",
            "content": {"application/json": {"schema": OBJECT}},
        },
        202: {"content": {"application/json": {"schema": OBJECT}}},
    },
)
@needs(Act.REDRIVE)
def retry_dead_letters(
    request: Request,
    wanted: RetryRequest,
    idempotency_key: Annotated[
        str | None, Header(description="the same request with the same key is done once")
    ] = None,
) -> Response:
    """Sends the dead letters of an alert again, once each, as `kappa alerts retry` does.

    The platform sends the dead letters at once, or as soon as the platform is up.
    """
    here = desk_of(request).here
    if not wanted.dry_run and idempotency_key is None:
        raise _no_key()

    def act() -> Mapping[str, Any]:
        look = found_dead_letters if wanted.dry_run else ask_for_dead_letters
        count = len(look(here.store, wanted.alert, wanted.id))
        when = "" if here.running is not None else ", as soon as kappa is up"
        text = f"{count_of(count, 'dead letter')} of alert {wanted.alert}: sent again, once{when}"
        return {"would" if wanted.dry_run else "did": text, "letters": count}

    return _tried_or_done_once(here.store, wanted, idempotency_key, act)


def _tried_or_done_once(
    store: Store,
    wanted: RedriveRequest | RetryRequest,
    key: str | None,
    act: Callable[[], Mapping[str, Any]],
) -> Response:
    """Returns the result of `act` as a response, and runs `act` at most once per `key`.

    `key` is the request's Idempotency-Key. If a request with this key was handled before, `act`
    does not run again, and the response contains the first result. A dry run always runs `act`.
    """
    if wanted.dry_run or key is None:
        return _json_response(act())
    return _json_response(do_once(store, key, wanted.model_dump(mode="json"), act), status=202)


def _no_key() -> HttpError:
    return HttpError(
        428,
        "no Idempotency-Key was sent",
        hint="make one up for each thing you want done, such as a UUID, and send it again with "
        "each try",
    )


@router.get(f"{API}/alerts", tags=["platform"], responses=json_answer(OBJECT))
@needs(Act.LOOK)
def alerts(request: Request) -> Response:
    """Lists the alerts and their dead letters.

    The response contains the output of `kappa alerts list -o json`, with and without `--dead`.
    """
    here = desk_of(request).here
    found = alert_statuses(here.store)
    letters = ((each.name, letter) for each in found for letter in each.dead)
    return _json_response(
        {
            "alerts": alerts_listing(found).row_objects(),
            "dead_letters": dead_letters_listing(letters).row_objects(),
        }
    )


@router.post(
    f"{API}/rollouts",
    tags=["platform"],
    status_code=202,
    responses={
        200: {
            "description": "What would be done",
            "content": {"application/json": {"schema": OBJECT}},
        },
        202: {"content": {"application/json": {"schema": OBJECT}}},
    },
)
@needs(Act.LOOK)
def intent(
    request: Request,
    wanted: Intent,
    if_match: Annotated[str | None, Header(description="the generation that was looked at")] = None,
    idempotency_key: Annotated[
        str | None, Header(description="the same request with the same key is done once")
    ] = None,
) -> Response:
    """Requests a promote, undo, abandon, verification, retirement, pause or resumption.

    Responds without waiting for the effect. The response contains the journal's record of the
    request and the number of the rollout. If no record is needed, the response contains the reason
    as `already`. To follow the rollout, use `/events` or `GET /api/v1/rollouts`.
    """
    here = desk_of(request).here
    ensure_may(asker(request), Act(wanted.intent))
    if if_match is None:
        raise HttpError(
            428,
            "the request does not say which generation was looked at",
            hint=f"send If-Match with the ETag of GET {API}/rollouts",
        )
    if not wanted.dry_run and idempotency_key is None:
        raise _no_key()
    if wanted.intent != "promote" and len(wanted.pipelines) > 1:
        raise HttpError(400, f"{wanted.intent} is of one pipeline", hint="ask once for each")
    of_rollouts = {"promote", "abandon", "verify"}
    if wanted.rollout is not None and (
        wanted.intent not in of_rollouts or len(wanted.pipelines) > 1
    ):
        raise HttpError(
            400,
            "a rollout was named that cannot be all that is meant",
            hint="name the rollout of one promote, abandon or verify; of others, or of "
            "several, only pipelines",
        )
    here.must_run()
    state = here.state()

    def act() -> Mapping[str, Any]:
        # Only after the key is looked up: a client that repeats its request would find the
        # generation that the request itself has made.
        if if_match.strip().removeprefix("W/").strip('"') not in {"*", str(state.generation)}:
            raise HttpError(
                412,
                f"generation {state.generation} is served now, and {if_match} was looked at",
                hint=f"look again: GET {API}/rollouts; then ask again",
                headers=_generation_header(state),
            )
        return (
            {
                "would": explain_intent(here, state, wanted),
                "details": intent_details(here, state, wanted),
            }
            if wanted.dry_run
            else record_intent(here, state, wanted)
        )

    if wanted.dry_run or idempotency_key is None:
        return _json_response(act(), headers=_generation_header(state))
    return _json_response(
        do_once(here.store, idempotency_key, [wanted.model_dump(mode="json"), if_match], act),
        status=202,
        headers=_generation_header(state),
    )


@router.get(
    "/metrics",
    tags=["health"],
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
@needs(Act.LOOK)
def metrics(request: Request) -> Response:
    """Responds with the metrics in the text format of Prometheus."""
    desk = desk_of(request)
    here, status = desk.here, desk.status()

    found = {}
    for build in status.builds:
        frontiers = Frontiers(here.store, build.build)
        newest = frontiers.newest()
        if newest is not None:
            found[build.build] = newest, frontiers.get(newest.number - 1)
    seen = MetricFacts(
        here.state(),
        status,
        found,
        {key: count.all for key, count in desk.counted_rejects(status.generation).items()}
        if status.generation
        else {},
        here.running is not None,
        {each.name: each.counts for each in alert_statuses(here.store)},
        sink_statuses(here.store, time.time()),
        free_bytes(here.store),
        here.store.control.holder(),
    )
    return Response(metrics_text(seen, datetime.now(UTC)), media_type=MEDIA_TYPE)


def desk_of(request: Request) -> SharedLooks:
    """Returns the cache of observations that all requests of the application share."""
    desk = request.app.state.desk
    assert isinstance(desk, SharedLooks), "who made the app has put it"
    return desk


def _generation_header(state: State) -> dict[str, str]:
    return {"ETag": f'"{state.generation}"'}


def _json_response(
    document: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        to_json(document) + "\n",
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def _status_document_of(desk: SharedLooks) -> dict[str, Any]:
    here = desk.here
    return status_document(
        desk.status(), here.running, here.bootstrap_servers, here.http, datetime.now(UTC)
    )
