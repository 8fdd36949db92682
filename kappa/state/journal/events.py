"""The events of the journal: decisions and observations, a class per kind. Values.

Before them are the values that events contain: the findings of a verification, and the receipt of
a switch. The names of all fields are those of the records on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kappa.state.build import Base
from kappa.state.offsets import Offsets


class JournalEvent(Struct, frozen=True, tag_field="kind"):
    """An event of the journal, whose class has the event's kind as the tag."""

    @property
    def kind(self) -> str:
        """Returns the name of the event's kind, as the record on disk has the name."""
        return str(self.__struct_config__.tag)


class Check(Struct, frozen=True):
    """A declared check and its result: the number of rows that fail.

    `failing` is None if the check could not be run; `error` then gives the reason.
    """

    table: str
    condition: str
    rows: int
    failing: int | None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Returns True only if the check ran and no row failed."""
        return self.failing == 0


class Difference(Struct, frozen=True):
    """The difference of a table's served rows between two builds at equal offsets.

    `rows_before` and `rows_after` count the rows compared; None means that the side has no table of
    that name. They leave out the `unsettled` rows, whose keys a compacted topic has written again
    since (law 5).

    Appended rows have no keys. A row counts as added or removed as often as the row occurs more or
    less often.

    `changed_by_column` names the columns in which any row changed. `largest_relative_change` is
    the largest |after - before| / max(|before|, |after|) by column, so 1 is from or to nothing.

    Columns of only one side, and retyped columns (old and new type), do not count as changed rows.
    `incomparable` gives the reason if both sides have the table but no rows were compared.
    """

    table: str
    rows_before: int | None
    rows_after: int | None
    added: int = 0
    removed: int = 0
    changed: int = 0
    changed_by_column: Mapping[str, int] = field(default_factory=dict)
    largest_relative_change: Mapping[str, float] = field(default_factory=dict)
    unsettled: int = 0
    columns_gone: tuple[str, ...] = ()
    columns_new: tuple[str, ...] = ()
    columns_retyped: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    incomparable: str = ""

    @property
    def compared(self) -> bool:
        """Returns True if both sides have the table and the rows were compared."""
        return (
            self.rows_before is not None and self.rows_after is not None and not self.incomparable
        )

    @property
    def equal(self) -> bool:
        """Returns True if the rows were compared and neither rows nor columns differ."""
        return self.compared and not (
            self.added
            or self.removed
            or self.changed
            or self.columns_gone
            or self.columns_new
            or self.columns_retyped
        )

    def share(self, rows: int) -> float:
        """Returns `rows` as a share of the old rows; of an empty table any row is the whole."""
        return rows / self.rows_before if self.rows_before else float(rows > 0)


class OutcomeCount(Struct, frozen=True):
    """The records of a topic with one outcome, counted on both sides.

    `what` is duplicate, rejected, or rejected for a named reason.
    """

    topic: str
    what: str
    before: int
    after: int


class Receipt(Struct, frozen=True):
    """The proof in a promote's record.

    `live_offsets` is None for the first build of a pipeline, which had nothing to hold. `code` and
    `live_code` are the hashes of both builds' sources (`Birth.code_sha256`), between which the
    code's diff was made. `base` is the base of a branch: up to its offsets the rows are another
    build's. `tables_of` is the build below an overlay, for which nothing was replayed.
    """

    pipeline: str
    build: str
    version: str
    candidate_offsets: Offsets
    live_build: str | None
    live_offsets: Offsets | None
    checks: tuple[Check, ...] = ()
    reasons: tuple[str, ...] = ()
    first: bool = False
    differences: tuple[Difference, ...] = ()
    counts: tuple[OutcomeCount, ...] = ()
    incomparable_topics: tuple[str, ...] = ()
    code: str = ""
    live_code: str | None = None
    base: Base | None = None
    tables_of: str | None = None


class Switched(Struct, frozen=True):
    """A pipeline's part in a switch: the rollout that ends there, and the receipt."""

    rollout: int
    receipt: Receipt


