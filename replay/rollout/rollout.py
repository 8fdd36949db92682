"""Rollouts: what the journal's records come to. One table of phases and transitions, and the state folded from it. Pure.

A rollout is the way of one build from stage to serving, or to its end without. It is named by the number of the record
that began it. Those that one yes approves together are a group: they switch in one record or not at all, so what takes one of
them out takes the yes of the others back. Nothing here reads or writes: promote.py, verify.py and controller.py act, and
the journal decides who of several was first. The form of the machine is h11's: an illegal transition is an error and nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from kappa.base.errors import Broken
from kappa.journal.journal import (
    Abandoned,
    CaughtUp,
    Event,
    Failed,
    Held,
    PromoteAsked,
    Proved,
    Record,
    Released,
    Retired,
    Served,
    Staged,
    SwitchAsked,
    Verified,
    VerifyAsked,
)
from kappa.state.build import Base
from kappa.state.offsets import Offsets


class Phase(StrEnum):
    """Where a rollout stands."""

    REPLAYING = "replaying"
    VERIFYING = "verifying"
    READY = "ready"
    HOLDING = "holding"
    SERVED = "served"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Move(StrEnum):
    """What a record means to its rollout; a Verified is two moves, by its verdict."""

    STAGED = "staged"
    SWITCH_ASKED = "switch asked"
    CAUGHT_UP = "caught up"
    PASSED = "verification passed"
    NOT_PASSED = "verification not passed"
    VERIFY_ASKED = "verify asked"
    PROMOTE_ASKED = "promote asked"
    HELD = "held"
    RELEASED = "released"
    YES_LOST = "yes lost"
    SERVED = "served"
    FAILED = "failed"
    ABANDONED = "abandoned"


_ENDS = {Move.FAILED: Phase.FAILED, Move.ABANDONED: Phase.ABANDONED}

BEGINNINGS: Mapping[Move, Phase] = {Move.STAGED: Phase.REPLAYING, Move.SWITCH_ASKED: Phase.READY}

TRANSITIONS: Mapping[Phase, Mapping[Move, Phase]] = {
    Phase.REPLAYING: {Move.CAUGHT_UP: Phase.VERIFYING, **_ENDS},
    Phase.VERIFYING: {Move.PASSED: Phase.READY, Move.NOT_PASSED: Phase.FAILED, **_ENDS},
    # The first build of a pipeline has nothing to hold and goes to SERVED from here; every other one must hold first.
    Phase.READY: {
        Move.VERIFY_ASKED: Phase.VERIFYING,
        Move.PROMOTE_ASKED: Phase.READY,
        Move.YES_LOST: Phase.READY,
        Move.HELD: Phase.HOLDING,
        Move.SERVED: Phase.SERVED,
        **_ENDS,
    },
    Phase.HOLDING: {
        Move.RELEASED: Phase.READY,
        Move.YES_LOST: Phase.READY,
        Move.SERVED: Phase.SERVED,
        **_ENDS,
    },
    Phase.SERVED: {},
    Phase.FAILED: {},
    Phase.ABANDONED: {},
}


class IllegalTransition(Broken):
    """A record cannot follow what the journal holds: it was not written by this program, or there is an error in it."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One rollout as it stands.

    `switch`: the build is one that is kept (undo, redo, or a deploy of its version). `caught_up` and `verified` are what
    was recorded of it; `approved`: it may be promoted once it is ready; it is to be verified at an alignment behind number
    `alignment_after`; `hold` is the number of the open Held record; `attempts` counts holds; `reason` and `hint` say why
    it ended without serving, or lost its yes; `at` and `by` are its beginning's; `asked_by` is who asked last for what it does
    or did: its beginning, a verification, a yes, an end; `accepted` is what was let through at its beginning; `group` names all
    rollouts that were approved together with it, itself among them (none: it goes alone); `base` is what its build stands on where
    that is a branch.
    """

    number: int
    pipeline: str
    build: str
    version: str
    reasons: tuple[str, ...]
    phase: Phase
    switch: bool
    at: str
    by: str
    caught_up: Offsets | None = None
    verified: Verified | None = None
    approved: bool = False
    alignment_after: int = 0
    hold: int | None = None
    attempts: int = 0
    reason: str = ""
    hint: str = ""
    accepted: tuple[str, ...] = ()
    asked_by: str = ""
    group: tuple[int, ...] = ()
    base: Base | None = None

    @property
    def together(self) -> tuple[int, ...]:
        """The other rollouts of its group."""
        return tuple(number for number in self.group if number != self.number)

    @property
    def waits(self) -> bool:
        """True where it has passed its verification and waits for a yes."""
        return self.phase is Phase.READY and not self.approved

    @property
    def active(self) -> bool:
        """True until it has served, failed or been abandoned."""
        return bool(TRANSITIONS[self.phase])


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the journal says of builds and rollouts, up to record `last`.

    `serving` and `idle` map pipeline to build: the idle one served before and is kept consuming, so that an undo is a
    switch to it. `versions` and `pipelines` tell of every build ever staged; `proofs` are the records of what was proved of them, or not.
    """

    last: int = 0
    generation: int = 0
    serving: Mapping[str, str] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)
    rollouts: tuple[Rollout, ...] = ()
    served: tuple[Record, ...] = ()
    retired: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    pipelines: Mapping[str, str] = field(default_factory=dict)
    proofs: tuple[Record, ...] = ()

    def active(self, pipeline: str) -> Rollout | None:
        """The pipeline's rollout that has not ended; there is at most one."""
        return next(
            (rollout for rollout in self.active_rollouts if rollout.pipeline == pipeline), None
        )

    @property
    def active_rollouts(self) -> tuple[Rollout, ...]:
        """All rollouts that have not ended, oldest first."""
        return tuple(rollout for rollout in self.rollouts if rollout.active)

    def rollout(self, number: int) -> Rollout:
        """The rollout that record `number` began; KeyError where that record began none."""
        for rollout in self.rollouts:
            if rollout.number == number:
                return rollout
        raise KeyError(number)

    def wanted_builds(self) -> frozenset[str]:
        """The builds whose jobs should run: serving, idle, and the candidates of active rollouts."""
        return (
            frozenset(self.serving.values())
            | frozenset(self.idle.values())
            | {rollout.build for rollout in self.active_rollouts}
        )

    def to_retire(self) -> frozenset[str]:
        """The builds that nobody needs any more and that are not retired yet."""
        return frozenset(self.versions) - self.wanted_builds() - self.retired

    def may_retire(self) -> frozenset[str]:
        """Those, and the idle builds that no rollout is about to let serve again."""
        return self.to_retire() | (
            frozenset(self.idle.values()) - {rollout.build for rollout in self.active_rollouts}
        )

    def idle_since(self, pipeline: str) -> datetime | None:
        """When the pipeline's idle build served last; None where it has none."""
        idle = self.idle.get(pipeline)
        for before, record in reversed(tuple(pairwise(self.served))):
            if idle is not None and _build_in(before, pipeline) == idle != _build_in(
                record, pipeline
            ):
                return datetime.fromisoformat(record.at).astimezone(UTC)
        return None

    def served_in(self, rollout: int) -> Record | None:
        """The record in which a rollout served, alone or together with others; None where it has not."""
        return next(
            (
                record
                for record in self.served
                if isinstance(record.event, Served)
                and any(each.rollout == rollout for each in record.event.switched)
            ),
            None,
        )

    def switched_by(self, pipeline: str) -> str:
        """Who asked for what serves a pipeline now."""
        return next(
            (
                rollout.asked_by
                for rollout in reversed(self.rollouts)
                if rollout.pipeline == pipeline and rollout.phase is Phase.SERVED
            ),
            "somebody",
        )

    def served_before(self, pipeline: str) -> str | None:
        """The build that served a pipeline before the one that does, kept or not; None where there was none."""
        builds = [_build_in(record, pipeline) for record in self.served]
        return next(
            (
                build
                for build in reversed(builds)
                if build is not None and build != self.serving.get(pipeline)
            ),
            None,
        )


