"""Requests to pause a pipeline and to resume it. Each appends one record, or none is needed."""

from __future__ import annotations

from kappa.base.errors import UsageError
from kappa.replay.rollout.conflicts import refuse_underway
from kappa.replay.rollout.intents import append_decided
from kappa.replay.rollout.state import State
from kappa.state.journal.events import Paused, Resumed
from kappa.state.journal.journal import JournalRecord
from kappa.state.store import Store


def ask_pause(store: Store, pipeline: str) -> JournalRecord | None:
    """Pauses a pipeline; returns the record, or None if it is paused already.

    Raises UsageError if it does not serve, and Conflict if a rollout of it has not ended.
    """

    def decide(_: State, state: State) -> Paused | None:
        return Paused(pipeline) if may_pause(state, pipeline) else None

    return append_decided(store, decide)


def ask_resume(store: Store, pipeline: str) -> JournalRecord | None:
    """Resumes a pipeline; returns the record, or None if it is not paused.

    Raises UsageError if no such pipeline has a build.
    """

    def decide(_: State, state: State) -> Resumed | None:
        return Resumed(pipeline) if may_resume(state, pipeline) else None

    return append_decided(store, decide)


def may_pause(state: State, pipeline: str) -> bool:
    """Returns False if a pipeline is paused already. Raises as `ask_pause` does. Pure."""
    if pipeline in state.paused:
        return False
    ensure_serves(state, pipeline)
    refuse_underway(state, pipeline)
    return True


def may_resume(state: State, pipeline: str) -> bool:
    """Returns False if a pipeline is not paused. Raises as `ask_resume` does. Pure."""
    if pipeline not in {*state.paused, *state.serving, *state.idle}:
        raise _unknown(state, pipeline)
    return pipeline in state.paused


def ensure_serves(state: State, pipeline: str) -> str:
    """Returns the build that serves a pipeline. Raises UsageError if none does. Pure."""
    if pipeline in state.serving:
        return state.serving[pipeline]
    if pipeline in state.retirements:
        retirement = state.retirements[pipeline]
        raise UsageError(
            f"pipeline {pipeline} was {retirement.text}: it serves no more",
            hint=retirement.way_back,
        )
    raise _unknown(state, pipeline)


def _unknown(state: State, pipeline: str) -> UsageError:
    return UsageError(
        f"no build of pipeline {pipeline} serves",
        hint=f"there are {', '.join(sorted(state.serving))}"
        if state.serving
        else "nothing is served: kappa deploy",
    )
