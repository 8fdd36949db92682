"""The data classes of a plan: the actions of a deploy for each pipeline, and the refusals. Pure.

make_plan.py creates plans. `kappa plan` prints the steps, and stage.py executes the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from kappa.base.errors import Conflict, DeclarationError, KappaError
from kappa.base.units import count_of
from kappa.replay.rollout.plan.branch import Branch
from kappa.replay.rollout.plan.code_diff import PartDiff
from kappa.replay.rollout.plan.cost import Cost
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.log_sample import TopicSample
from kappa.replay.rollout.plan.schema_changes import ReaderChange
from kappa.replay.rollout.rollout import Rollout
from kappa.state.build import Birth, TopicBirth
from kappa.state.offsets import Offsets


class Change(StrEnum):
    """The kind of difference between a pipeline of the project and the build that serves it."""

    NEW = "new"
    CHANGED = "changed"
    AGAIN = "again"
    KEPT = "kept"
    OVERLAY = "overlay"
    SAME = "same"
    GONE = "gone"


_REPLAYED = frozenset({Change.NEW, Change.CHANGED, Change.AGAIN})


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a step cannot be executed.

    `conflict` is True if another rollout currently prevents the step. With `name`, the operator can
    allow the step nevertheless (`--allow NAME=REASON`); `name` is "" if the step cannot be allowed.
    `in_files` is True if the project's files caused the refusal; then there is no step.
    """

    pipeline: str
    message: str
    hint: str
    conflict: bool = False
    name: str = ""
    in_files: bool = False


@dataclass(frozen=True, slots=True)
class PlanStep:
    """The part of a deploy that concerns one pipeline.

    `build` is the kept build that will serve again, or otherwise the build that serves now. A new
    build has the declaration `declared`, and reads `topics` from the offsets `origin` on. If the
    new build is a branch, `branch` is the beginning of the branch. `live` is the birth certificate
    of the serving build whose tables an overlay will serve. `diffs` are the changes of code and
    declarations, `readers` are the changes that readers notice, and `events` are the changes in how
    old events are read. `cost` is the cost of the replay, and `samples` are the samples of the
    topics. `warnings` and `notes` inform the operator before the step. `accepted` are the findings
    that the operator has allowed.
    """

    pipeline: str
    change: Change
    version: str
    serving: str | None
    build: str | None
    reasons: tuple[str, ...] = ()
    readers: tuple[ReaderChange, ...] = ()
    events: tuple[str, ...] = ()
    records: int = 0
    rollout: Rollout | None = None
    declared: Declared | None = None
    topics: tuple[TopicBirth, ...] = ()
    origin: Offsets = field(default_factory=Offsets)
    diffs: tuple[PartDiff, ...] = ()
    cost: Cost | None = None
    samples: tuple[TopicSample, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    branch: Branch | None = None
    live: Birth | None = None

    @property
    def acts(self) -> bool:
        """Returns True if a deploy changes this pipeline."""
        return self.change in _REPLAYED | {Change.KEPT, Change.OVERLAY}

    @property
    def replays(self) -> bool:
        """Returns True if a deploy creates a new build that folds the log."""
        return self.change in _REPLAYED

    @property
    def tables_of(self) -> str | None:
        """Returns the build whose tables an overlay will serve, or None for any other step."""
        return None if self.live is None else self.live.folded_by

    @property
    def text(self) -> str:
        """Formats the step as one line: change, reasons, records to fold, any active rollout."""
        underway = (
            f"; rollout {self.rollout.number} of build {self.rollout.build} is {self.rollout.phase}"
            if self.rollout
            else ""
        )
        return f"{self.pipeline}: {self._change_text()}{underway}"

    def _change_text(self) -> str:
        because = ", ".join(self.reasons)
        replayed = (
            f"{count_of(self.records, 'record')} to replay"
            if self.branch is None
            else f"{self.branch.base}, {count_of(self.records, 'record')} to fold"
        )
        match self.change:
            case Change.NEW:
                return f"new (version {self.version}), {replayed}"
            case Change.CHANGED:
                return f"changed to version {self.version} ({because}), {replayed}"
            case Change.AGAIN:
                return f"once more (version {self.version}, {because}), {replayed}"
            case Change.KEPT:
                was = "changed to" if self.serving is not None else "retired;"
                return (
                    f"{was} version {self.version}, which build {self.build} still holds: "
                    "it will serve again, without a replay"
                )
            case Change.OVERLAY:
                return (
                    f"changed to version {self.version} ({because}), replays nothing: the tables "
                    f"of build {self.tables_of} are used"
                )
            case Change.SAME:
                return f"unchanged (version {self.version}, build {self.build})"
            case Change.GONE:
                return (
                    f"no longer declared; build {self.build} continues to serve until: "
                    f"kappa retire {self.pipeline}"
                )


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps and the refusals of a deploy.

    `looked_at` is the number of the last journal record on which the plan is based. `notes` are
    about the plan as a whole.
    """

    steps: tuple[PlanStep, ...]
    refusals: tuple[Refusal, ...]
    looked_at: int
    generation: int
    notes: tuple[str, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Returns True if a deploy would change something."""
        return any(step.acts for step in self.steps)

    @property
    def is_error(self) -> bool:
        """Returns True if the plan consists of a single refusal.

        Commands report such a plan as an error.
        """
        return not self.steps and len(self.refusals) == 1

    def ensure_possible(self) -> None:
        """Raises the error of the first refusal, if there is one.

        The error is DeclarationError if the project's files caused the refusal, Conflict if another
        rollout prevents the step, and otherwise KappaError.
        """
        for refusal in self.refusals:
            raise _error_of(refusal)(refusal.message, hint=refusal.hint)

    def raise_shown_refusal(self) -> None:
        """Raises an error if the plan has refusals. Call this method after the plan was printed.

        The error names only the refused pipelines. The hint names the pipelines that can be
        deployed without the refused ones. If the plan consists of a single refusal, the error of
        this refusal is raised.
        """
        if not self.refusals:
            return
        if self.is_error:
            self.ensure_possible()
        refused = dict.fromkeys(refusal.pipeline for refusal in self.refusals)
        others = [
            step.pipeline for step in self.steps if step.acts and step.pipeline not in refused
        ]
        names = ", ".join(refused)
        if not any(each.in_files for each in self.refusals):
            names = f"pipeline{'' if len(refused) == 1 else 's'} {names}"
        raise _error_of(self.refusals[0])(
            f"the plan of {names} is refused, as it says",
            hint=f"without {'it' if len(refused) == 1 else 'them'}: kappa deploy {' '.join(others)}"
            if others
            else "",
        )


def _error_of(refusal: Refusal) -> type[KappaError]:
    if refusal.in_files:
        return DeclarationError
    return Conflict if refusal.conflict else KappaError
