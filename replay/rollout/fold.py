"""Computes the state of all rollouts from the journal's records. Pure.

This module does no I/O; promote.py, verify.py and controller.py read and append records. If several
processes append records, the order of the journal decides which request was first. An illegal
transition raises an error, and the state remains unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kappa.replay.rollout.move import (
    approve_rollouts,
    fail_rollouts,
    leave_group,
    move_rollout,
    release_hold,
    require_condition,
    rollout_in,
    switch_rollouts,
    with_reason,
)
from kappa.replay.rollout.rollout import BEGINNINGS, IllegalTransition, Move, Rollout
from kappa.replay.rollout.state import State
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Event,
    Failed,
    Held,
    Paused,
    PipelineRetired,
    PromoteAsked,
    Proved,
    RedriveAsked,
    Released,
    Resumed,
    Retired,
    Served,
    Staged,
    SwitchAsked,
    Verified,
    VerifyAsked,
)
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.projections import paused_after, retired_after


def fold_records(records: Iterable[JournalRecord], state: State | None = None) -> State:
    """Applies journal records to a state, in order, and returns the new state.

    Without `state`, the function begins with the empty state. Raises IllegalTransition if a record
    cannot follow the record before it.
    """
    state = state or State()
    for record in records:
        state = advance_state(state, record)
    return state


def advance_state(state: State, record: JournalRecord) -> State:
    """Returns the state after one more record.

    Raises IllegalTransition if the record cannot follow this state.
    """
    if record.number != state.last + 1:
        raise IllegalTransition(f"journal record {record.number} cannot follow record {state.last}")
    return replace(
        _state_after_event(state, record),
        last=record.number,
        paused=paused_after(state.paused, record),
        retirements=retired_after(state.retirements, record),
    )


def check_may_follow(state: State, event: Event) -> None:
    """Raises IllegalTransition if `event` cannot be the next record.

    Call this function before the record is appended, because an appended record cannot be
    withdrawn.
    """
    advance_state(state, JournalRecord(number=state.last + 1, event=event, at="", by="", id=""))


def _state_after_event(state: State, record: JournalRecord) -> State:
    match record.event:
        case Staged() as event:
            require_condition(
                record, event.build not in state.versions, f"build {event.build} was staged before"
            )
            require_condition(
                record, event.pipeline not in state.paused, f"pipeline {event.pipeline} is paused"
            )
            known = replace(
                state,
                versions={**state.versions, event.build: event.version},
                pipelines={**state.pipelines, event.build: event.pipeline},
            )
            if event.tables_of is not None:
                live = state.serving.get(event.pipeline)
                require_condition(
                    record,
                    live is not None and state.folded_by(live) == event.tables_of,
                    f"pipeline {event.pipeline} does not serve the tables of {event.tables_of}",
                )
                overlays = {**state.overlays, event.build: event.tables_of}
                known = replace(known, overlays=overlays)
            return _state_with_begun_rollout(known, record, event, Move.STAGED, event.reasons)
        case SwitchAsked() as event:
            require_condition(
                record,
                state.idle.get(event.pipeline) == event.build,
                f"build {event.build} is not kept for pipeline {event.pipeline}",
            )
            return _state_with_begun_rollout(
                state, record, event, Move.SWITCH_ASKED, (event.reason,)
            )
        case CaughtUp() as event:
            return move_rollout(
                state, record, event.rollout, Move.CAUGHT_UP, caught_up=event.offsets
            )
        case Verified(verdict="passed") as event:
            return move_rollout(state, record, event.rollout, Move.PASSED, verified=event)
        case Verified() as event:
            reason = event.reason or f"the verification of the candidate was {event.verdict}"
            return move_rollout(
                state, record, event.rollout, Move.NOT_PASSED, verified=event, reason=reason
            )
        case VerifyAsked() as event:
            alone = leave_group(state, record, event.rollout, "is verified once more")
            return move_rollout(
                alone,
                record,
                event.rollout,
                Move.VERIFY_ASKED,
                verified=None,
                approved=False,
                group=(),
                alignment_after=event.alignment_after,
                asked_by=record.by,
                given_reasons=with_reason(
                    rollout_in(state, record, event.rollout).given_reasons, record
                ),
            )
        case PromoteAsked() as event:
            return approve_rollouts(state, record, event)
        case Held() as event:
            rollout = rollout_in(state, record, event.rollout)
            require_condition(
                record, rollout.approved, f"rollout {rollout.number} is waiting for approval"
            )
            live = state.serving.get(rollout.pipeline)
            require_condition(
                record,
                live is not None and event.build == state.folded_by(live),
                f"build {event.build} does not serve pipeline {rollout.pipeline}",
            )
            require_condition(
                record,
                sorted(event.together) == sorted(rollout.together),
                f"rollout {rollout.number} was not approved together with {event.together}",
            )
            return move_rollout(
                state,
                record,
                event.rollout,
                Move.HELD,
                hold=record.number,
                attempts=rollout.attempts + 1,
            )
        case Released() as event:
            rollout = rollout_in(state, record, event.rollout)
            require_condition(record, event.hold == rollout.hold, f"hold {event.hold} is not open")
            return release_hold(state, record, rollout, event.reason)
        case Served() as event:
            return switch_rollouts(state, record, event)
        case Abandoned() as event:
            alone = leave_group(state, record, event.rollout, f"was abandoned ({event.reason})")
            return move_rollout(
                alone,
                record,
                event.rollout,
                Move.ABANDONED,
                hold=None,
                reason=event.reason,
                asked_by=record.by,
            )
        case Failed() as event:
            return fail_rollouts(state, record, event)
        case Retired() as event:
            require_condition(
                record,
                event.build in state.retirable_builds(),
                f"build {event.build} is not one to retire",
            )
            idle = {
                pipeline: build for pipeline, build in state.idle.items() if build != event.build
            }
            return replace(state, idle=idle, retired=state.retired | {event.build})
        case Proved() as event:
            require_condition(
                record,
                state.pipelines.get(event.build) == event.pipeline,
                f"pipeline {event.pipeline} has no build {event.build}",
            )
            return replace(state, proofs=(*state.proofs, record))
        case PipelineRetired() as event:
            return _state_after_retirement(state, record, event)
        case Paused(pipeline=pipeline):
            require_condition(
                record, pipeline in state.serving, f"pipeline {pipeline} does not serve"
            )
            require_condition(
                record, pipeline not in state.paused, f"pipeline {pipeline} is paused already"
            )
            _require_no_rollout(state, record, pipeline)
            return replace(state, service=(*state.service, record))
        case Resumed(pipeline=pipeline):
            require_condition(
                record, pipeline in state.paused, f"pipeline {pipeline} is not paused"
            )
            return replace(state, service=(*state.service, record))
        case RedriveAsked(pipeline=pipeline):
            require_condition(
                record, pipeline in state.pipelines.values(), f"there is no pipeline {pipeline}"
            )
            return replace(state, service=(*state.service, record))


def _state_after_retirement(state: State, record: JournalRecord, event: PipelineRetired) -> State:
    require_condition(
        record,
        event.generation == state.generation + 1,
        f"generation {event.generation} does not follow {state.generation}",
    )
    require_condition(
        record,
        {**event.serving, event.pipeline: event.build} == state.serving
        and event.pipeline not in event.serving,
        "its serving map is not the one before without its pipeline",
    )
    _require_no_rollout(state, record, event.pipeline)
    return replace(
        state,
        generation=event.generation,
        serving=dict(event.serving),
        idle={**state.idle, event.pipeline: event.build},
        served=(*state.served, record),
        service=(*state.service, record),
    )


def _require_no_rollout(state: State, record: JournalRecord, pipeline: str) -> None:
    require_condition(
        record,
        state.active(pipeline) is None,
        f"a rollout of pipeline {pipeline} has not ended",
    )


def _state_with_begun_rollout(
    state: State,
    record: JournalRecord,
    event: Staged | SwitchAsked,
    move: Move,
    reasons: tuple[str, ...],
) -> State:
    _require_no_rollout(state, record, event.pipeline)
    begun = Rollout(
        id=record.number,
        number=len(state.rollouts) + 1,
        pipeline=event.pipeline,
        build=event.build,
        version=state.versions[event.build],
        reasons=reasons,
        phase=BEGINNINGS[move],
        switch=move is Move.SWITCH_ASKED,
        approved=isinstance(event, SwitchAsked) or event.auto_promote,
        at=record.at,
        by=record.by,
        accepted=event.accepted,
        asked_by=record.by,
        base=event.base if isinstance(event, Staged) else None,
        tables_of=state.overlays.get(event.build),
        given_reasons=with_reason((), record),
    )
    return replace(state, rollouts=(*state.rollouts, begun))
