"""The changes that a promote's sinks send, for the question before it."""

from __future__ import annotations

from kappa.state.build import read_birth
from kappa.state.store import Store
from replay.rollout.outgoing import outgoing
from replay.rollout.rollout import Rollout
from replay.rollout.state import State


def sending_text(store: Store, state: State, rollout: Rollout) -> str:
    """Returns a line for each sink of a candidate that sends something as it begins to serve."""
    serving = state.serving.get(rollout.pipeline)
    before = () if serving is None else read_birth(store, serving).sinks
    sinks = read_birth(store, rollout.build).sinks
    differences = () if rollout.verified is None else rollout.verified.differences
    lines = outgoing(sinks, differences, before=before)
    return "".join(f"  sends: {line}\n" for line in lines)
