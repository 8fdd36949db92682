"""The events of the journal: decisions and observations, a class per kind. Values.

The names of their fields are those of the records on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import field

from kappa.state.build import Base
from kappa.state.journal.kinds import JournalEvent
from kappa.state.journal.receipt import Receipt, Switched
from kappa.state.journal.service import Paused, PipelineRetired, Resumed
from kappa.state.journal.verification import Check, Difference, OutcomeCount
from kappa.state.offsets import Offsets


class Staged(JournalEvent, frozen=True, tag="staged"):
    """A build was accepted as a candidate: a rollout begins, named by this record's number.

    `auto_promote`: once its verification has passed it is promoted; otherwise it then waits for a
    PromoteAsked. `accepted` lists the obstacles that were let through, and why. It is kept as long
    as the journal is. `base` is the base of a branch, `tables_of` the build that an overlay is of.
    """

    pipeline: str
    build: str
    version: str
    reasons: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    auto_promote: bool = True
    base: Base | None = None
    tables_of: str | None = None


class SwitchAsked(JournalEvent, frozen=True, tag="switch_asked"):
    """A request that a kept build shall serve (again): undo, redo, or a deploy of its version.

    A rollout begins here too.
    """

    pipeline: str
    build: str
    reason: str
    accepted: tuple[str, ...] = ()


class CaughtUp(JournalEvent, frozen=True, tag="caught_up"):
    """The end of a catch-up: the candidate was aligned with the live build, or its log ended.

    Without an alignment (`alignment` is None) it has reached the end that the log had when its tail
    began.
    """

    rollout: int
    offsets: Offsets
    alignment: int | None = None


class Verified(JournalEvent, frozen=True, tag="verified"):
    """A verification: the candidate was checked at one of its frontiers.

    It was also compared with the live build, if one existed: `live_build`, at equal offsets of all
    topics but `incomparable_topics`. The candidate has `rejected` so many of the `records` that it
    read (None: not known).
    """

    rollout: int
    verdict: Literal["passed", "failed", "inconclusive"]
    offsets: Offsets
    checks: tuple[Check, ...] = ()
    reason: str = ""
    live_build: str | None = None
    differences: tuple[Difference, ...] = ()
    counts: tuple[OutcomeCount, ...] = ()
    incomparable_topics: tuple[str, ...] = ()
    rejected: int | None = None
    records: int | None = None


class VerifyAsked(JournalEvent, frozen=True, tag="verify_asked"):
    """A request to verify a ready candidate once more.

    The alignment must be later than number `alignment_after`.
    """

    rollout: int
    alignment_after: int


class PromoteAsked(JournalEvent, frozen=True, tag="promote_asked"):
    """A person's request that a ready candidate shall serve, after reading its verification.

    `together`: the other rollouts that the same yes is for. All of them switch in one Served
    record, or none does.
    """

    rollout: int
    together: tuple[int, ...] = ()


class Held(JournalEvent, frozen=True, tag="held"):
    """A hold: the live build `build` publishes no frontier until a Served or Released follows.

    Of an overlay, it is the build that folds its tables.

    `together`: the other rollouts that are promoted with this one. A record that ends or releases
    one of them ends this hold too.
    """

    rollout: int
    build: str
    attempt: int
    together: tuple[int, ...] = ()


class Released(JournalEvent, frozen=True, tag="released"):
    """The end of hold number `hold` without a switch: the live job itself had waited too long."""

    rollout: int
    build: str
    hold: int
    reason: str


class Served(JournalEvent, frozen=True, tag="served"):
    """The whole serving map of a new generation: pipeline -> build that answers for its tables.

    It ends the holds. `others` are the rollouts that were promoted together with the first, each
    with its receipt. `previous_generation` is the one that readers saw until then (None: nothing
    was served).
    """

    rollout: int
    generation: int
    serving: Mapping[str, str]
    receipt: Receipt
    others: tuple[Switched, ...] = ()
    previous_generation: int | None = None

    @property
    def switched(self) -> tuple[Switched, ...]:
        """Returns all that switched in this record: one, or those that were promoted together."""
        return Switched(self.rollout, self.receipt), *self.others


class Abandoned(JournalEvent, frozen=True, tag="abandoned"):
    """The end of a rollout that was given up before it served.

    Its build will be retired, unless it is one that is kept.
    """

    rollout: int
    reason: str


class Failed(JournalEvent, frozen=True, tag="failed"):
    """The end of a rollout by itself without serving.

    The job stopped, a check failed, or no hold was kept. `together`: the others of its group, if
    their switch failed.
    """

    rollout: int
    reason: str
    hint: str = ""
    together: tuple[int, ...] = ()


class Retired(JournalEvent, frozen=True, tag="retired"):
    """The end of a build: it no longer runs and its data may be deleted."""

    build: str


class Proved(JournalEvent, frozen=True, tag="proved"):
    """A proof: a build's log was folded again in other slices, and compared with its tables.

    It was folded from the build's origin, or a branch's `base`, to `offsets`. It was cut as `how`
    names: at random with that `seed`, evenly, or as one slice.

    `rows` were compared. `hash` is that of the rows in the build's tables
    (replay/rollout/prove/row_hash.py), but for the columns `left_out` (`table.column` -> why).
    `causes` may explain a difference. `views` have all maintained views, compared with their texts
    as DuckDB runs these over the build's tables. The record is an observation, and changes nothing.
    """

    pipeline: str
    build: str
    offsets: Offsets
    how: Literal["random", "even", "one"]
    slices: int
    seed: int | None
    equal: bool
    rows: int
    hash: str
    differences: tuple[Difference, ...] = ()
    counts: tuple[OutcomeCount, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    base: Base | None = None
    views: tuple[Check, ...] = ()


Event = (
    Staged
    | SwitchAsked
    | CaughtUp
    | Verified
    | VerifyAsked
    | PromoteAsked
    | Held
    | Released
    | Served
    | Abandoned
    | Failed
    | Retired
    | Proved
    | PipelineRetired
    | Paused
    | Resumed
)
# The records that make a generation: each has the whole serving map of it.
GenerationMade = Served | PipelineRetired
