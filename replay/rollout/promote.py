"""The promote: a candidate replaces the live build, and no reader ever sees older offsets.

    hold -> the live job acknowledges the hold in its frontier
         -> the candidate's frontier reaches the acknowledged frontier -> served

The live build publishes nothing between its acknowledgement and the record that ends the hold. So
the frontier of the last comparison is the last frontier that readers saw. The record that makes the
candidate serve is appended with exactly the number after the last record that the controller has
read. If another record uses that number (a release by the live job, an abandon, or a switch of
another pipeline), the controller chooses the step again. So the journal decides every race, and a
clock never does. `tests/replay/rollout/test_promote_model.py` tests all orders of steps of a small
model with these functions. An undo is a promote in the other direction.

A candidate that serves the live build's own tables (an overlay, or an undo of an overlay) needs no
hold: readers see the same frontier before and after the switch.

Rollouts that were approved together hold together: no hold begins before all candidates are near
their live builds. One record makes all candidates serve. A step of any of the rollouts may append
this record. All holds of a group end together, so a fact that is valid during one hold is valid
during all holds of the group. `next_promote_step` is pure and remembers no earlier tick, so a
promote continues after any crash.
"""

from __future__ import annotations

from msgspec.structs import replace

from kappa.base.clock import now
from kappa.base.errors import Broken, Damaged
from kappa.base.failpoint import failpoint
from kappa.base.sections import RolloutSettings
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.step import Acknowledge, Append, RolloutStep, Sight, Wait
from kappa.state.build import folder_of_build
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Failed, Held, Receipt, Served, Switched
from kappa.state.offsets import Offsets
from kappa.state.root import lock_of
from kappa.state.store import Store


def next_promote_step(sight: Sight, rules: RolloutSettings) -> RolloutStep:
    """Returns the next step of a rollout whose phase is READY or HOLDING."""
    rollout, replaced = sight.rollout, sight.replaces
    if sight.candidate is None:
        return Wait("its first rows")
    if (
        rollout.phase is Phase.HOLDING
        and sight.live is not None
        and replaced is not None
        and rollout.hold is not None
    ):
        return _while_holding(sight, sight.live, replaced, rollout.hold)
    if sight.recreated is not None:
        return Append(
            Failed(
                rollout.id,
                f"topic {sight.recreated} was created again since build {rollout.build} was born",
                "stage a new build: kappa deploy",
            )
        )
    if replaced is None:
        return _served_together(sight)
    if rollout.attempts >= rules.hold_attempts:
        return Append(_never_reached(sight, rules))
    # While a hold is open, readers see no newer frontier: no hold begins before all are near.
    for each in (sight, *sight.others):
        if not _is_near(each):
            own = "" if each is sight else f" of build {each.rollout.build}"
            return Wait(
                f"the last records{own} before build {each.live_build}"
                if each.replaces
                else f"the first rows{own}"
            )
    return Append(Held(rollout.id, replaced, rollout.attempts + 1, rollout.together))


def reaches_live(candidate: Offsets, live: Offsets, topics: frozenset[str]) -> bool:
    """Returns True if `candidate` has reached `live` in every partition of these topics.

    A partition that `candidate` or `live` does not contain counts as offset 0.
    """
    return candidate.covers(live.only(topics))


def acknowledge_for_dead_job(store: Store, build: str, hold: int) -> None:
    """Acknowledges a hold instead of the live job, because that job is dead.

    First acquires the job's lock, which kills processes that the dead job has left running (such as
    a JVM in a long write). Then publishes a frontier that contains the acknowledgement, and the
    same offsets and versions as the newest frontier. Raises Conflict if the job is still alive.
    """
    with lock_of(store, f"{folder_of_build(build)}/lock", what=f"build {build}"):
        failpoint("promote.before_acknowledge")
        Frontiers(store, build).publish_next(
            lambda newest: _acknowledging_frontier(build, newest, hold)
        )
        failpoint("promote.after_acknowledge")


def _acknowledging_frontier(build: str, newest: Frontier | None, hold: int) -> Frontier | None:
    if newest is None:
        raise Damaged(f"build {build} serves and has no frontier", hint=f"see kappa logs {build}")
    return (
        None
        if newest.hold == hold
        else replace(
            newest, number=newest.number + 1, epoch=newest.epoch + 1, hold=hold, published_at=now()
        )
    )