class Staged(JournalEvent, frozen=True, tag="staged"):
    """A build was accepted as a candidate: a rollout begins, named by this record's number.

    With `auto_promote`, the candidate is promoted once a verification has passed; otherwise the
    rollout then waits for a PromoteAsked. `accepted` lists the obstacles that were allowed, with
    the reasons; the journal keeps the list. `base` is the base of a branch, and `tables_of` the
    build below an overlay.
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
    """A request to let a kept build serve (again): undo, redo, or a deploy of that version.

    A rollout begins here, too.
    """

    pipeline: str
    build: str
    reason: str
    accepted: tuple[str, ...] = ()


class CaughtUp(JournalEvent, frozen=True, tag="caught_up"):
    """The end of a catch-up: the candidate was aligned with the live build, or the log ended.

    Without an alignment (`alignment` is None), the candidate has reached the end that the log had
    when the candidate's tail began.
    """

    rollout: int
    offsets: Offsets
    alignment: int | None = None


class Verified(JournalEvent, frozen=True, tag="verified"):
    """A verification: the candidate was checked at a frontier of its own.

    If a live build existed, the candidate was also compared with `live_build`, at equal offsets of
    all topics but `incomparable_topics`. Of the `records` that the candidate read, `rejected` were
    rejected; None means that the number is not known.
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

    The alignment must have a number above `alignment_after`.
    """

    rollout: int
    alignment_after: int


class PromoteAsked(JournalEvent, frozen=True, tag="promote_asked"):
    """A person's request to let a ready candidate serve, after reading the verification.

    `together` are the other rollouts that the same yes is for. All of these rollouts switch in the
    same Served record, or no rollout switches.
    """

    rollout: int
    together: tuple[int, ...] = ()


class Held(JournalEvent, frozen=True, tag="held"):
    """A hold: the live build `build` publishes no frontier until a Served or Released follows.

    For an overlay, `build` is the build that folds the tables. `together` are the other rollouts
    that are promoted with this rollout. A record that ends or releases one of these rollouts ends
    this hold, too.
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
    """The whole serving map of a new generation: pipeline -> build that serves the pipeline.

    The record ends the holds. `others` are the rollouts that were promoted together with the first,
    each with a receipt. `previous_generation` is the generation that readers saw until then (None:
    nothing was served).
    """

    rollout: int
    generation: int
    serving: Mapping[str, str]
    receipt: Receipt
    others: tuple[Switched, ...] = ()
    previous_generation: int | None = None

    @property
    def switched(self) -> tuple[Switched, ...]:
        """Returns all rollouts that switched in this record, alone or promoted together."""
        return Switched(self.rollout, self.receipt), *self.others


class Abandoned(JournalEvent, frozen=True, tag="abandoned"):
    """The end of a rollout that was given up before the build served.

    The build will be retired, unless the build is kept.
    """

    rollout: int
    reason: str


class Failed(JournalEvent, frozen=True, tag="failed"):
    """The end of a rollout by itself, without serving.

    The job stopped, a check failed, or no hold was kept. `together` are the other rollouts of the
    group, if the group's switch failed.
    """

    rollout: int
    reason: str
    hint: str = ""
    together: tuple[int, ...] = ()


class Retired(JournalEvent, frozen=True, tag="retired"):
    """The end of a build, which no longer runs, and whose data may be deleted."""

    build: str


class Proved(JournalEvent, frozen=True, tag="proved"):
    """A proof: a build's log was folded again in other slices, and compared with its tables.

    The log was folded from the build's origin, or a branch's `base`, to `offsets`. `how` names the
    way of cutting slices: at random with that `seed`, evenly, or as one slice.

    `rows` were compared. `hash` is over the rows in the build's tables
    (replay/rollout/prove/row_hash.py), without the columns `left_out` (`table.column` -> why).
    `causes` may explain a difference. `views` has all maintained views, compared with their texts
    as DuckDB runs the texts over the build's tables. The record is an observation, and changes
    nothing.
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


class PipelineRetired(JournalEvent, frozen=True, tag="pipeline_retired"):
    """The end of a pipeline's service: a new generation whose serving map lacks the pipeline.

    `build` served the pipeline last. The build is kept for `kept_seconds`, so that an undo is a
    switch to this build. `names` are the tables and views that left, and `offsets` are the offsets
    that readers saw at the yes.
    """

    pipeline: str
    build: str
    generation: int
    serving: Mapping[str, str]
    names: tuple[str, ...]
    offsets: Offsets
    kept_seconds: float
    previous_generation: int | None = None

    @property
    def switched(self) -> tuple[()]:
        """The empty result: no rollout ends with this record."""
        return ()


class Paused(JournalEvent, frozen=True, tag="paused"):
    """A pause: no job of the pipeline runs, and the tables serve unchanged."""

    pipeline: str


class Resumed(JournalEvent, frozen=True, tag="resumed"):
    """The end of a pause: each job of the pipeline continues from the job's frontier."""

    pipeline: str


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
# The records that make a generation: each has the generation's whole serving map.
GenerationMade = Served | PipelineRetired
