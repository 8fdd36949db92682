"""Computes the data of a rollout's page: stages, lags, results, possible actions. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kappa.base.errors import KappaError
from kappa.replay.rollout.operator_requests import undo_target, undo_word
from kappa.replay.rollout.plan.retry import ended_without_serving
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.diff_listing import count_line, differing_counts, rejects_line
from kappa.replay.status.status import BuildStatus
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Check,
    Difference,
    Event,
    Failed,
    OutcomeCount,
    PromoteAsked,
    Served,
    Staged,
    Verified,
    VerifyAsked,
)
from kappa.state.journal.journal import JournalRecord
from kappa.state.kept_frontiers import parse_moment
from kappa.state.offsets import Offsets

# The stages of a rollout in order; a switch to a kept build is neither replayed nor verified.
_STEPS = (
    ("Replay", Phase.REPLAYING),
    ("Verify", Phase.VERIFYING),
    ("Approval", Phase.READY),
    ("Switch", Phase.HOLDING),
    ("Serving", Phase.SERVED),
)
_REJECTED_AS = "rejected as "
_ENDED = frozenset({Phase.FAILED, Phase.ABANDONED})


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a rollout.

    `standing` is `done`, `now`, `next` or `ended`; `ended` means that the rollout ended in this
    stage without serving. `seconds` is the duration of a stage that is over, otherwise None.
    `since` is the time at which the running stage began, otherwise None.
    """

    name: str
    standing: str
    seconds: float | None = None
    since: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A candidate's progress in one partition: offsets from `begin` up to `at` are folded.

    `end` is the end of the partition's log, or None if it is unknown.
    """

    topic: str
    partition: int
    begin: int
    at: int
    end: int | None

    @property
    def lag(self) -> int | None:
        """Returns the number of offsets that are not folded yet, or None if `end` is unknown."""
        return None if self.end is None else max(0, self.end - self.at)

    @property
    def read(self) -> tuple[int, int] | None:
        """Returns the number of folded offsets, and the number of all offsets.

        Returns None if `end` is unknown.
        """
        folded = max(0, self.at - self.begin)
        return None if self.lag is None else (folded, folded + self.lag)


@dataclass(frozen=True, slots=True)
class PossibleAction:
    """An action that a client can request: an `intent` of the API, and the equivalent `command`.

    The action applies to a pipeline. If the action needs a rollout or a generation, `rollout` is
    the number of the rollout, and `to` is the number of the generation. `main` is True for the
    usual next step. `dangerous` is True if the action removes something.
    """

    intent: str
    pipeline: str
    label: str
    command: str
    rollout: int | None = None
    to: int | None = None
    main: bool = False
    dangerous: bool = False


@dataclass(frozen=True, slots=True)
class UndoOffer:
    """The undo of a pipeline: the kept `build` that would serve again.

    `word` is "undo" or "redo". `to` is the generation that the undo names, if any. `blocked_by` is
    the active rollout that has to end first, or None if the undo is possible now.
    """

    pipeline: str
    build: str
    word: str
    to: int | None
    blocked_by: Rollout | None

    @property
    def command(self) -> str:
        """Returns the command that undoes."""
        return f"kappa undo {self.pipeline}" + ("" if self.to is None else f" --to {self.to}")

    @property
    def actions(self) -> tuple[PossibleAction, ...]:
        """Returns the action of a client, or () if the undo is not possible now."""
        if self.blocked_by is not None:
            return ()
        back = f"Let {self.pipeline} go back to it"
        label = self.word.capitalize() if self.to is None else back
        return (PossibleAction("undo", self.pipeline, label, self.command, to=self.to),)


@dataclass(frozen=True, slots=True)
class RolloutView:
    """All values that the page of a rollout shows.

    `checks` begins with the checks that failed. `serving` is the build that serves the pipeline.
    `retry` is the command that starts the rollout again, or "" if the rollout cannot be started
    again. `newer` is the pipeline's last rollout, or None if the page shows that rollout.
    """

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
    serving: str | None
    retry: str
    newer: Rollout | None
    serves: bool
    undo: UndoOffer | None

    @property
    def sampled_checks(self) -> tuple[Check, ...]:
        """Returns the failed checks of which the verification kept some failing rows."""
        return tuple(each for each in self.checks if each.samples)

    @property
    def job_failed(self) -> bool:
        """Returns True if the build's job does not run well, or if it may have ended the rollout.

        A rollout whose verification did not pass has failed for another reason.
        """
        if self.build is not None and (self.build.stopped is not None or self.build.trouble):
            return True
        verified = self.rollout.verified
        return self.rollout.phase is Phase.FAILED and (
            verified is None or verified.verdict == "passed"
        )

    @property
    def failed_in(self) -> str:
        """Returns the stage in which the rollout ended without serving, or "" if there is none."""
        return next((each.name for each in self.stages if each.standing == "ended"), "")


def rollout_view(
    state: State,
    rollout: Rollout,
    build: BuildStatus | None,
    end: Offsets | None,
    records: Iterable[JournalRecord] = (),
) -> RolloutView:
    """Returns all values that the page of a rollout shows.

    `build` is the status of the rollout's build, or None if the build is not needed any more. `end`
    contains the end offsets of the log, or is None if they are unknown. `records` are the journal's
    records from the beginning of the rollout on; the durations of stages are computed from them.
    """
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
        tuple(_timed_stages(_stages_of(rollout), rollout, records)),
        build,
        () if build is None or not rollout.active else _partition_lags(build, end),
        None if live == rollout.build else live,
        () if verified is None else tuple(sorted(verified.checks, key=lambda each: each.passed)),
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
        state.serving.get(rollout.pipeline),
        _retry_command(state, rollout),
        state.newer_rollout(rollout),
        (serves := serves_now(state, rollout)),
        undo_offer(state, rollout.pipeline) if serves else None,
    )


def serves_now(state: State, rollout: Rollout) -> bool:
    """Returns True if a rollout is the one by which its pipeline serves now. Pure."""
    last = state.last_switch(rollout.pipeline)
    return rollout.pipeline in state.serving and last is not None and last.id == rollout.id


def changed_views(
    views: Mapping[str, str],
    before: Mapping[str, str],
    differences: Iterable[Difference],
    names_in: Callable[[str], frozenset[str]],
) -> tuple[str, ...]:
    """Returns the views that a rollout changes: their queries, or the tables that they read. Pure.

    `views` maps each view that is computed when it is read to its query, and `before` does so for
    the build that serves. `names_in` returns the tables and views that a query names.
    """
    reads = {view: names_in(sql) for view, sql in views.items()}
    moved = {each.table for each in differences if not each.equal}
    moved |= {view for view, sql in views.items() if before.get(view, sql) != sql}
    # A view may read another view, so the search ends when no further view is found.
    while found := {view for view in reads.keys() - moved if reads[view] & moved}:
        moved |= found
    return tuple(view for view in views if view in moved)


def _retry_command(state: State, rollout: Rollout) -> str:
    try:
        last = ended_without_serving(state, rollout.pipeline)
    except KappaError:
        return ""
    return f"kappa retry {rollout.pipeline}" if last.id == rollout.id else ""


def actions_of(state: State, rollout: Rollout) -> Iterator[PossibleAction]:
    """Yields the actions that a client can request for a rollout in its present phase."""
    name = rollout.pipeline
    if rollout.waits:
        yield PossibleAction(
            "promote", name, "Promote", f"kappa promote {name}", rollout.number, main=True
        )
        yield PossibleAction(
            "verify", name, "Verify once more", f"kappa verify {name}", rollout.number
        )
    if rollout.active:
        yield PossibleAction(
            "abandon",
            name,
            "Abandon",
            f"kappa abandon {name}",
            rollout.number,
            dangerous=True,
        )
    elif serves_now(state, rollout):
        offer = undo_offer(state, name)
        if offer is not None:
            yield from offer.actions


def undo_offer(state: State, pipeline: str, to: int | None = None) -> UndoOffer | None:
    """Returns the undo of a pipeline, which may be impossible for now. Pure.

    `to` is the generation whose build would serve again; by default, the idle build would. Returns
    None if that build is not kept, serves now, or is about to serve.
    """
    if pipeline not in state.idle:
        return None
    try:
        name, build = undo_target(state, pipeline, to)
    except KappaError:
        return None
    active = state.active(name)
    if active is not None and active.build == build:
        return None
    return UndoOffer(name, build, undo_word(state, name, build), to, active)


def service_actions(state: State, pipeline: str) -> Iterator[PossibleAction]:
    """Yields the actions on a pipeline as a whole: pause, resume and retire.

    Pause and retire are only possible if the pipeline serves and has no active rollout.
    """
    if pipeline in state.paused:
        yield PossibleAction("resume", pipeline, "Resume", f"kappa resume {pipeline}")
    if pipeline not in state.serving or state.active(pipeline) is not None:
        return
    if pipeline not in state.paused:
        yield PossibleAction("pause", pipeline, "Pause", f"kappa pause {pipeline}")
    yield PossibleAction("retire", pipeline, "Retire", f"kappa retire {pipeline}", dangerous=True)


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


def _timed_stages(
    stages: Iterable[Stage], rollout: Rollout, records: Iterable[JournalRecord]
) -> Iterator[Stage]:
    """Yields the stages with their durations, which are computed from the journal's records."""
    seconds, last = stage_seconds(rollout.id, records)
    for stage in stages:
        if stage.standing == "now":
            since = None if last is None or last[0] != stage.name else last[1]
            yield replace(stage, since=since)
        else:
            yield replace(stage, seconds=seconds.get(stage.name))