def _is_near(sight: Sight) -> bool:
    """Returns True if this rollout allows the hold of its group to begin.

    This is the case if the candidate has reached its target offsets, if the candidate can serve
    without a hold, or if the rollout has a hold already.
    """
    if sight.rollout.phase is Phase.HOLDING:
        return True
    return (
        sight.candidate is not None
        and sight.recreated is None
        and (sight.replaces is None or sight.target_reached)
    )


def _never_reached(sight: Sight, rules: RolloutSettings) -> Failed:
    pairs = [
        f"build {each.rollout.build} did not reach build {each.live_build}"
        for each in (sight, *sight.others)
        if each.replaces is not None
    ]
    return Failed(
        sight.rollout.id,
        f"{' together, or '.join(pairs)} within {rules.hold_seconds:g} s, "
        f"{sight.rollout.attempts} times",
        "see how far each is with kappa status; deploy or undo again, or set a longer "
        "rollout.hold_seconds in kappa.toml",
        sight.rollout.together,
    )


def _while_holding(sight: Sight, live: Frontier, held: str, hold: int) -> RolloutStep:
    if live.hold != hold and not sight.live_runs:
        return Acknowledge(held, hold)
    missing = _missing_condition(sight)
    return _served_together(sight) if missing is None else Wait(missing)


def _served_together(sight: Sight) -> RolloutStep:
    """Returns the step that makes all candidates of a group serve.

    If a condition is missing, returns a step that waits for this condition.
    """
    missing = next(filter(None, map(_missing_condition, sight.others)), None)
    return Append(_served_event(sight)) if missing is None else Wait(missing)


def _missing_condition(sight: Sight) -> str | None:
    """Returns the first condition that a rollout must still meet before it may serve, or None."""
    rollout, candidate, live = sight.rollout, sight.candidate, sight.live
    if candidate is None:
        return f"build {rollout.build} to publish its first frontier"
    if sight.replaces is None:
        return (
            None
            if sight.recreated is None
            else f"rollout {rollout.number}, whose topic {sight.recreated} was created again"
        )
    if rollout.phase is not Phase.HOLDING or live is None:
        return f"build {sight.live_build} to be held"
    if live.hold != rollout.hold:
        return f"build {sight.live_build} to acknowledge the hold"
    if not reaches_live(candidate.offsets, live.offsets, sight.comparable):
        return f"build {rollout.build} to reach build {sight.live_build}"
    return None


def _served_event(sight: Sight) -> Served:
    # In the order of the yes, whichever rollout's step puts the record.
    group = sorted(
        (sight, *sight.others),
        key=lambda each: each.rollout.group.index(each.rollout.id) if each.rollout.group else 0,
    )
    switched = [Switched(each.rollout.id, _promote_receipt(each)) for each in group]
    serving = {
        **sight.state.serving,
        **{each.rollout.pipeline: each.rollout.build for each in group},
    }
    return Served(
        switched[0].rollout,
        sight.state.generation + 1,
        serving,
        switched[0].receipt,
        tuple(switched[1:]),
        sight.state.generation or None,
    )


def _promote_receipt(sight: Sight) -> Receipt:
    rollout, candidate, live = sight.rollout, sight.candidate, sight.live
    if candidate is None:
        raise Broken(f"build {rollout.build} may not serve: it has no frontier")
    # The promise to readers, checked where it is written, whatever was decided before.
    if live is not None and not reaches_live(candidate.offsets, live.offsets, sight.comparable):
        raise Broken(
            f"build {rollout.build} at {candidate.offsets} may not follow build "
            f"{sight.live_build} at {live.offsets}: readers would go back"
        )
    verified = rollout.verified
    return Receipt(
        pipeline=rollout.pipeline,
        build=rollout.build,
        version=rollout.version,
        candidate_offsets=candidate.offsets,
        live_build=None if live is None else sight.live_build,
        live_offsets=None if live is None else live.offsets,
        checks=() if verified is None else verified.checks,
        reasons=rollout.reasons,
        first=live is None and sight.state.served_before(rollout.pipeline) is None,
        differences=() if verified is None else verified.differences,
        counts=() if verified is None else verified.counts,
        incomparable_topics=() if verified is None else verified.incomparable_topics,
        code=sight.code,
        live_code=sight.live_code,
        base=sight.base,
        tables_of=rollout.tables_of,
    )
