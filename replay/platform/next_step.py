"""Chooses the next step of an active rollout from one observation. Pure."""

from __future__ import annotations

from typing import assert_never

from kappa.base.sections import RolloutSettings
from kappa.replay.rollout.promote import next_promote_step
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.step import (
    AlignAgain,
    Append,
    RolloutStep,
    Sight,
    StartVerification,
    Wait,
)
from kappa.state.journal.events import CaughtUp, Failed

# With back-off that is more than five minutes: longer than a broker is away for a restart.
_MOST_DEATHS = 15


def next_step(sight: Sight, rules: RolloutSettings) -> RolloutStep:
    """Returns the next step of the rollout that `sight` observed."""
    rollout = sight.rollout
    if sight.stopped is not None:
        return Append(
            Failed(
                rollout.id,
                f"the job of build {rollout.build} stopped: {sight.stopped.message}",
                sight.stopped.hint,
            )
        )
    if sight.deaths >= _MOST_DEATHS:
        return Append(
            Failed(
                rollout.id,
                f"the job of build {rollout.build} died {sight.deaths} times in a row",
                f"see kappa logs {rollout.build}",
            )
        )
    if sight.never_aligned is not None:
        return Append(
            Failed(
                rollout.id,
                f"build {rollout.build} cannot be compared with build {sight.live_build} at "
                "equal offsets: it is past where that one stopped: "
                f"{sight.never_aligned.message}",
                f"kappa retry {rollout.pipeline} makes a build of the same code that is brought "
                "to exactly there",
            )
        )
    match rollout.phase:
        case Phase.REPLAYING if sight.shares and sight.candidate is not None:
            return Append(CaughtUp(rollout.id, sight.candidate.offsets))
        case Phase.REPLAYING if sight.aligns and sight.alignment is not None:
            return Append(
                CaughtUp(rollout.id, sight.alignment.candidate.offsets, sight.alignment.number)
            )
        case Phase.REPLAYING if sight.aligns:
            return (
                AlignAgain(rollout.build)
                if sight.tails
                else Wait(_awaited_of_job(sight, f"its job to reach {sight.live_build}"))
            )
        case Phase.REPLAYING if sight.candidate is not None and sight.target_reached:
            return Append(CaughtUp(rollout.id, sight.candidate.offsets))
        case Phase.REPLAYING:
            return Wait(_awaited_of_job(sight, "its job to read the rest of the log"))
        case Phase.VERIFYING if sight.aligns and sight.alignment is None:
            return AlignAgain(rollout.build)
        case Phase.VERIFYING:
            return StartVerification()
        case Phase.READY if rollout.waits:
            return Wait(f"approval: kappa promote {rollout.pipeline}")
        case Phase.READY | Phase.HOLDING if sight.unseen:
            return Wait(
                f"the rollouts that are promoted together with this rollout: {sight.unseen}"
            )
        case Phase.READY | Phase.HOLDING:
            return next_promote_step(sight, rules)
        case Phase.SERVED | Phase.FAILED | Phase.ABANDONED:
            return Wait("nothing: it has ended")
        case _:
            assert_never(rollout.phase)


def _awaited_of_job(sight: Sight, reading: str) -> str:
    """Returns the event for which a candidate's rollout waits.

    If the candidate has no frontier yet, the event is the start of Spark. Otherwise, it is the
    event that `reading` describes.
    """
    return "its Spark to start" if sight.candidate is None else reading