def soak_end(state: State, pipeline: str, soak_seconds: float) -> datetime | None:
    """Until when the pipeline's idle build is kept, so that it can be undone; None where there is none. Pure."""
    since = state.idle_since(pipeline)
    return None if since is None else since + timedelta(seconds=soak_seconds)


def soaked(state: State, now: datetime, soak_seconds: float) -> frozenset[str]:
    """The idle builds whose soak is over, but for those that a rollout is about to let serve again. Pure."""
    over = (
        build
        for pipeline, build in state.idle.items()
        if (end := soak_end(state, pipeline, soak_seconds)) is not None and end <= now
    )
    return frozenset(over) & state.may_retire()


def fold(records: Iterable[Record], state: State | None = None) -> State:
    """The state after these records, in order. Raises IllegalTransition."""
    state = state or State()
    for record in records:
        state = advance(state, record)
    return state


def advance(state: State, record: Record) -> State:
    """The state after one more record. Raises IllegalTransition, and nothing has happened, where it cannot follow."""
    if record.number != state.last + 1:
        raise IllegalTransition(f"journal record {record.number} cannot follow record {state.last}")
    return replace(_advanced(state, record), last=record.number)


def check_may_follow(state: State, event: Event) -> None:
    """Raises IllegalTransition where `event` could not be the next record. Ask before it is put: no record can be taken back."""
    advance(state, Record(number=state.last + 1, event=event, at="", by="", id=""))


