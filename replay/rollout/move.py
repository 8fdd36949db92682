"""Moves one rollout, or all rollouts of a group, according to the table of transitions. Pure.

fold.py uses these functions. If a record cannot follow the current state, a function raises
IllegalTransition and changes nothing.

All rollouts of a group switch in one record, or none of them switches. So if a record removes one
rollout from the group, the approval of the other rollouts is withdrawn.
"""

from __future__ import annotations

from dataclasses import replace

from kappa.replay.rollout.rollout import TRANSITIONS, IllegalTransition, Move, Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.journal.events import Failed, PromoteAsked, Served
from kappa.state.journal.journal import JournalRecord


def rollout_in(state: State, record: JournalRecord, id_: int) -> Rollout:
    """Returns the rollout whose id is `id_`. `record` is the journal record that names the id.

    Raises IllegalTransition if no rollout has this id.
    """
    # Rollouts end in about the order they begin, so the named rollout is near the end.
    for rollout in reversed(state.rollouts):
        if rollout.id == id_:
            return rollout
    raise IllegalTransition(
        f"journal record {record.number} names a rollout that record {id_} never began"
    )


def move_rollout(
    state: State, record: JournalRecord, id_: int, move: Move, **changes: object
) -> State:
    """Returns the state after a move of one rollout.

    `changes` are new values of the rollout's fields. Raises IllegalTransition if the rollout's
    phase does not allow the move.
    """
    rollout = rollout_in(state, record, id_)
    after = TRANSITIONS[rollout.phase].get(move)
    if after is None:
        raise IllegalTransition(
            f"journal record {record.number} says {move} of rollout {rollout.number}, "
            f"which is {rollout.phase}"
        )
    if not TRANSITIONS[after]:
        changes["ended_at"] = record.at
    # The callers name fields of Rollout.
    return with_rollout(state, replace(rollout, phase=after, **changes))  # type: ignore[arg-type]


def with_rollout(state: State, rollout: Rollout) -> State:
    """Returns the state in which `rollout` replaces the rollout with the same id."""
    return replace(
        state,
        rollouts=tuple(rollout if each.id == rollout.id else each for each in state.rollouts),
    )


def with_reason(given: tuple[str, ...], record: JournalRecord) -> tuple[str, ...]:
    """Returns the reasons given so far, plus the reason of `record` if the record has one."""
    return (*given, record.reason) if record.reason else given


def require_condition(record: JournalRecord, holds: bool, otherwise: str) -> None:
    """Raises IllegalTransition with the reason `otherwise` if `holds` is False."""
    if not holds:
        raise IllegalTransition(
            f"journal record {record.number} ({record.event.kind}) cannot follow: {otherwise}"
        )


def approve_rollouts(state: State, record: JournalRecord, event: PromoteAsked) -> State:
    """Returns the state after the approval of one rollout, or of several rollouts as a group."""
    group = (event.rollout, *event.together) if event.together else ()
    require_condition(record, len(set(group)) == len(group), "it names a rollout twice")
    for each in group or (event.rollout,):
        rollout = rollout_in(state, record, each)
        require_condition(
            record,
            not (rollout.group or (group and rollout.approved)),
            f"rollout {rollout.number} is approved already",
        )
        state = move_rollout(
            state,
            record,
            each,
            Move.PROMOTE_ASKED,
            approved=True,
            group=group,
            attempts=0,
            reason="",
            asked_by=record.by,
            given_reasons=with_reason(rollout_in(state, record, each).given_reasons, record),
        )
    return state


def release_hold(state: State, record: JournalRecord, rollout: Rollout, reason: str) -> State:
    """Returns the state after the end of a rollout's hold. All holds of a group end together.

    The rollouts of a group are tried again together, so all of them get the same number of
    attempts. `reason` is recorded in each rollout.
    """
    members = [rollout_in(state, record, each) for each in rollout.group or (rollout.id,)]
    attempts = max(member.attempts for member in members)
    for member in members:
        if member.phase is Phase.HOLDING:
            state = move_rollout(
                state,
                record,
                member.id,
                Move.RELEASED,
                hold=None,
                reason=reason,
                attempts=attempts,
            )
        else:
            state = with_rollout(state, replace(member, attempts=attempts, reason=reason))
    return state


def leave_group(state: State, record: JournalRecord, id_: int, why: str) -> State:
    """Returns the state after the rollout `id_` has left its group.

    The approval was given to the whole group. So the other rollouts of the group are no longer
    approved, have no hold, and wait for a new approval. `why` is the end of the reason that is
    recorded in these rollouts.
    """
    left = rollout_in(state, record, id_)
    reason = (
        f"rollout {left.number} of pipeline {left.pipeline}, with which it was to serve, {why}: "
        "it waits for a new yes"
    )
    for other in left.together:
        state = move_rollout(
            state, record, other, Move.YES_LOST, hold=None, approved=False, group=(), reason=reason
        )
    return state


def fail_rollouts(state: State, record: JournalRecord, event: Failed) -> State:
    """Returns the state after the failure of a rollout, or of all rollouts of its group."""
    rollout = rollout_in(state, record, event.rollout)
    require_condition(
        record,
        sorted(event.together) in ([], sorted(rollout.together)),
        f"rollout {rollout.number} was not approved together with {event.together}",
    )
    if not event.together:
        state = leave_group(state, record, event.rollout, f"failed ({event.reason})")
    for each in (event.rollout, *event.together):
        state = move_rollout(
            state, record, each, Move.FAILED, hold=None, reason=event.reason, hint=event.hint
        )
    return state


def switch_rollouts(state: State, record: JournalRecord, event: Served) -> State:
    """Returns the state after the switch to a rollout, or to all rollouts of a group."""
    require_condition(
        record,
        event.generation == state.generation + 1,
        f"generation {event.generation} does not follow {state.generation}",
    )
    rollouts = [rollout_in(state, record, each.rollout) for each in event.switched]
    group = rollouts[0].group or (event.rollout,)
    require_condition(
        record,
        sorted(each.id for each in rollouts) == sorted(group),
        f"rollouts {group} serve together or not at all",
    )
    switched = {rollout.pipeline: rollout.build for rollout in rollouts}
    require_condition(
        record,
        dict(event.serving) == {**state.serving, **switched},
        "its serving map is not the one before with the builds of its rollouts",
    )
    after, idle = state, dict(state.idle)
    for rollout, receipt in zip(rollouts, (each.receipt for each in event.switched), strict=True):
        live = state.serving.get(rollout.pipeline)
        require_condition(
            record,
            (receipt.pipeline, receipt.build) == (rollout.pipeline, rollout.build),
            f"the receipt of build {receipt.build} is not that of rollout {rollout.number}",
        )
        held = rollout.phase is not Phase.READY
        free = live is None or state.serves_the_same(rollout.build, live)
        require_condition(record, held or free, f"build {live} was not held")
        require_condition(
            record, rollout.approved, f"rollout {rollout.number} is waiting for approval"
        )
        after = move_rollout(after, record, rollout.id, Move.SERVED, hold=None, reason="")
        if live is not None:
            idle[rollout.pipeline] = live
        elif idle.get(rollout.pipeline) == rollout.build:
            # The retirement is undone: the kept build serves again, and no other build is kept.
            del idle[rollout.pipeline]
    return replace(
        after,
        generation=event.generation,
        serving=dict(event.serving),
        idle=idle,
        served=(*state.served, record),
    )
