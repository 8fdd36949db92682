"""The way from a plan to rollouts: plan, show, ask, begin."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kappa.commands.terminal.follow import (
    RolloutOptions,
    bring_on,
    follow_each,
    rollouts_printed,
)
from kappa.commands.terminal.moving import moving
from kappa.commands.terminal.output import ask_consent, is_quiet, print_plan, say, typed
from kappa.project.project import Project

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kappa.project.planned import ProjectPlan
    from kappa.replay.rollout.plan.finding import Allowances
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
        planned = Project(here).plan_accepting(
            pipelines, again=again, accepting=accepting, showing=moving
        )
        return begin(command, pipelines, planned, options)


def begin(
    command: str, pipelines: Sequence[str], planned: ProjectPlan, options: RolloutOptions
) -> tuple[int, ...]:
    """Shows a plan, asks for a yes, tries the law of slices, and begins the rollouts.

    Returns the ids of the rollouts, or no ids if the plan has no changes.
    """
    print_plan(planned.made, sys.stdout if options.is_text else sys.stderr)
    planned.made.ensure_possible_as_shown()
    if not planned.has_changes:
        return ()
    ask_consent(typed(command, " ".join(pipelines) or None), yes=options.yes)
    return _begun(planned, options)


def apply_saved(here: ProjectContext, file: Path, options: RolloutOptions) -> None:
    """Applies a saved plan to the end without a question: saving the plan was the yes.

    Raises Conflict if the plan is stale.
    """
    with rollouts_printed(here, options) as begun:
        ids = begin_saved(here, file, options)
        begun(ids)
        follow_each(here, ids, options)


def begin_saved(here: ProjectContext, file: Path, options: RolloutOptions) -> tuple[int, ...]:
    """Begins the rollouts of a saved plan. Returns their ids. Raises as `apply_saved` does."""
    here.must_run()
    planned = Project(here).read_plan(file, showing=moving)
    print_plan(planned.made, sys.stdout if options.is_text else sys.stderr)
    planned.made.ensure_possible_as_shown()
    return _begun(planned, options)


def _begun(planned: ProjectPlan, options: RolloutOptions) -> tuple[int, ...]:
    return planned.begin(
        auto_promote=options.auto_promote,
        reason=options.reason,
        say=(lambda _line: None) if is_quiet() else say,
        showing=moving,
    )