def _advanced(state: State, record: Record) -> State:
    match record.event:
        case Staged() as event:
            _require(
                record, event.build not in state.versions, f"build {event.build} was staged before"
            )
            known = replace(
                state,
                versions={**state.versions, event.build: event.version},
                pipelines={**state.pipelines, event.build: event.pipeline},
            )
            return _begun(known, record, event, Move.STAGED, event.reasons)
        case SwitchAsked() as event:
            _require(
                record,
                state.idle.get(event.pipeline) == event.build,
                f"build {event.build} is not kept for pipeline {event.pipeline}",
            )
            return _begun(state, record, event, Move.SWITCH_ASKED, (event.reason,))
        case CaughtUp() as event:
            return _moved(state, record, event.rollout, Move.CAUGHT_UP, caught_up=event.offsets)
        case Verified(verdict="passed") as event:
            return _moved(state, record, event.rollout, Move.PASSED, verified=event)
        case Verified() as event:
            reason = event.reason or f"the verification of the candidate was {event.verdict}"
            return _moved(
                state, record, event.rollout, Move.NOT_PASSED, verified=event, reason=reason
            )
        case VerifyAsked() as event:
            alone = _left_alone(state, record, event.rollout, "is verified once more")
            return _moved(
                alone,
                record,
                event.rollout,
                Move.VERIFY_ASKED,
                verified=None,
                approved=False,
                group=(),
                alignment_after=event.alignment_after,
                asked_by=record.by,
            )
        case PromoteAsked() as event:
            return _approved(state, record, event)
        case Held() as event:
            rollout = _named(state, record, event.rollout)
            _require(record, rollout.approved, f"rollout {rollout.number} waits for a yes")
            live = state.serving.get(rollout.pipeline)
            _require(
                record,
                event.build == live,
                f"build {event.build} does not serve pipeline {rollout.pipeline}",
            )
            _require(
                record,
                sorted(event.together) == sorted(rollout.together),
                f"rollout {rollout.number} was not approved together with {event.together}",
            )
            return _moved(
                state,
                record,
                event.rollout,
                Move.HELD,
                hold=record.number,
                attempts=rollout.attempts + 1,
            )
        case Released() as event:
            rollout = _named(state, record, event.rollout)
            _require(record, event.hold == rollout.hold, f"hold {event.hold} is not open")
            return _released(state, record, rollout, event.reason)
        case Served() as event:
            return _switched(state, record, event)
        case Abandoned() as event:
            alone = _left_alone(state, record, event.rollout, f"was abandoned ({event.reason})")
            return _moved(
                alone,
                record,
                event.rollout,
                Move.ABANDONED,
                hold=None,
                reason=event.reason,
                asked_by=record.by,
            )
        case Failed() as event:
            return _failed(state, record, event)
        case Retired() as event:
            _require(
                record,
                event.build in state.may_retire(),
                f"build {event.build} is not one to retire",
            )
            idle = {
                pipeline: build for pipeline, build in state.idle.items() if build != event.build
            }
            return replace(state, idle=idle, retired=state.retired | {event.build})
        case Proved() as event:
            _require(
                record,
                state.pipelines.get(event.build) == event.pipeline,
                f"pipeline {event.pipeline} has no build {event.build}",
            )
            return replace(state, proofs=(*state.proofs, record))


def _begun(
    state: State, record: Record, event: Staged | SwitchAsked, move: Move, reasons: tuple[str, ...]
) -> State:
    _require(
        record,
        state.active(event.pipeline) is None,
        f"a rollout of pipeline {event.pipeline} has not ended",
    )
    begun = Rollout(
        number=record.number,
        pipeline=event.pipeline,
        build=event.build,
        version=state.versions[event.build],
        reasons=reasons,
        phase=BEGINNINGS[move],
        switch=move is Move.SWITCH_ASKED,
        approved=isinstance(event, SwitchAsked) or event.auto_promote,
        at=record.at,
        by=record.by,
        accepted=event.accepted,
        asked_by=record.by,
        base=event.base if isinstance(event, Staged) else None,
    )
    return replace(state, rollouts=(*state.rollouts, begun))


def _named(state: State, record: Record, number: int) -> Rollout:
    # Rollouts are ended in about the order they begin, so the one that is meant stands at the end.
    for rollout in reversed(state.rollouts):
        if rollout.number == number:
            return rollout
    raise IllegalTransition(
        f"journal record {record.number} names rollout {number}, which was never begun"
    )


