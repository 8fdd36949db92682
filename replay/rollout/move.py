"""A move of a rollout, by the table of transitions. Pure.

fold.py and group.py use these functions. Each function raises IllegalTransition and changes nothing
if the record cannot follow.
"""

from __future__ import annotations

from dataclasses import replace

from kappa.replay.rollout.rollout import TRANSITIONS, IllegalTransition, Move, Rollout
from kappa.replay.rollout.state import State
from kappa.state.journal.journal import JournalRecord


def rollout_in(state: State, record: JournalRecord, id_: int) -> Rollout:
    """Returns the rollout that a record names."""
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
    """Returns the state after one rollout has moved; `changes` are new values of fields."""
    rollout = rollout_in(state, record, id_)
    after = TRANSITIONS[rollout.phase].get(move)
    if after is None:
        raise IllegalTransition(
            f"journal record {record.number} says {move} of rollout {rollout.number}, "
            f"which is {rollout.phase}"
        )
    # The callers name fields of Rollout.
    return with_rollout(state, replace(rollout, phase=after, **changes))  # type: ignore[arg-type]


def with_rollout(state: State, rollout: Rollout) -> State:
    """Returns the state with this rollout in place of the rollout with the same id."""
    return replace(
        state,
        rollouts=tuple(rollout if each.id == rollout.id else each for each in state.rollouts),
    )


def with_reason(given: tuple[str, ...], record: JournalRecord) -> tuple[str, ...]:
    """Returns the reasons that people gave, with the reason of one more record, if any."""
    return (*given, record.reason) if record.reason else given


def require_condition(record: JournalRecord, holds: bool, otherwise: str) -> None:
    """Raises IllegalTransition with the reason `otherwise`, unless the condition `holds`."""
    if not holds:
        raise IllegalTransition(
            f"journal record {record.number} ({record.event.kind}) cannot follow: {otherwise}"
        )
