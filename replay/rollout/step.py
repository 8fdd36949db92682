"""One step of a rollout, and what is seen before it is chosen. Pure values: rollout by rollout, `Sight` in, `RolloutStep` out.

promote.py and controller.py choose steps, controller.py takes them. Taking one twice is taking it once, so a crash
anywhere is answered by looking and choosing again.
"""

from __future__ import annotations

from dataclasses import dataclass

from kappa.journal.journal import Event
from kappa.state.alignment import Alignment
from kappa.state.build import Base
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.stopped import Stopped
from replay.rollout.rollout import Phase, Rollout
from replay.rollout.state import State


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done until `what` has happened."""

    what: str


@dataclass(frozen=True, slots=True)
class Append:
    """The journal's next record, at exactly the number after the last one looked at."""

    event: Event


@dataclass(frozen=True, slots=True)
class StartVerification:
    """The candidate is to be verified, by a process of its own."""


@dataclass(frozen=True, slots=True)
class AlignAgain:
    """The candidate is to be aligned with the live build once more: what it was aligned at is gone, or is not new enough."""

    build: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The live job is dead and cannot acknowledge the hold: take its lock and do it for it."""

    build: str
    hold: int


RolloutStep = Wait | Append | StartVerification | AlignAgain | Acknowledge


def waits_for(step: RolloutStep) -> str:
    """What has to happen before a rollout is brought on; "" where it is brought on right now."""
    match step:
        case Wait(what):
            return what
        case StartVerification():
            return "its verification"
        case AlignAgain(build):
            return f"build {build} to come to exactly where the live build is"
        case _:
            return ""


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one rollout at one tick.

    `live` and `candidate` are newest frontiers; `comparable` the topics that both builds read, by topic id; `target` what
    the candidate must have reached before more is done, taken when the rollout's phase was first looked at; `live_stopped` is
    why the live build's job is not started again, `stopped` why the candidate's; `tails` is
    whether the candidate's tail has begun; `alignment` the newest one with the live build that is kept; `deaths` counts
    those of its job in a row; `code` and `live_code` are hashes of both builds' sources, `base` what the candidate stands on where it is a branch; `recreated` names a topic that is not the one the candidate was born with; `others` is what is
    seen of the rollouts that are promoted together with this one, and `unseen` why they could not be looked at ("": they were).
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
        """The build that serves the rollout's pipeline now."""
        return self.state.serving.get(self.rollout.pipeline)

    @property
    def aligns(self) -> bool:
        """True where the candidate is compared with a live build: both read a topic that is the same."""
        return self.live_build is not None and bool(self.comparable)

    @property
    def never_aligned(self) -> Stopped | None:
        """Why the candidate will not be aligned with the live build any more: that one has stopped, and the candidate is past it (law 13)."""
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
        """True where the candidate's frontier has reached the target in every partition."""
        return (
            self.candidate is not None
            and self.target is not None
            and self.candidate.offsets.covers(self.target)
        )
