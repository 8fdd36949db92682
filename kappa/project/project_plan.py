"""A plan of a project, and functions that follow the plan's rollouts until they end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.base.errors import KappaError, Unreachable
from kappa.project.report import text_html
from kappa.replay.status.context import ProjectContext

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from kappa.kafka.client import Log
    from kappa.replay.rollout.plan.facts import Observed
    from kappa.replay.rollout.plan.finding import Allowances
    from kappa.replay.rollout.plan.plan import Plan, PlanStep, Refusal
    from kappa.replay.rollout.rollout import Rollout
    from kappa.state.build import Birth
    from kappa.state.offsets import Offsets

# ruff: noqa: PLC0415  # importing the package imports what a call needs, and nothing else

# Shows a step that takes a while; gives the function that changes the step's text.
Showing = Callable[[str], AbstractContextManager[Callable[[str], None]]]


def show_nothing(_text: str) -> AbstractContextManager[Callable[[str], None]]:
    """Displays no progress: the default for parameters that display the steps of a function."""
    return nullcontext(lambda _step: None)


@dataclass(frozen=True, slots=True)
class ProjectPlan:
    """A plan: what a deploy does with each pipeline, with reasons, readers, cost and refusals.

    `made` contains the planned steps. The plan is valid for the files, the journal and the topics
    from which it was computed. If another operator has changed them since then, `begin` raises
    Conflict.

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
        """Returns True if a deploy would change something."""
        return self.made.has_changes

    @property
    def steps(self) -> tuple[PlanStep, ...]:
        """The planned step of each pipeline."""
        return self.made.steps

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The reasons why the plan cannot be carried out."""
        return self.made.refusals

    @property
    def document(self) -> dict[str, Any]:
        """The plan as a document, as `kappa plan -o json` prints it."""
        from kappa.replay.rollout.plan.plan_text import plan_document

        return plan_document(self.made)

    def save(self, path: str | Path) -> None:
        """Saves the plan to the file `path`, for `kappa deploy --plan FILE`.

        If the plan has refusals, raises the error of the first refusal. Raises UsageError if the
        file cannot be written.
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
        """Checks the law of slices on a sample, begins the rollouts, and returns their ids.

        With `auto_promote`, a build serves as soon as it has passed its verification. `reason` is
        stored in the journal. `say` is called with lines of text about the check, and `showing`
        displays the steps. If the plan has refusals, raises the error of the first refusal. Raises
        VerificationFailed if a pipeline breaks the law of slices, Conflict if another operator was
        first, and Unreachable if `kappa up` does not run.
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
    """Collects the facts for a plan from the project's files, the journal, Kafka and the disk.

    `pipelines` are the pipelines to plan. `showing` displays the steps.
    """
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


def follow_to_end(
    here: ProjectContext,
    id_: int,
    *,
    timeout: float | None = None,
    to_the_yes: bool = False,
    console: Console | None = None,
    known: Rollout | None = None,
) -> Rollout:
    """Follows a rollout until it ends, and returns its last state.

    With `to_the_yes`, also returns when the rollout waits for a person's approval. `timeout` is in
    seconds. The progress is shown on `console`, if it is not None. `known` is an earlier state of
    the rollout, whose events are not shown again. If the rollout ends without serving, raises the
    error for this kind of end. Raises TimedOut after the timeout, and Unreachable if no supervisor
    runs; in both cases the rollout itself continues.
    """
    from kappa.replay.status.follow import follow_rollout, raise_unless_served, show_progress
    from kappa.replay.status.outgoing_changes import sends_at_switch
    from kappa.state.build import read_birth

    begun = here.state().rollout(id_)
    birth = read_birth(here.store, begun.build)
    log, end = _log_of(here, begun, birth)
    steps = follow_rollout(
        here.store,
        id_,
        timeout=timeout,
        supervised=lambda: here.running is not None,
        until=lambda rollout: to_the_yes and rollout.waits,
    )
    ended = show_progress(
        steps,
        end,
        console,
        known=known,
        end_now=lambda: log.end(birth.topic_ids),
        sends=lambda rollout: tuple(
            each.text
            for each in sends_at_switch(
                here.store, here.state(), rollout, most=here.settings.alerts.most
            )
        ),
    )
    raise_unless_served(ended)
    return ended


def for_each_rollout(
    act: Callable[[int], object],
    ids: Iterable[int],
    tell: Callable[[KappaError], object] = lambda _error: None,
) -> None:
    """Calls `act` for each rollout id, even if an earlier call has raised a KappaError.

    If calls have raised errors, raises the first error after the last call. The other errors are
    passed to `tell`.
    """
    refused = []
    for id_ in ids:
        try:
            act(id_)
        except KappaError as error:
            refused.append(error)
    for other in refused[1:]:
        tell(other)
    for first in refused[:1]:
        raise first


def _log_of(here: ProjectContext, begun: Rollout, birth: Birth) -> tuple[Log, Offsets]:
    """Returns a client of the broker, and the end offsets of the topics that a rollout reads.

    If the broker does not answer, raises Unreachable with a message that the rollout has begun but
    cannot be followed.
    """
    try:
        log = here.log()
        return log, log.end(birth.topic_ids)
    except Unreachable as error:
        raise Unreachable(
            f"rollout {begun.number} of pipeline {begun.pipeline} has begun, and cannot be "
            f"followed: {error.message}",
            hint=f"kappa up -d continues it, kappa wait {begun.number} follows it, "
            f"kappa abandon {begun.number} gives it up",
        ) from error
