"""A rollout as values: stages, lag by partition, results, and possible actions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff_listing import count_line, differing_counts, rejects_line
from kappa.replay.status.status import BuildStatus
from kappa.state.journal.events import Check, Difference, OutcomeCount, Served
from kappa.state.offsets import Offsets

# The stages of a rollout in order; a switch to a kept build is neither replayed nor verified.
_STEPS = (
    ("Replay", Phase.REPLAYING),
    ("Verify", Phase.VERIFYING),
    ("Your yes", Phase.READY),
    ("Switch", Phase.HOLDING),
    ("Serving", Phase.SERVED),
)
_ENDED = frozenset({Phase.FAILED, Phase.ABANDONED})


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a rollout: `done`, `now`, `next`, or `ended` if the rollout ended there."""

    name: str
    standing: str


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The candidate's progress in one partition: from `begin` to `at`, of `end`.

    `begin` is the offset at which the job began to read; `end` is None if the broker was not
    asked.
    """

    topic: str
    partition: int
    begin: int
    at: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """The offsets that are still missing. None if the end is unknown."""
        return None if self.end is None else max(0, self.end - self.at)

    @property
    def read(self) -> tuple[int, int] | None:
        """The offsets that were folded and all offsets to the end; None if the end is unknown."""
        folded = max(0, self.at - self.begin)
        return None if self.lag is None else (folded, folded + self.lag)


@dataclass(frozen=True, slots=True)
class PossibleAction:
    """An action that a client can ask for: the API's `intent`, and the equal `command`.

    The action is of a pipeline and a `rollout`, or `to` a generation.
    """

    intent: str
    pipeline: str
    label: str
    command: str
    rollout: int | None = None
    to: int | None = None
    main: bool = False


@dataclass(frozen=True, slots=True)
class RolloutView:
    """All values that the page of a rollout shows."""

    rollout: Rollout
    stages: tuple[Stage, ...]
    build: BuildStatus | None
    partitions: tuple[PartitionLag, ...]
    live_build: str | None
    checks: tuple[Check, ...]
    differences: tuple[Difference, ...]
    counts: tuple[str, ...]
    generation: int | None
    served_at: str | None
    deeds: tuple[PossibleAction, ...]
    comparable: bool


def rollout_view(
    state: State, rollout: Rollout, build: BuildStatus | None, end: Offsets | None
) -> RolloutView:
    """Makes the view of a rollout; `build` is the status of the build, if still wanted."""
    record = state.served_in(rollout.id)
    generation = (
        record.event.generation if record is not None and isinstance(record.event, Served) else None
    )
    verified = rollout.verified
    receipt = (
        next((each.receipt for each in record.event.switched if each.rollout == rollout.id), None)
        if record is not None and isinstance(record.event, Served)
        else None
    )
    live = (
        verified.live_build
        if verified is not None and verified.live_build
        else receipt.live_build
        if receipt is not None
        else state.serving.get(rollout.pipeline)
    )
    kept = {
        *state.serving.values(),
        *state.idle.values(),
        *(each.build for each in state.active_rollouts),
    }
    return RolloutView(
        rollout,
        tuple(_stages_of(rollout)),
        build,
        () if build is None or not rollout.active else _partition_lags(build, end),
        None if live == rollout.build else live,
        () if verified is None else verified.checks,
        () if verified is None else verified.differences,
        () if verified is None else tuple(_count_lines(verified.counts)),
        generation,
        None if record is None else record.at,
        tuple(actions_of(state, rollout)),
        bool(live)
        and live != rollout.build
        and live in kept
        and rollout.build in kept
        and not state.serves_the_same(rollout.build, live)
        and rollout.phase not in {Phase.REPLAYING, Phase.VERIFYING},
    )


def actions_of(state: State, rollout: Rollout) -> Iterator[PossibleAction]:
    """Lists the actions that are possible for a rollout now."""
    name = rollout.pipeline
    if rollout.waits:
        yield PossibleAction(
            "promote", name, "Promote", f"kappa promote {name}", rollout.number, main=True
        )
        yield PossibleAction(
            "verify", name, "Verify once more", f"kappa verify {name}", rollout.number
        )
    if rollout.active:
        yield PossibleAction("abandon", name, "Abandon", f"kappa abandon {name}", rollout.number)
    elif rollout.phase is Phase.SERVED and state.serving.get(name) == rollout.build:
        yield from undo_action(state, name)


def undo_action(state: State, pipeline: str) -> Iterator[PossibleAction]:
    """Yields the undo to the kept build, if there is a kept build and no active rollout."""
    if pipeline in state.idle and state.active(pipeline) is None:
        yield PossibleAction("undo", pipeline, "Undo", f"kappa undo {pipeline}")


def service_actions(state: State, pipeline: str) -> Iterator[PossibleAction]:
    """Yields the actions on a pipeline as a whole, if no rollout of the pipeline is active."""
    if pipeline in state.paused:
        yield PossibleAction("resume", pipeline, "Resume", f"kappa resume {pipeline}")
    if pipeline not in state.serving or state.active(pipeline) is not None:
        return
    if pipeline not in state.paused:
        yield PossibleAction("pause", pipeline, "Pause", f"kappa pause {pipeline}")
    yield PossibleAction("retire", pipeline, "Retire", f"kappa retire {pipeline}")


def _stages_of(rollout: Rollout) -> Iterator[Stage]:
    steps = [
        each for each in _STEPS if not rollout.switch or each[1] in {Phase.HOLDING, Phase.SERVED}
    ]
    phases = [phase for _, phase in steps]
    # A ready rollout with its yes is about to hold.
    phase = Phase.HOLDING if rollout.phase is Phase.READY and not rollout.waits else rollout.phase
    if phase in _ENDED:
        reached = (
            Phase.REPLAYING
            if rollout.caught_up is None
            else Phase.VERIFYING
            if rollout.verified is None or rollout.verified.verdict != "passed"
            else Phase.READY
        )
        now = phases.index(reached) if reached in phases else 0
        yield from (
            Stage(name, "done" if place < now else "ended" if place == now else "next")
            for place, (name, _) in enumerate(steps)
        )
        return
    now = phases.index(phase)
    done = phase is Phase.SERVED
    yield from (
        Stage(name, "done" if place < now or done else "now" if place == now else "next")
        for place, (name, _) in enumerate(steps)
    )


def _partition_lags(build: BuildStatus, end: Offsets | None) -> tuple[PartitionLag, ...]:
    known = build.offsets if end is None else build.offsets.highest_with(end.only(build.topics))
    return tuple(
        PartitionLag(
            topic,
            partition,
            build.reads_from.at(topic, partition),
            build.offsets.at(topic, partition),
            None if end is None else end.at(topic, partition),
        )
        for topic, partition, _ in known.items()
    )


def _count_lines(counts: tuple[OutcomeCount, ...]) -> Iterator[str]:
    line = rejects_line(counts)
    yield from ([line] if line else [])
    yield from map(count_line, differing_counts(counts))
