"""Explains intents that arrive over HTTP, and records them in the journal, once per key.

An intent is a client's request to promote, undo, abandon, verify, retire, pause or resume. The key
is the Idempotency-Key of the HTTP request. A request with a key is executed once, and each
repetition gets the same answer. Before the request is executed, a file for its key is created.
Afterwards, the answer is written to this file. If the process crashes in between, the file contains
no answer, and it is unknown whether the request was executed. So a repetition of the request is
refused. The journal shows whether the request was executed.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kappa.base.errors import Conflict, Damaged, KappaError, UsageError
from kappa.replay.page.samples import counted_parts
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    active_rollout,
    ask_pause,
    ask_promote,
    ask_resume,
    ask_undo,
    ask_verify,
    may_pause,
    may_resume,
    ready_rollout,
    ready_rollouts,
    refuse_underway,
    seen_rollout,
    undo_target,
)
from kappa.replay.rollout.pipeline_retirement import (
    ask_retire,
    may_retire,
    preview_retirement,
    retirement_text,
)
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.rollout_numbers import rollout_of_number, serving_pipeline
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff_listing import difference_line, rejects_line
from kappa.replay.status.outgoing_changes import sends_at_switch
from kappa.serving.http.page.formatting import short
from kappa.state.files.address import changed_at
from kappa.state.journal.journal import JournalRecord, as_document
from kappa.state.journal.projections import rollout_id
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.replay.status.context import ProjectContext

_FOLDER = "run/asked"
# So long a client may come back.
_KEPT_SECONDS = 86_400.0
_LONGEST_KEY = 200


class Intent(BaseModel):
    """A client's request to promote, undo, abandon, verify, retire, pause or resume.

    Without `pipelines`, the intent applies to the only possible pipeline. Only a promote may name
    several pipelines. `rollout` is the number of the rollout that the client has seen; an intent
    with this number never applies to a later rollout. The generation alone cannot distinguish the
    two rollouts, because neither of them serves yet.
    """

    model_config = ConfigDict(extra="forbid")

    intent: Literal["promote", "undo", "abandon", "verify", "retire", "pause", "resume"] = Field(
        description="let a candidate serve; let the build before serve again; give a rollout "
        "up; verify it once more; take a pipeline out of service; stop its jobs; let them go on"
    )
    pipelines: tuple[str, ...] = Field(default=(), description="whose")
    rollout: int | None = Field(
        default=None,
        ge=1,
        description="of a promote, an abandon or a verify: the rollout that was looked at, and "
        "no other",
    )
    to: int | None = Field(
        default=None, ge=1, description="of an undo: to the build of that generation"
    )
    reason: str = Field(default="", max_length=2000, description="why; the history keeps it")
    dry_run: bool = Field(default=False, description="only tell what would be done, or why not")


def explain_intent(here: ProjectContext, state: State, wanted: Intent) -> str:
    """Returns a sentence about the effect that an intent would have.

    If the intent is not possible, raises the same errors as `record_intent`.
    """
    match wanted.intent:
        case "promote":
            ready = _rollouts_to_promote(state, wanted)
            return "; ".join(
                f"build {_build_text(state, each.build)} of pipeline {each.pipeline} will serve"
                f"{_promote_text(state, each.pipeline)}{_outgoing_text(here, state, each)}"
                for each in ready
            )
        case "undo":
            name, build = undo_target(state, next(iter(wanted.pipelines), None), wanted.to)
            refuse_underway(state, name)
            return (
                f"build {_build_text(state, build)} of pipeline {name} will serve "
                f"{_undo_text(state, name)}"
            )
        case "abandon":
            ended = (
                active_rollout(state, next(iter(wanted.pipelines), None), "abandon")
                if wanted.rollout is None
                else seen_rollout(state, rollout_of_number(state, wanted.rollout).id)
            )
            after = (
                f"build {ended.build} stays kept"
                if ended.build in state.idle.values()
                else f"build {ended.build} is ended, and its tables are deleted"
            )
            live = state.serving.get(ended.pipeline)
            return (
                f"rollout {ended.number} of pipeline {ended.pipeline} is given up: {after}; "
                f"{f'build {live} keeps serving' if live else 'nothing serves, as before'}"
            )
        case "verify":
            again = (
                ready_rollout(state, next(iter(wanted.pipelines), None), "verify")
                if wanted.rollout is None
                else seen_rollout(state, rollout_of_number(state, wanted.rollout).id, ready=True)
            )
            return (
                f"build {again.build} of pipeline {again.pipeline} is brought to the offsets of "
                "the serving build, and verified once more"
            )
        case "retire":
            name = _the_pipeline(state, wanted)
            if not may_retire(state, name):
                return f"nothing: pipeline {name} was {state.retirements[name].text}"
            return (
                f"pipeline {name} serves no more, and its tables leave with build "
                f"{state.serving[name]}, which an undo brings back while it is kept"
            )
        case "pause":
            name = _the_pipeline(state, wanted)
            if not may_pause(state, name):
                return f"nothing: pipeline {name} is {state.paused[name].text}"
            return f"the jobs of pipeline {name} stop, and its tables keep serving as they are"
        case "resume":
            name = _the_pipeline(state, wanted)
            if not may_resume(state, name):
                return f"nothing: pipeline {name} is not paused"
            return f"the jobs of pipeline {name} continue where they stopped"


def intent_details(here: ProjectContext, state: State, wanted: Intent) -> tuple[str, ...]:
    """Returns the facts that a person should see before confirming an intent, one per line.

    For a promote, the facts are the rows that differ. For a retirement, they are the tables that
    would no longer be served, with their rows, files and readers. For any other intent, returns ().
    """
    match wanted.intent:
        case "promote":
            return tuple(
                line
                for each in _rollouts_to_promote(state, wanted)
                if each.verified is not None
                for line in (
                    *map(difference_line, each.verified.differences),
                    rejects_line(each.verified.counts),
                )
                if line
            )
        case "retire":
            name = _the_pipeline(state, wanted)
            if not may_retire(state, name):
                return ()
            # Tables that cannot be read are reported where it matters.
            with suppress(KappaError):
                leaving = preview_retirement(
                    here.store,
                    state,
                    name,
                    kept_seconds=here.settings.rollout.soak_seconds,
                    now=time.time(),
                )
                _, *lines = retirement_text(leaving).splitlines()
                return tuple(line.strip() for line in lines)
            return ()
        case _:
            return ()


def record_intent(here: ProjectContext, state: State, wanted: Intent) -> dict[str, Any]:
    """Appends an intent to the journal, and returns the journal's record as a JSON document.

    The document also contains the number of the rollout. If the pipeline is already retired, paused
    or resumed, nothing is appended, and the document contains only the field `already`, with a
    sentence that says so.
    """
    record = _append_intent(here, state, wanted)
    if record is None:
        return {"already": explain_intent(here, here.state(), wanted)}
    id_ = rollout_id(record)
    number = None if id_ is None else here.state().rollout(id_).number
    return {"rollout": number, **as_document(record)}


def _append_intent(here: ProjectContext, state: State, wanted: Intent) -> JournalRecord | None:
    pipeline = next(iter(wanted.pipelines), None)
    seen = None if wanted.rollout is None else rollout_of_number(state, wanted.rollout).id
    match wanted.intent:
        case "promote":
            return ask_promote(
                here.store,
                seen=[each.id for each in _rollouts_to_promote(state, wanted)],
                reason=wanted.reason,
            )
        case "undo":
            return ask_undo(here.store, pipeline, to=wanted.to, seen=state, reason=wanted.reason)
        case "abandon":
            return abandon_rollout(
                here.store, pipeline, reason=wanted.reason or "abandoned over HTTP", seen=seen
            )
        case "verify":
            return ask_verify(here.store, pipeline, seen=seen, reason=wanted.reason)
        case "retire":
            return ask_retire(
                here.store,
                _the_pipeline(state, wanted),
                kept_seconds=here.settings.rollout.soak_seconds,
                seen=state,
                reason=wanted.reason,
            )
        case "pause":
            return ask_pause(here.store, _the_pipeline(state, wanted), reason=wanted.reason)
        case "resume":
            return ask_resume(here.store, _the_pipeline(state, wanted), reason=wanted.reason)


def _the_pipeline(state: State, wanted: Intent) -> str:
    for pipeline in wanted.pipelines:
        return serving_pipeline(state, pipeline)
    raise UsageError(
        f"which pipeline is meant by {wanted.intent}?", hint='name it: "pipelines": ["NAME"]'
    )


def _undo_text(state: State, pipeline: str) -> str:
    live = state.serving.get(pipeline)
    return f"instead of {_build_text(state, live)}" if live else "again, after it was retired"


def _rollouts_to_promote(state: State, wanted: Intent) -> tuple[Rollout, ...]:
    return (
        ready_rollouts(state, *wanted.pipelines)
        if wanted.rollout is None
        else (seen_rollout(state, rollout_of_number(state, wanted.rollout).id, ready=True),)
    )


def _outgoing_text(here: ProjectContext, state: State, rollout: Rollout) -> str:
    # A birth that cannot be read is reported where it matters.
    with suppress(KappaError):
        parts = counted_parts(here.store, rollout)
        most = here.settings.alerts.most
        sends = sends_at_switch(here.store, state, rollout, most=most, parts=parts)
        return f", and send {', '.join(each.text for each in sends)}" if sends else ""
    return ""


def _promote_text(state: State, pipeline: str) -> str:
    live = state.serving.get(pipeline)
    return f" instead of {_build_text(state, live)}" if live else ", its first"


def _build_text(state: State, build: str) -> str:
    return f"{build} (version {short(state.versions[build])})"


def do_once(
    store: Store,
    key: str,
    request: object,
    act: Callable[[], Mapping[str, Any]],
    *,
    clock: Callable[[], float] = time.time,
) -> Mapping[str, Any]:
    """Returns the result of `act`, or the earlier result of the same request with the same key.

    `key` is the request's Idempotency-Key. If `act` raises an error, the key can be used again.
    `clock` returns seconds since 1970. Raises UsageError if the key was used for another request,
    or is not a valid key. Raises Conflict if the first request is still running, or was
    interrupted.
    """
    if not key or len(key) > _LONGEST_KEY:
        raise UsageError(
            f"a key has 1 to {_LONGEST_KEY} characters",
            hint="make one up for each thing you want done, such as a UUID",
        )
    _forget_old_claims(store, clock() - _KEPT_SECONDS)
    name = f"{_FOLDER}/{hashlib.sha256(key.encode(errors='surrogateescape')).hexdigest()}.json"
    asked = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    # The id tells this claim from a claim of the same request at the same moment.
    claim = {"format": 1, "asked": asked, "at": clock(), "id": secrets.token_hex(8)}
    if not store.put_new_json(name, claim):
        return _first_answer(_read_claim(store, name), asked)
    try:
        answer = act()
    except KappaError:
        store.delete(name)
        raise
    store.put_json(name, {"format": 1, "asked": asked, "at": clock(), "answer": answer})
    return answer


def _first_answer(found: Mapping[str, Any] | None, asked: str) -> Mapping[str, Any]:
    if found is not None and "asked" in found and found["asked"] != asked:
        raise UsageError(
            "this key was used for another request",
            hint="make up a new one for each thing you want done",
        )
    if found is None or "answer" not in found:
        raise Conflict(
            "the same is being done already, or was broken off",
            hint="GET /api/v1/rollouts tells whether it was done; if not, ask with a new key",
        )
    answer: Mapping[str, Any] = found["answer"]
    return answer


def _forget_old_claims(store: Store, before: float) -> None:
    for name in store.names(_FOLDER):
        found = _read_claim(store, name)
        if found is not None and found["at"] < before:
            store.delete(name)


def _read_claim(store: Store, name: str) -> Mapping[str, Any] | None:
    """Returns the stored JSON document of a key, or None if the key was not used.

    If the document is damaged, returns a document without an answer, as for a request that was
    interrupted.
    """
    found: Any
    try:
        found = store.get_json(name)
    except Damaged:
        found = ()
    if found is None or (isinstance(found, dict) and found.keys() >= {"asked", "at"}):
        return found
    at = changed_at(store.address(name))
    return None if at is None else {"at": at}
