"""The state of all rollouts now, kept by each process and folded on from the last look."""

from __future__ import annotations

from threading import Lock
from weakref import WeakKeyDictionary

from kappa.journal.view import JournalView
from kappa.state.store import Store
from replay.rollout.fold import fold
from replay.rollout.state import State

_LOCK = Lock()
_STATES: WeakKeyDictionary[Store, State] = WeakKeyDictionary()


def current_state(store: Store) -> State:
    """Returns the state after the journal's newest record, or raises as `fold` does.

    Only records that this process has not folded yet are read. Threads may call it at once.
    """
    before = _STATES.get(store, State())
    state = fold(JournalView(store).records(after=before.last), before)
    with _LOCK:
        # Another thread may have come further meanwhile.
        known = _STATES.get(store, before)
        if state.last >= known.last:
            _STATES[store] = state
    return state