def _moved(state: State, record: Record, number: int, move: Move, **changes: object) -> State:
    rollout = _named(state, record, number)
    after = TRANSITIONS[rollout.phase].get(move)
    if after is None:
        raise IllegalTransition(
            f"journal record {record.number} says {move} of rollout {number}, which is {rollout.phase}"
        )
    return _put(state, replace(rollout, phase=after, **changes))  # type: ignore[arg-type]  # the callers name fields of Rollout


def _put(state: State, rollout: Rollout) -> State:
    return replace(
        state,
        rollouts=tuple(
            rollout if each.number == rollout.number else each for each in state.rollouts
        ),
    )


def _approved(state: State, record: Record, event: PromoteAsked) -> State:
    group = (event.rollout, *event.together) if event.together else ()
    _require(record, len(set(group)) == len(group), "it names a rollout twice")
    for number in group or (event.rollout,):
        rollout = _named(state, record, number)
        _require(
            record,
            not (rollout.group or (group and rollout.approved)),
            f"rollout {number} is approved already",
        )
        state = _moved(
            state,
            record,
            number,
            Move.PROMOTE_ASKED,
            approved=True,
            group=group,
            attempts=0,
            reason="",
            asked_by=record.by,
        )
    return state


def _released(state: State, record: Record, rollout: Rollout, reason: str) -> State:
    """All holds of a group end with one of them: it is tried again together. So all have been tried as often."""
    members = [_named(state, record, number) for number in rollout.group or (rollout.number,)]
    attempts = max(member.attempts for member in members)
    for member in members:
        if member.phase is Phase.HOLDING:
            state = _moved(
                state,
                record,
                member.number,
                Move.RELEASED,
                hold=None,
                reason=reason,
                attempts=attempts,
            )
        else:
            state = _put(state, replace(member, attempts=attempts, reason=reason))
    return state


def _left_alone(state: State, record: Record, number: int, why: str) -> State:
    """The state after a rollout has left its group: the yes was to all of them, so the others wait for a new one and hold nothing."""
    left = _named(state, record, number)
    reason = f"rollout {number} of pipeline {left.pipeline}, with which it was to serve, {why}: it waits for a new yes"
    for other in left.together:
        state = _moved(
            state, record, other, Move.YES_LOST, hold=None, approved=False, group=(), reason=reason
        )
    return state


def _failed(state: State, record: Record, event: Failed) -> State:
    rollout = _named(state, record, event.rollout)
    _require(
        record,
        sorted(event.together) in ([], sorted(rollout.together)),
        f"rollout {rollout.number} was not approved together with {event.together}",
    )
    if not event.together:
        state = _left_alone(state, record, event.rollout, f"failed ({event.reason})")
    for number in (event.rollout, *event.together):
        state = _moved(
            state, record, number, Move.FAILED, hold=None, reason=event.reason, hint=event.hint
        )
    return state


def _switched(state: State, record: Record, event: Served) -> State:
    _require(
        record,
        event.generation == state.generation + 1,
        f"generation {event.generation} does not follow {state.generation}",
    )
    rollouts = [_named(state, record, each.rollout) for each in event.switched]
    group = rollouts[0].group or (event.rollout,)
    _require(
        record,
        sorted(each.number for each in rollouts) == sorted(group),
        f"rollouts {group} serve together or not at all",
    )
    switched = {rollout.pipeline: rollout.build for rollout in rollouts}
    _require(
        record,
        dict(event.serving) == {**state.serving, **switched},
        "its serving map is not the one before with the builds of its rollouts",
    )
    moved, idle = state, dict(state.idle)
    for rollout, receipt in zip(rollouts, (each.receipt for each in event.switched), strict=True):
        live = state.serving.get(rollout.pipeline)
        _require(
            record,
            (receipt.pipeline, receipt.build) == (rollout.pipeline, rollout.build),
            f"the receipt of build {receipt.build} is not that of rollout {rollout.number}",
        )
        _require(
            record, live is None or rollout.phase is not Phase.READY, f"build {live} was not held"
        )
        _require(record, rollout.approved, f"rollout {rollout.number} waits for a yes")
        moved = _moved(moved, record, rollout.number, Move.SERVED, hold=None, reason="")
        if live is not None:
            idle[rollout.pipeline] = live
    return replace(
        moved,
        generation=event.generation,
        serving=dict(event.serving),
        idle=idle,
        served=(*state.served, record),
    )


def _build_in(record: Record, pipeline: str) -> str | None:
    return record.event.serving.get(pipeline) if isinstance(record.event, Served) else None


def _require(record: Record, holds: bool, otherwise: str) -> None:
    if not holds:
        raise IllegalTransition(
            f"journal record {record.number} ({record.event.kind}) cannot follow: {otherwise}"
        )
