"""The steps of a rollout, and the observations that decide the next step.

next_step.py and promote.py choose a step from a `Sight`, and controller.py executes the step.
Executing a step twice has the same effect as executing it once. So after a crash at any point, the
controller can simply observe and choose again.
"""

from __future__ import annotations

from dataclasses import dataclass

from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.state.alignment import Alignment
from kappa.state.build import Base
from kappa.state.build_status import Stopped
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Event
from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Wait:
    """A step without an action: the rollout waits for the event that `what` names."""

    what: str


@dataclass(frozen=True, slots=True)
class Append:
    """A step that appends an event to the journal.

    The event must become the record right after the last record in the state.
    """

    event: Event


@dataclass(frozen=True, slots=True)
class StartVerification:
    """A step that starts the verification of the candidate, in a separate process."""


@dataclass(frozen=True, slots=True)
class AlignAgain:
    """A step that requests a new alignment of `build` with the live build.

    This step is chosen if the last alignment no longer exists or is too old.
    """

    build: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A step that acknowledges a hold instead of the live job, because that job is dead.

    The controller acknowledges the hold under the job's lock. `build` is the live build, and `hold`
    is the number of the hold's record.
    """

    build: str
    hold: int


RolloutStep = Wait | Append | StartVerification | AlignAgain | Acknowledge


def waits_for(step: RolloutStep) -> str:
    """Returns the event for which a rollout waits, or "" if its step can be executed at once."""
    match step:
        case Wait(what):
            return what
        case StartVerification():
            return "its verification to start"
        case AlignAgain():
            return "the exact offsets of the live build, at which rows are compared"
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class Sight:
    """The facts about a rollout at a tick of the controller.

    `live` and `candidate` are the newest frontiers of both builds. `comparable` are the topics that
    both builds read, with the same topic id. `target` contains the offsets that the candidate must
    reach first; they were read when the controller first observed the rollout in its phase. `tails`
    is True if the candidate's tail has begun. `alignment` is the newest kept alignment with the
    live build. `live_runs` is True if the live build's job runs. `live_stopped` is the reason why
    the live build's job is not started again, and `stopped` is the reason for the candidate's job.
    `deaths` is the number of times in a row that the candidate's job died. `recreated` is a topic
    that was created again after the candidate was created. `code` and `live_code` are the hashes of
    both builds' sources. `base` is the base of a candidate that is a branch. `others` are the
    observations of the rollouts that are promoted together with this rollout. `unseen` is the
    reason why these other rollouts could not be observed, or "".
    """

    state: State
    rollout: Rollout
    candidate: Frontier | None
    live: Frontier | None = None
    comparable: frozenset[str] = frozenset()
    target: Offsets | None = None
    tails: bool = False
    alignment: Alignment | None = None
    live_runs: bool = True
    live_stopped: Stopped | None = None
    stopped: Stopped | None = None
    deaths: int = 0
    recreated: str | None = None
    code: str = ""
    live_code: str | None = None
    base: Base | None = None
    others: tuple[Sight, ...] = ()
    unseen: str = ""

    @property
    def live_build(self) -> str | None:
        """Returns the build that serves the rollout's pipeline now."""
        return self.state.serving.get(self.rollout.pipeline)

    @property
    def shares(self) -> bool:
        """Returns True if the candidate serves the live build's tables. Then no row can differ."""
        return self.state.serves_the_same(self.rollout.build, self.live_build)

    @property
    def replaces(self) -> str | None:
        """Returns the build that must be held before the candidate serves, or None.

        This is the build that folds the live tables. The result is None if no build serves yet, or
        if the candidate serves the same tables.
        """
        live = self.live_build
        return None if live is None or self.shares else self.state.folded_by(live)

    @property
    def aligns(self) -> bool:
        """Returns True if the candidate is compared with a live build.

        This requires that both builds read at least one common topic.
        """
        return self.replaces is not None and bool(self.comparable)

    @property
    def never_aligned(self) -> Stopped | None:
        """Returns the reason why the candidate can never be aligned with the live build, or None.

        Alignment is impossible if the job of the live build has stopped for good, and the candidate
        has folded offsets that the live build has not folded: the two can then never be at equal
        offsets.
        """
        awaited = (
            self.rollout.phase in {Phase.REPLAYING, Phase.VERIFYING}
            and self.aligns
            and self.alignment is None
        )
        if not awaited or self.live_stopped is None or self.live is None or self.candidate is None:
            return None
        return (
            None
            if self.live.offsets.covers(self.candidate.offsets.only(self.comparable))
            else self.live_stopped
        )

    @property
    def target_reached(self) -> bool:
        """Returns True if the candidate's frontier has reached the target in every partition."""
        return (
            self.candidate is not None
            and self.target is not None
            and self.candidate.offsets.covers(self.target)
        )
