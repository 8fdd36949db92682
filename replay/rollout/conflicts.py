"""Refusals of requests that came second, with the first request and what to do now. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from kappa.base.errors import Conflict, UsageError
from kappa.replay.rollout.numbered import build_in_words
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.build import Birth
from kappa.state.journal.events import Served


def moved_on(state: State, rollout: Rollout) -> Conflict:
    """Returns the Conflict of a second request; it names the first, and what to do now."""
    name, it, first = (
        rollout.pipeline,
        f"rollout {rollout.number} of pipeline {rollout.pipeline}",
        f"{rollout.asked_by} was first",
    )
    follow = f"kappa wait {name} waits for it; kappa abandon {name} gives it up"
    match rollout.phase:
        case Phase.READY | Phase.HOLDING:
            return Conflict(
                f"{first}: {it}, begun by {rollout.by}, is on its way to serve, with build "
                f"{rollout.build}",
                hint=follow,
            )
        case Phase.REPLAYING | Phase.VERIFYING:
            return Conflict(
                f"{it}, begun by {rollout.by}, is {rollout.phase}, and not ready: "
                f"{rollout.asked_by} asked for that",
                hint=follow,
            )
        case Phase.SERVED:
            record = state.served_in(rollout.id)
            assert record is not None
            assert isinstance(record.event, Served)
            generation = record.event.generation
            return Conflict(
                f"{first}: {it} has served, as generation {generation}, with build {rollout.build}",
                hint=f"kappa show {generation} shows it; kappa undo {name} takes it back",
            )
        case Phase.ABANDONED | Phase.FAILED:
            ended = (
                f"{first}: {it} was given up: {rollout.reason}"
                if rollout.phase is Phase.ABANDONED
                else f"{it}, begun by {rollout.by}, has failed: {rollout.reason}"
            )
            active = state.active(name)
            if active is None:
                return Conflict(ended, hint=f"to begin anew: kappa deploy {name}")
            return Conflict(
                f"{ended}; rollout {active.number}, begun by {active.by}, is "
                f"{active.phase} now, with build {active.build}",
                hint=follow,
            )
        case _:
            assert_never(rollout.phase)


def refuse_shared_names(
    state: State, pipeline: str, build: str, birth_of: Callable[[str], Birth]
) -> None:
    """Raises UsageError if another pipeline serves, or will serve, a name of a kept build.

    Two tables of one name cannot both be served. It may happen after a pipeline was retired.
    """
    others = {
        **state.serving,
        **{rollout.pipeline: rollout.build for rollout in state.active_rollouts},
    }
    others.pop(pipeline, None)
    for other, theirs in sorted(others.items()):
        shared = sorted(
            set(birth_of(build).public_names).intersection(birth_of(theirs).public_names)
        )
        if shared:
            raise UsageError(
                f"build {build} of pipeline {pipeline} cannot serve again: {shared[0]} is a table "
                f"of pipeline {other} by now (build {theirs})",
                hint=f"deploy {other} without it first, or: kappa retire {other}",
            )


def refuse_underway(state: State, pipeline: str) -> None:
    """Raises Conflict if a rollout of the pipeline has not ended."""
    active = state.active(pipeline)
    if active is not None:
        raise Conflict(
            f"rollout {active.number} of pipeline {pipeline} has not ended: "
            f"{active.asked_by} was first, it is {active.phase}, with build {active.build}",
            hint=f"kappa status -w follows it; kappa abandon {pipeline} gives it up",
        )


def refuse_switched(
    state: State, pipeline: str, serving: str | None, build: str | None = None
) -> None:
    """Raises Conflict if a switch from build `serving` to `build` would be another one by now.

    `serving` is None for a retired pipeline, `build` for one that is to be retired.
    """
    now = state.serving.get(pipeline)
    if now != serving:
        raise Conflict(
            f"{state.switched_by(pipeline)} was first: pipeline {pipeline} is served by "
            f"{build_in_words(now)} now, and not by {build_in_words(serving)}",
            hint="look again: kappa history; then ask again",
        )
    if build is None:
        return
    if state.idle.get(pipeline) != build:
        raise Conflict(
            f"build {build} of pipeline {pipeline} was retired meanwhile: its soak is over",
            hint="bring the code of that version back, then: kappa deploy",
        )
