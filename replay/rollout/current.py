"""The state of all rollouts now, kept by each process and folded on from the last look."""

from __future__ import annotations

from kappa.journal.view import JournalView
from kappa.state.store import Store
from replay.rollout.fold import advance
from replay.rollout.state import State


def current_state(store: Store) -> State:
    """Returns the state after the journal's newest record, or raises as `advance` does."""
    return JournalView(store).folded(advance, State())
