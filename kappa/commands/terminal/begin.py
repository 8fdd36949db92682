"""The way from a plan to rollouts: plan, show, ask, try the law of slices, begin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kappa.commands.terminal.follow import (
    RolloutOptions,
    bring_on,
    follow_rollout,
    for_each_rollout,
    rollouts_printed,
)
from kappa.commands.terminal.moving import moving
from kappa.commands.terminal.output import ask_consent, is_quiet, print_plan, say, typed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kappa.replay.rollout.plan.facts import Observed
    from kappa.replay.rollout.plan.finding import Allowances
    from kappa.replay.rollout.plan.plan import Plan
    from kappa.replay.status.context import ProjectContext


def roll_out(
    here: ProjectContext,
    command: str,
    pipelines: Sequence[str],
    *,
    again: bool,
    accepting: Allowances,
    options: RolloutOptions,
) -> None:
    """Plans and begins rollouts with a yes, and follows each rollout until its build serves."""
    with rollouts_printed(here, options) as begun:
        ids = begin_planned(
            here, command, pipelines, again=again, accepting=accepting, options=options
        )
        begun(ids)
        bring_on(here, ids, options)


def begin_planned(
    here: ProjectContext,
    command: str,
    pipelines: Sequence[str],
    *,
    again: bool,
    accepting: Allowances,
    options: RolloutOptions,
) -> tuple[int, ...]:
    """Plans, and begins the rollouts of the plan. Returns the ids of the rollouts."""
    from kappa.code.spark_child import one_child

    here.must_run()
    with one_child(here.settings):
        made, _ = plan_changes(here, pipelines, again=again, accepting=accepting)
        return begin(here, command, pipelines, made, options)


def plan_changes(
    here: ProjectContext, pipelines: Sequence[str], *, again: bool, accepting: Allowances
) -> tuple[Plan, Observed]:
    """Plans the declared pipelines. Returns the plan and the facts behind the plan."""
    from kappa.replay.rollout.plan.make_plan import make_plan

    observed = observed_for(here, pipelines)
    return make_plan(observed, only=pipelines, again=again, accepting=accepting), observed


def observed_for(here: ProjectContext, pipelines: Sequence[str]) -> Observed:
    """Gathers the facts of a plan from files, journal, log and disk."""
    from kappa.replay.rollout.plan.observe import gather_facts

    log = here.log()
    with moving("planning") as show:
        return gather_facts(
            here.settings,
            here.store,
            log,
            only=pipelines,
            show=lambda step: show(f"planning: {step}"),
        )


def begin(
    here: ProjectContext,
    command: str,
    pipelines: Sequence[str],
    made: Plan,
    options: RolloutOptions,
) -> tuple[int, ...]:
    """Shows a plan, asks for a yes, tries the law of slices, and begins the rollouts.

    Returns the ids of the rollouts, none if the plan has no changes.
    """
    print_plan(made, sys.stdout if options.is_text else sys.stderr)
    made.ensure_possible_as_shown()
    if not made.has_changes:
        return ()
    ask_consent(typed(command, " ".join(pipelines) or None), yes=options.yes)
    return _begun(here, made, options)


def apply_saved(here: ProjectContext, file: Path, options: RolloutOptions) -> None:
    """Applies a saved plan to the end without a question: saving the plan was the yes.

    Raises Conflict if the plan is stale.
    """
    from kappa.replay.rollout.plan.saved_plan import SavedPlan

    here.must_run()
    saved = SavedPlan.read(file)
    made = saved.plan_again(file, observed_for(here, saved.only))
    print_plan(made, sys.stdout if options.is_text else sys.stderr)
    made.ensure_possible_as_shown()
    with rollouts_printed(here, options) as begun:
        ids = _begun(here, made, options)
        begun(ids)
        for_each_rollout(lambda id_: follow_rollout(here, id_, options), ids)


def _begun(here: ProjectContext, made: Plan, options: RolloutOptions) -> tuple[int, ...]:
    from kappa.replay.rollout.law import ensure_lawful
    from kappa.replay.rollout.stage import stage_plan

    with moving("tries the law of slices") as show:
        ensure_lawful(
            here.settings,
            here.store,
            here.log(),
            made,
            say=(lambda _line: None) if is_quiet() else say,
            show=lambda step: show(f"law of slices: {step}"),
        )
    # A minute may have passed: if the supervisor has ended meanwhile, nobody would continue the
    # rollouts that are begun now.
    here.must_run()
    with moving("beginning the rollouts"):
        return stage_plan(
            here.store, made, auto_promote=options.auto_promote, reason=options.reason
        )
