"""The state of all rollouts now, kept by each process and folded on from the last look."""

from __future__ import annotations

from kappa.base.errors import Damaged
from kappa.replay.rollout.fold import advance, fold
from kappa.replay.rollout.state import State
from kappa.state.journal.journal import JournalView
from kappa.state.store import Store


def current_state(store: Store) -> State:
    """Returns the state after the journal's newest record, or raises as `advance` does."""
    return JournalView(store).folded(advance, State())


def readable_state(store: Store) -> tuple[State, Damaged | None]:
    """Returns the state after the journal's last record that can be read, and what ends it there.

    It is for people alone: what a damaged record decided is not in it.
    """
    try:
        return current_state(store), None
    except Damaged as error:
        return fold(JournalView(store).known()), error
