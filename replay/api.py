"""What HTTP tells of the platform, and what it is asked for: the same documents as the commands' `-o json`, and the same intents.

Nothing is decided here. A look costs the broker and the disk something, and many look at once: one look is for all who
ask within a second. Read next: serving/http.py (the server), intents.py (what is asked), listings.py (what is told).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kappa.build import read_birth
from kappa.errors import KappaError
from kappa.frontier import Frontiers
from kappa.journal import Record, as_document
from replay.asked_once import do_once
from replay.history import chapters, proof_records
from replay.intents import abandon, ask_promote, ask_undo, ask_verify, ready_rollouts, undone
from replay.listings import history_listing, rejects_listing, status_document, topics_listing
from replay.metrics import MEDIA_TYPE, Seen, metrics_text
from replay.rollout import State
from replay.status import Status, observe_status
from replay.underway import Underway, read_underway
from serving.http import API
from serving.problem import HttpError
from serving.query import read
from serving.rejects import Wanted, newest_rejects
from serving.render import Listing, to_json
from serving.tables import served_tables, tables_listing

if TYPE_CHECKING:
    from kappa.log.client import Log
    from replay.here import Here

_Found = TypeVar("_Found")
# One look is for all who ask within it; what it tells changes about as often.
_LOOK_SECONDS = 1.0
_COUNTED_REJECTS = "select pipeline, reason, count(*) from rejects group by all order by all"

router = APIRouter()


class Desk:
    """What the answers stand on: the project, one client of its broker, and what was seen of it just now."""

    def __init__(self, here: Here, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds that only go forward."""
        self.here = here
        self._clock = clock
        self._lock = threading.Lock()
        self._log: tuple[str, Log] | None = None
        self._seen: dict[str, tuple[float, Any]] = {}

    def log(self) -> Log | None:
        """The broker's client; None where no broker is known."""
        servers = self.here.bootstrap_servers
        if servers is None:
            return None
        if self._log is None or self._log[0] != servers:
            self._log = servers, self.here.log()
        return self._log[1]

    def look(self, what: str, look: Callable[[], _Found]) -> _Found:
        """What `look` gives, or gave a moment ago under the same name; one looks at a time."""
        with self._lock:
            at, seen = self._seen.get(what, (-_LOOK_SECONDS, None))
            if seen is None or self._clock() - at > _LOOK_SECONDS:
                seen = look()
                self._seen[what] = self._clock(), seen
            found: _Found = seen
            return found

    def status(self) -> Status:
        """What `kappa status` tells."""
        return self.look("status", self._status)

    def _status(self) -> Status:
        underway = Underway() if self.here.running is None else read_underway(self.here.store)
        return observe_status(self.here.store, self.log(), soak_seconds=self.here.settings.rollout.soak_seconds, underway=underway)


class Intent(BaseModel):
    """What is wanted of rollouts. `pipelines`: of the one that it can be meant of, if none is named; only a promote is of several."""

    model_config = ConfigDict(extra="forbid")

    intent: Literal["promote", "undo", "abandon", "verify"] = Field(description="let a candidate serve; let the build before serve again; give a rollout up; verify it once more")
    pipelines: tuple[str, ...] = Field(default=(), description="whose")
    to: int | None = Field(default=None, ge=1, description="of an undo: to the build of that generation")
    dry_run: bool = Field(default=False, description="only tell what would be done, or why not")


@router.get(f"{API}/builds", tags=["platform"])
def builds(request: Request) -> Response:
    """What serves, what is kept, what is on its way: as `kappa status -o json`."""
    desk = _desk(request)
    return _document(status_document(desk.status(), desk.here.running, desk.here.bootstrap_servers, datetime.now(UTC)))


@router.get(f"{API}/pipelines", tags=["platform"])
def pipelines(request: Request) -> Response:
    """Each pipeline that has a build, with its builds by role: live, idle, candidate."""
    desk = _desk(request)
    status = status_document(desk.status(), desk.here.running, desk.here.bootstrap_servers, datetime.now(UTC))
    found: dict[str, dict[str, Any]] = {}
    for row in status["builds"]:
        found.setdefault(row["pipeline"], {"pipeline": row["pipeline"], "live": None, "idle": None, "candidate": None})[row["role"]] = row
    return _document({"generation": status["generation"], "pipelines": list(found.values())})


@router.get(f"{API}/rollouts", tags=["platform"])
def rollouts(request: Request, active: Annotated[bool, Query(description="only those that have not ended")] = False) -> Response:
    """Every rollout, oldest first, with its receipt if it served; the `ETag` is what an intent's `If-Match` wants."""
    state = _desk(request).here.state()
    told = history_listing(tuple(each for each in chapters(state) if each.rollout.active or not active)).objects()
    return _document({"generation": state.generation, "rollouts": told}, headers=_generation(state))


@router.get(f"{API}/history", tags=["platform"])
def history(request: Request) -> Response:
    """Every rollout and every proof: as `kappa history -o json`."""
    state = _desk(request).here.state()
    return _document(history_listing(chapters(state), proof_records(state)).objects(), headers=_generation(state))


@router.get(f"{API}/tables", tags=["platform"])
def tables(request: Request) -> Response:
    """What is served, with path and version for other tools: as `kappa tables -o json`."""
    here = _desk(request).here
    return _document(tables_listing(served_tables(here.store, lease_seconds=here.lease_seconds)).objects())


