"""A rollout, its phases, and the table of all legal transitions. Pure.

A rollout moves one build from staging to serving, or to an end without serving. People name a
rollout by its own number: 1, 2, 3. Records name a rollout by the number of the record that began
it. The state machine is modelled on that of the h11 library: an illegal transition raises an error
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kappa.base.errors import Broken
from kappa.state.build import Base
from kappa.state.journal.events import Verified
from kappa.state.offsets import Offsets


class Phase(StrEnum):
    """A phase of a rollout. The last three phases are final."""

    REPLAYING = "replaying"
    VERIFYING = "verifying"
    READY = "ready"
    HOLDING = "holding"
    SERVED = "served"
    FAILED = "failed"
    ABANDONED = "abandoned"


class Move(StrEnum):
    """A move from one phase of a rollout to another. A record of the journal causes the move.

    A Verified record causes one of two moves, depending on the verdict in the record.
    """

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
    # A first build, and one that serves the live build's tables, have nothing to hold and move to
    # SERVED from here; any other must hold first.
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
    """The error for a record that cannot follow the state before it.

    Either another program has written the record, or this program has a bug.
    """


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout, with everything that its records say about it.

    - `id`: the number of the journal record that began the rollout. Other records use the id.
    - `number`: the position of the rollout in the journal, counted from 1. People use the number.
    - `switch`: True if the build was kept before (undo, redo, or a deploy of its version).
    - `caught_up`: the offsets in the CaughtUp record. `verified`: the Verified record's event.
    - `approved`: True if the rollout is promoted once it is ready.
    - `alignment_after`: the verification uses an alignment with a higher number than this.
    - `hold`: the number of the open Held record.
    - `attempts`: the number of holds since the last approval.
    - `reason`, `hint`: why the rollout ended without serving, or lost its hold or its approval.
    - `at`, `by`: the time and the author of the record that began the rollout.
    - `asked_by`: the author of the last request (beginning, verification, approval or end).
    - `accepted`: the findings that the operator accepted at the beginning.
    - `group`: the ids of this rollout and of all rollouts that were approved together with it;
      empty if the rollout was approved alone.
    - `base`: the base of the build, if the build is a branch.
    - `tables_of`: the build whose tables an overlay serves.
    - `given_reasons`: the reasons that people gave with their requests, in order.
    - `ended_at`: the time of the record that ended the rollout, or "" while it is active.
    """

    id: int
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
    tables_of: str | None = None
    given_reasons: tuple[str, ...] = ()
    ended_at: str = ""

    @property
    def seconds(self) -> float | None:
        """Returns the duration of the rollout, or None while the rollout is active."""
        if not self.ended_at:
            return None
        begun, ended = (datetime.fromisoformat(each) for each in (self.at, self.ended_at))
        return (ended - begun).total_seconds()

    @property
    def together(self) -> tuple[int, ...]:
        """Returns the ids of the other rollouts in the group."""
        return tuple(each for each in self.group if each != self.id)

    @property
    def waits(self) -> bool:
        """Returns True if the rollout has passed its verification and waits for an approval."""
        return self.phase is Phase.READY and not self.approved

    @property
    def phase_text(self) -> str:
        """Returns the phase in words that people understand, such as `waits for a yes`."""
        if self.waits:
            return "waiting for approval"
        return "switching" if self.phase in {Phase.READY, Phase.HOLDING} else str(self.phase)

    @property
    def active(self) -> bool:
        """Returns True if the rollout has not served, has not failed, and was not abandoned."""
        return bool(TRANSITIONS[self.phase])
