"""Plans a retry: a new rollout with the code and allowances of an ended rollout. Pure."""

from __future__ import annotations

from dataclasses import replace

from kappa.base.errors import Conflict, UsageError
from kappa.replay.rollout.operator_requests import refuse_underway
from kappa.replay.rollout.plan.branch import Branching
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change, Plan
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.rollout_numbers import rollout_named
from kappa.replay.rollout.state import State
from kappa.state.offsets import Offsets


def ended_without_serving(state: State, pipeline: str) -> Rollout:
    """Returns the last rollout of a pipeline, which must have ended without serving.

    `pipeline` may be the number of the rollout. Raises Conflict if the rollout has not ended.
    Raises UsageError if the rollout has served, if the rollout was a switch to a kept build, if
    there is no rollout, or if the number is not the number of the pipeline's last rollout.
    """
    named = rollout_named(state, pipeline)
    pipeline = pipeline if named is None else named.pipeline
    refuse_underway(state, pipeline)
    last = next(
        (rollout for rollout in reversed(state.rollouts) if rollout.pipeline == pipeline), None
    )
    if last is None:
        raise UsageError(
            f"pipeline {pipeline} has no rollout to begin again",
            hint="kappa plan shows what a deploy would do; kappa history what was done",
        )
    if named is not None and named.id != last.id:
        raise UsageError(
            f"rollout {named.number} is not the last of pipeline {pipeline}: that is rollout "
            f"{last.number}",
            hint=f"it is {last.phase}: kappa history; then {_again_command(last)}",
        )
    if last.phase is Phase.SERVED:
        raise UsageError(
            f"rollout {last.number}, the last of pipeline {pipeline}, has served: there is "
            "nothing to begin again",
            hint=f"a new build of the same code: {_again_command(last)}",
        )
    if last.switch:
        raise UsageError(
            f"rollout {last.number}, the last of pipeline {pipeline}, was to a build that "
            "was kept, and made none",
            hint=f"ask for it again: {_again_command(last)}",
        )
    return last


def _again_command(last: Rollout) -> str:
    """Returns the command that repeats a pipeline's last rollout."""
    if last.phase is Phase.SERVED:
        return f"kappa replay {last.pipeline}"
    return f"kappa undo {last.pipeline}" if last.switch else f"kappa retry {last.number}"


def plan_again(observed: Observed, pipeline: str) -> Plan:
    """Returns the plan that begins the last rollout of a pipeline again.

    The plan creates a new build of the same code; a branch begins at the same offsets. If the
    operator allowed a finding for the last rollout, a finding with exactly the same text is allowed
    again. Raises the errors of `ended_without_serving`, and Conflict if the code has changed since.
    """
    last = ended_without_serving(observed.state, pipeline)
    before = Allowances(before=last.accepted)
    found = observed.declared.get(pipeline)
    if found is not None and found.version != last.version:
        raise Conflict(
            f"the code of pipeline {pipeline} has changed since rollout {last.number}: it "
            f"is version {found.version} now, and was {last.version}",
            hint=f"deploy what is there now: kappa deploy {pipeline}",
        )
    branching = None if last.base is None else Branching(Offsets.parse(last.base.offsets))
    plan = make_plan(observed, only=(pipeline,), accepting=before, branching=branching)
    unreplayed = {Change.SAME, Change.KEPT, Change.OVERLAY}
    if last.tables_of is None and any(step.change in unreplayed for step in plan.steps):
        # The last rollout replayed rows that serve or are kept: begin that replay again.
        plan = make_plan(observed, only=(pipeline,), again=True, accepting=before)
    reasons = tuple(dict.fromkeys((*last.reasons, f"rollout {last.number} is begun again")))
    return replace(plan, steps=tuple(replace(step, reasons=reasons) for step in plan.steps))
