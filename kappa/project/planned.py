"""A plan of a project, and the rollouts that the plan begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.project.report import text_html
from kappa.replay.status.context import ProjectContext

if TYPE_CHECKING:
    from pathlib import Path

    from kappa.replay.rollout.plan.facts import Observed
    from kappa.replay.rollout.plan.finding import Allowances
    from kappa.replay.rollout.plan.plan import Plan, PlanStep, Refusal

# ruff: noqa: PLC0415  # importing the package imports what a call needs, and nothing else

# Shows a step that takes a while; gives the function that changes the step's text.
Showing = Callable[[str], AbstractContextManager[Callable[[str], None]]]


def show_nothing(_text: str) -> AbstractContextManager[Callable[[str], None]]:
    """Shows no step."""
    return nullcontext(lambda _step: None)


@dataclass(frozen=True, slots=True)
class ProjectPlan:
    """A plan: the action of a deploy for each pipeline, with reasons, readers, cost and refusals.

    `made` has the steps. The plan is valid for the files, the journal and the topics that it was
    made from: `begin` is refused if another operator was first.

    Example:
        plan = project.plan("web")
        print(plan)
        if plan.has_changes and not plan.refusals:
            plan.save("web.plan")
    """

    here: ProjectContext
    made: Plan
    observed: Observed
    only: tuple[str, ...]
    accepting: Allowances

    @property
    def has_changes(self) -> bool:
        """True if a deploy would do something."""
        return self.made.has_changes

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        """The step of each pipeline."""
        return self.made.steps

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The reasons why steps cannot be taken."""
        return self.made.refusals

    @property
    def document(self) -> dict[str, Any]:
        """The plan as `kappa plan -o json` prints it."""
        from kappa.replay.rollout.plan.plan_text import plan_document

        return plan_document(self.made)

    def save(self, path: str | Path) -> None:
        """Saves the plan to a file, for `kappa deploy --plan FILE`.

        Raises the first refusal, and UsageError if the file cannot be written.
        """
        from pathlib import Path

        from kappa.replay.rollout.plan.saved_plan import save_plan

        self.made.ensure_possible()
        save_plan(Path(path), self.made, self.observed, only=self.only, accepting=self.accepting)

    def begin(
        self,
        *,
        auto_promote: bool,
        reason: str = "",
        say: Callable[[str], None] = lambda _line: None,
        showing: Showing = show_nothing,
    ) -> tuple[int, ...]:
        """Tries the law of slices on a sample, and begins the rollouts. Returns their ids.

        With `auto_promote`, a build that passes its verification serves. `reason` is kept in the
        history. `say` takes lines of the trial, and `showing` its steps. Raises the first refusal
        of the plan, Conflict if another operator was first, and Unreachable if kappa is not up.
        """
        from kappa.replay.rollout.law import ensure_lawful
        from kappa.replay.rollout.stage import stage_plan

        self.made.ensure_possible()
        if not self.has_changes:
            return ()
        with showing("tries the law of slices") as show:
            ensure_lawful(
                self.here.settings,
                self.here.store,
                self.here.log(),
                self.made,
                say=say,
                show=lambda step: show(f"law of slices: {step}"),
            )
        # A minute may have passed: if the supervisor has ended meanwhile, nobody would continue the
        # rollouts that are begun now.
        self.here.must_run()
        with showing("beginning the rollouts"):
            return stage_plan(self.here.store, self.made, auto_promote=auto_promote, reason=reason)

    def __str__(self) -> str:
        from kappa.replay.rollout.plan.plan_text import plan_text

        return plan_text(self.made)

    def _repr_html_(self) -> str:
        return text_html(str(self))


def observed_for(
    here: ProjectContext, pipelines: Sequence[str], showing: Showing = show_nothing
) -> Observed:
    """Gathers the facts of a plan from files, journal, log and disk."""
    from kappa.replay.rollout.plan.observe import gather_facts

    log = here.log()
    with showing("planning") as show:
        return gather_facts(
            here.settings,
            here.store,
            log,
            only=pipelines,
            show=lambda step: show(f"planning: {step}"),
        )