@router.get(f"{API}/topics", tags=["platform"])
def topics(request: Request) -> Response:
    """The topics on the broker, and those of the builds that are wanted: as `kappa topics list -o json`."""
    desk = _desk(request)
    log = desk.log() or desk.here.log()

    def look() -> Listing:
        births = (read_birth(desk.here.store, build) for build in desk.here.state().wanted_builds())
        return topics_listing(log, {topic.name: topic for birth in births for topic in birth.topics})

    return _document(desk.look("topics", look).objects())


@router.get(f"{API}/rejects", tags=["platform"])
def rejects(
    request: Request,
    pipeline: str | None = None,
    build: str | None = None,
    reason: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
) -> Response:
    """The newest records that were not valid, of what serves or of one build: as `kappa rejects -o json`."""
    here = _desk(request).here
    found = newest_rejects(here.store, Wanted(pipeline, build, reason), limit=limit, lease_seconds=here.lease_seconds)
    return _document(rejects_listing(found).objects())


@router.post(f"{API}/rollouts", tags=["platform"], status_code=202)
def intent(
    request: Request,
    wanted: Intent,
    if_match: Annotated[str | None, Header(description="the generation that was looked at")] = None,
    idempotency_key: Annotated[str | None, Header(description="the same request with the same key is done once")] = None,
) -> Response:
    """Asks for a promote, an undo, an abandon or another verification; gives the journal's record of it, at once.

    What comes of it is told by `/events`, and by `GET /api/v1/rollouts`.
    """
    here = _desk(request).here
    if if_match is None:
        raise HttpError(428, "it is not said which generation was looked at", hint=f"send If-Match with the ETag of GET {API}/rollouts")
    if not wanted.dry_run and idempotency_key is None:
        raise HttpError(428, "no Idempotency-Key was sent", hint="make one up for each thing you want done, such as a UUID, and send it again with each try")
    if wanted.intent != "promote" and len(wanted.pipelines) > 1:
        raise HttpError(400, f"{wanted.intent} is of one pipeline", hint="ask once for each")
    here.must_run()
    state = here.state()

    def act() -> Mapping[str, Any]:
        # Not before the key was looked at: who comes back finds the generation that he has made.
        if if_match.strip().removeprefix("W/").strip('"') not in {"*", str(state.generation)}:
            raise HttpError(
                412,
                f"generation {state.generation} is served now, and {if_match} was looked at",
                hint=f"look again: GET {API}/rollouts; then ask again",
                headers=_generation(state),
            )
        return {"would": _told(state, wanted)} if wanted.dry_run else as_document(_asked(here, state, wanted))

    if wanted.dry_run or idempotency_key is None:
        return _document(act(), headers=_generation(state))
    return _document(do_once(here.store, idempotency_key, [wanted.model_dump(mode="json"), if_match], act), status=202, headers=_generation(state))


@router.get("/metrics", tags=["health"])
def metrics(request: Request) -> Response:
    """What Prometheus scrapes."""
    desk = _desk(request)
    here, status = desk.here, desk.status()

    def counted() -> dict[tuple[str, str], int]:
        try:
            return {(str(pipeline), str(reason)): int(count) for pipeline, reason, count in read(here.store, lambda reader: reader.rows(_COUNTED_REJECTS)).rows}
        except KappaError:
            # Nothing is served yet, so there is no such table.
            return {}

    found = {}
    for build in status.builds:
        frontiers = Frontiers(here.store, build.build)
        newest = frontiers.newest()
        if newest is not None:
            found[build.build] = newest, frontiers.get(newest.number - 1)
    seen = Seen(here.state(), status, found, desk.look("rejects", counted) if status.generation else {}, here.running is not None)
    return Response(metrics_text(seen, datetime.now(UTC)), media_type=MEDIA_TYPE)


def _told(state: State, wanted: Intent) -> str:
    """What would be done, in a sentence. Raises as what is asked does."""
    match wanted.intent:
        case "promote":
            ready = ready_rollouts(state, *wanted.pipelines)
            return "; ".join(f"build {each.build} (version {each.version}) of pipeline {each.pipeline} will serve" for each in ready)
        case "undo":
            name, build = undone(state, next(iter(wanted.pipelines), None), wanted.to)
            return f"build {build} (version {state.versions[build]}) of pipeline {name} will serve instead of {state.serving[name]}"
        case "abandon" | "verify":
            return f"{wanted.intent} {' '.join(wanted.pipelines)}".strip()


def _asked(here: Here, state: State, wanted: Intent) -> Record:
    pipeline = next(iter(wanted.pipelines), None)
    match wanted.intent:
        case "promote":
            return ask_promote(here.store, seen=[each.number for each in ready_rollouts(state, *wanted.pipelines)])
        case "undo":
            return ask_undo(here.store, pipeline, to=wanted.to, seen=state)
        case "abandon":
            return abandon(here.store, pipeline, reason="abandoned over HTTP")
        case "verify":
            return ask_verify(here.store, pipeline)


def _desk(request: Request) -> Desk:
    desk = request.app.state.desk
    assert isinstance(desk, Desk), "who made the app has put it"
    return desk


def _generation(state: State) -> dict[str, str]:
    return {"ETag": f'"{state.generation}"'}


def _document(document: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(to_json(document) + "\n", status, {"Cache-Control": "no-store", **(headers or {})}, media_type="application/json")