def stage_seconds(
    id_: int, records: Iterable[JournalRecord]
) -> tuple[dict[str, float], tuple[str, str] | None]:
    """Returns the duration in seconds of each past stage, and the running stage. Pure.

    The running stage is (name, time of its beginning), or None if no stage is running. If the
    rollout entered a stage several times, the durations of this stage are added. `records` must be
    in order.
    """
    found: dict[str, float] = {}
    stage, since, approved = "", "", False
    for record in records:
        event = record.event
        if record.number == id_:
            approved = not isinstance(event, Staged) or event.auto_promote
            stage, since = "Replay" if isinstance(event, Staged) else "Switch", record.at
            continue
        following = _stage_after(event, id_, approved=approved)
        if following is None or not stage:
            continue
        approved = (approved or isinstance(event, PromoteAsked)) and not isinstance(
            event, VerifyAsked
        )
        if following != stage:
            took = (parse_moment(record.at) - parse_moment(since)).total_seconds()
            found[stage] = found.get(stage, 0.0) + took
            stage, since = following, record.at
        if not stage:
            return found, None
    return found, (stage, since) if stage else None


def _stage_after(event: Event, id_: int, *, approved: bool) -> str | None:
    """Returns the stage of a rollout after an event.

    Returns "" if the event ends the rollout, and None if the event does not change the stage.
    `approved` is True if the rollout may switch without a further approval.
    """
    match event:
        case CaughtUp(rollout=of) | VerifyAsked(rollout=of) if of == id_:
            return "Verify"
        case Verified(rollout=of) if of == id_:
            return "" if event.verdict != "passed" else "Switch" if approved else "Approval"
        case PromoteAsked(rollout=of) if id_ in {of, *event.together}:
            return "Switch"
        case Served() if any(each.rollout == id_ for each in event.switched):
            return ""
        case Failed(rollout=of) if id_ in {of, *event.together}:
            return ""
        case Abandoned(rollout=of) if of == id_:
            return ""
        case _:
            return None


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
    """Yields lines about the counts in which the candidate differs from the live build.

    The first line compares all rejects, and also lists the reasons whose numbers of rejects differ.
    Each later line is about another count that differs.
    """
    differing = differing_counts(counts)
    reasons = [each for each in differing if each.what.startswith(_REJECTED_AS)]
    if line := rejects_line(counts):
        shown = ", ".join(
            f"{each.topic} {each.what.removeprefix(_REJECTED_AS)} {each.before:,} → {each.after:,}"
            for each in reasons
        )
        yield f"{line[0].upper()}{line[1:]}{f' ({shown})' if shown else ''}"
    yield from (count_line(each) for each in differing if not each.what.startswith("rejected"))
