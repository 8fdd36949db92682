"""The promote: how a candidate takes over so that no reader ever goes back.

    hold -> the live job acknowledges it in its frontier -> the candidate's frontier reaches that one -> served

The live build publishes nothing between its acknowledgement and the record that ends the hold, so what is compared last
is what readers saw last. The record is put at exactly the number after the last one looked at: a release by the live job,
an abandon, or another pipeline's switch in between takes that number, and the choice is made again. The journal decides
every race, never a clock. `tests/replay/test_promote_model.py` takes every order of steps of a small world with these
functions. An undo is the same in the other direction.

`next_promote_step` is pure and knows no earlier tick; so a promote goes on after a crash wherever it was.
"""

from __future__ import annotations

from dataclasses import replace

from kappa.build import folder
from kappa.errors import Broken, Damaged
from kappa.frontier import Frontier, Frontiers
from kappa.journal import Failed, Held, Receipt, Served, now
from kappa.lock import Lock
from kappa.offsets import Offsets
from kappa.settings import RolloutSettings
from kappa.store import Store
from replay.rollout import Phase
from replay.step import Acknowledge, Append, Sight, Step, Wait


def next_promote_step(sight: Sight, rules: RolloutSettings) -> Step:
    """The next step of a rollout that is READY or HOLDING."""
    rollout, live_build = sight.rollout, sight.live_build
    if sight.candidate is None:
        return Wait(f"build {rollout.build} to publish its first frontier")
    if rollout.phase is Phase.HOLDING and sight.live is not None and live_build is not None and rollout.hold is not None:
        return _while_holding(sight, sight.candidate, sight.live, live_build, rollout.hold)
    if sight.recreated is not None:
        return Append(Failed(rollout.number, f"topic {sight.recreated} was created anew since build {rollout.build} was born", "stage a new build: kappa deploy"))
    if live_build is None:
        return Append(_served(sight, sight.candidate, None))
    if rollout.attempts >= rules.hold_attempts:
        return Append(
            Failed(
                rollout.number,
                f"build {rollout.build} did not reach build {live_build} within {rules.hold_seconds:g} s, {rollout.attempts} times",
                "see how far each is with kappa status; deploy or undo again, or set a longer rollout.hold_seconds in kappa.toml",
            )
        )
    # A hold keeps what readers see from getting fresher: it is not begun while the candidate has a way to go.
    if not sight.target_reached:
        return Wait(f"build {rollout.build} to come near build {live_build}")
    return Append(Held(rollout.number, live_build, rollout.attempts + 1))


def reaches(candidate: Offsets, live: Offsets, topics: frozenset[str]) -> bool:
    """True where no partition of these topics is further in `live`; one that a side does not name counts as 0."""
    return candidate.covers(live.only(topics))


def ensure_acknowledged(store: Store, build: str, hold: int) -> None:
    """Acknowledges a hold for a live job that is dead: as its holder, in a frontier with the same offsets and versions.

    Raises Conflict where the job is alive after all; what is left of a dead one (a JVM in a long write) is gone first.
    """
    with Lock(store.path(f"{folder(build)}/lock"), what=f"build {build}"):
        Frontiers(store, build).publish_next(lambda newest: _acknowledging(build, newest, hold))


def _acknowledging(build: str, newest: Frontier | None, hold: int) -> Frontier | None:
    if newest is None:
        raise Damaged(f"build {build} serves and has no frontier", hint=f"see kappa logs {build}")
    return None if newest.hold == hold else replace(newest, number=newest.number + 1, epoch=newest.epoch + 1, hold=hold, published_at=now())


def _while_holding(sight: Sight, candidate: Frontier, live: Frontier, live_build: str, hold: int) -> Step:
    if live.hold != hold:
        return Wait(f"build {live_build} to acknowledge the hold") if sight.live_runs else Acknowledge(live_build, hold)
    if not reaches(candidate.offsets, live.offsets, sight.comparable):
        return Wait(f"build {sight.rollout.build} to reach build {live_build}")
    return Append(_served(sight, candidate, live))


def _served(sight: Sight, candidate: Frontier, live: Frontier | None) -> Served:
    rollout, state = sight.rollout, sight.state
    # The promise to readers, checked where it is written whatever was decided before (a partition not named counts as 0).
    if live is not None and not reaches(candidate.offsets, live.offsets, sight.comparable):
        raise Broken(f"build {rollout.build} at {candidate.offsets} may not follow build {live.build} at {live.offsets}: readers would go back")
    verified = rollout.verified
    receipt = Receipt(
        pipeline=rollout.pipeline,
        build=rollout.build,
        version=rollout.version,
        candidate_offsets=candidate.offsets,
        live_build=None if live is None else live.build,
        live_offsets=None if live is None else live.offsets,
        checks=() if verified is None else verified.checks,
        reasons=rollout.reasons,
        first=live is None,
        differences=() if verified is None else verified.differences,
        counts=() if verified is None else verified.counts,
        incomparable_topics=() if verified is None else verified.incomparable_topics,
    )
    return Served(rollout.number, state.generation + 1, {**state.serving, rollout.pipeline: rollout.build}, receipt)
