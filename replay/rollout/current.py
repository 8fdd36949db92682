"""The current state of all rollouts, kept by each process and folded on from the last look."""

from __future__ import annotations

from kappa.base.errors import Damaged
from kappa.replay.rollout.fold import advance_state, fold_records
from kappa.replay.rollout.state import State
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store


def current_state(store: Store) -> State:
    """Returns the state after the journal's newest record, or raises as `advance` does."""
    return JournalView(store).folded(advance_state, State())


def readable_state(store: Store) -> tuple[State, Damaged | None]:
    """Returns the state after the last readable record, and the damage that ends the reading.

    Only people see this state: it lacks the decision of a damaged record.
    """
    try:
        return current_state(store), None
    except Damaged as error:
        return fold_records(JournalView(store).known()), error
