"""Computes the current state of all rollouts from the journal.

Each process caches the state, and applies only the new records to it.
"""

from __future__ import annotations

from kappa.base.errors import Damaged
from kappa.replay.rollout.fold import advance_state, fold_records
from kappa.replay.rollout.state import State
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store


def current_state(store: Store) -> State:
    """Returns the state of all rollouts after the journal's newest record.

    Raises IllegalTransition if a record of the journal cannot follow the record before it.
    """
    return JournalView(store).folded(advance_state, State())


def readable_state(store: Store) -> tuple[State, Damaged | None]:
    """Returns the state after the last readable record, and the error of a damaged next record.

    The error is None if all records are readable. Use this state only for display: the damaged
    record and all later records, with the decisions in them, are missing from the state.
    """
    try:
        return current_state(store), None
    except Damaged as error:
        return fold_records(JournalView(store).known()), error
