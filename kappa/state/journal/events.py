"""The events of the journal: decisions and observations, with one class per kind.

The first classes are values that events contain: the results of a verification, and the receipt of
a switch. The fields have the same names as in the stored records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from kappa.state.build import Base
from kappa.state.offsets import Offsets


class JournalEvent(Struct, frozen=True, tag_field="kind"):
    """The content of a journal record, a decision or an observation.

    Each kind of content has its own class.
    """

    @property
    def kind(self) -> str:
        """Returns the name of the event's kind, as in the stored record."""
        return str(self.__struct_config__.tag)


class Check(Struct, frozen=True):
    """A check of a table or a maintained view, and the check's result for one build.

    `rows` is the number of checked rows, and `failing` is the number of rows that do not pass.
    `failing` is None if the check could not be run; then `error` contains the reason.
    """

    table: str
    condition: str
    rows: int
    failing: int | None
    error: str = ""
    columns: tuple[str, ...] = ()
    samples: tuple[tuple[str | None, ...], ...] = ()

    @property
    def passed(self) -> bool:
        """Returns True if the check was run and all rows passed."""
        return self.failing == 0


class Difference(Struct, frozen=True):
    """The difference between the served rows of a table in two builds, at equal offsets.

    The build *before* is the live build, and the build *after* is the candidate. `rows_before` and
    `rows_after` are the numbers of compared rows, or None if that build has no table of this name.
    `unsettled` is the number of rows that are not compared: their keys come from a compacted topic
    that contains later records of these keys, after the compared offsets. One of the builds may
    have read a record that compaction had removed before the other build could read it.

    Appended rows have no keys. If such a row occurs more often in one build, each additional
    occurrence counts as an added or a removed row.

    `changed_by_column` counts, for each column, the rows whose value has changed.
    `largest_relative_change` is the largest |after - before| / max(|before|, |after|) by column; it
    is 1 for a change from zero or to zero. If a column exists in only one build, or has different
    types in the two builds (`columns_retyped`: old and new type), rows do not count as changed
    because of this column. `incomparable` contains the reason if both builds have the table, but
    the rows were not compared.
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
        """Returns True if both builds have the table, and their rows were compared."""
        return (
            self.rows_before is not None and self.rows_after is not None and not self.incomparable
        )

    @property
    def equal(self) -> bool:
        """Returns True if the rows were compared, and neither rows nor columns differ."""
        return self.compared and not (
            self.added
            or self.removed
            or self.changed
            or self.columns_gone
            or self.columns_new
            or self.columns_retyped
        )

    def share(self, rows: int) -> float:
        """Returns `rows` as a share of the compared rows of the live build (`rows_before`).

        If there were no such rows, returns 1 if `rows` is greater than 0, otherwise 0.
        """
        return rows / self.rows_before if self.rows_before else float(rows > 0)


class OutcomeCount(Struct, frozen=True):
    """The number of a topic's records with one outcome, in the live build and in the candidate.

    `what` is the outcome: duplicate, rejected, or rejected for a named reason. `before` is the
    number in the live build, and `after` the number in the candidate.
    """

    topic: str
    what: str
    before: int
    after: int


class Receipt(Struct, frozen=True):
    """The receipt of a promote: the reasons and results because of which a build was promoted.

    `live_offsets` is None for the first build of a pipeline, since there was no live build to hold.
    `code` and `live_code` are the hashes of both builds' sources (`Birth.code_sha256`); the
    receipt's code diff compares these sources. `base` is the base of a branch: another build has
    computed the rows up to the offsets of the base. `tables_of` is the build below an overlay; an
    overlay needs no replay.
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
    """One pipeline's part in a switch: the rollout that ends with the switch, and the receipt."""

    rollout: int
    receipt: Receipt


class Staged(JournalEvent, frozen=True, tag="staged"):
    """The record that accepts a build as a candidate. It begins a rollout.

    The rollout's id is the number of this record. With `auto_promote`, the candidate is promoted as
    soon as a verification has passed. Otherwise the rollout then waits for a PromoteAsked.
    `accepted` lists the findings of the plan that a person allowed, with the reasons. `base` is the
    base of a branch, and `tables_of` is the build below an overlay.
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
    """A request to let a kept build serve again: by an undo, a redo, or a deploy of its version.

    This record also begins a rollout.
    """

    pipeline: str
    build: str
    reason: str
    accepted: tuple[str, ...] = ()


class CaughtUp(JournalEvent, frozen=True, tag="caught_up"):
    """The end of a catch-up: the candidate has reached the live build, or the end of the log.

    `alignment` is the number of the alignment with the live build. `alignment` is None if there is
    no such alignment; then the candidate has reached the offsets at which the topics ended when the
    candidate's tail began.
    """

    rollout: int
    offsets: Offsets
    alignment: int | None = None


class Verified(JournalEvent, frozen=True, tag="verified"):
    """The result of a verification: the candidate was checked at one of its own frontiers.

    If a build was live, the candidate was also compared with that build (`live_build`), at equal
    offsets of all topics except `incomparable_topics`. The candidate read `records` records, and
    rejected `rejected` of them. Both numbers are None if they are not known.
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
    """A person's request to verify a ready candidate again.

    The verification must use an alignment whose number is greater than `alignment_after`.
    """

    rollout: int
    alignment_after: int


class PromoteAsked(JournalEvent, frozen=True, tag="promote_asked"):
    """A person's request to promote a ready candidate, after reading the verification.

    `together` contains the other rollouts that the same request promotes. Either all of these
    rollouts switch in the same Served record, or none switches.
    """

    rollout: int
    together: tuple[int, ...] = ()


class Held(JournalEvent, frozen=True, tag="held"):
    """The record of a hold: the live build `build` publishes no frontier until the hold ends.

    The hold ends with a Served or a Released record. For an overlay, `build` is the build that
    folds the tables. `together` contains the other rollouts that are promoted together with this
    one. If a record ends or releases one of these rollouts, this hold ends too.
    """

    rollout: int
    build: str
    attempt: int
    together: tuple[int, ...] = ()


class Released(JournalEvent, frozen=True, tag="released"):
    """The end of the hold number `hold` without a switch.

    The hold ends because the live build's job had waited too long.
    """

    rollout: int
    build: str
    hold: int
    reason: str


class Served(JournalEvent, frozen=True, tag="served"):
    """The record of a switch, which begins a new generation.

    `serving` is the whole serving map of this generation: pipeline -> build. The record ends the
    holds of the switched rollouts. `others` are the rollouts that were promoted together with
    `rollout`, each with its receipt. `previous_generation` is the generation that readers saw
    before, or None if nothing was served.
    """

    rollout: int
    generation: int
    serving: Mapping[str, str]
    receipt: Receipt
    others: tuple[Switched, ...] = ()
    previous_generation: int | None = None

    @property
    def switched(self) -> tuple[Switched, ...]:
        """Returns all rollouts that switch in this record, each with its receipt."""
        return Switched(self.rollout, self.receipt), *self.others


class Abandoned(JournalEvent, frozen=True, tag="abandoned"):
    """The end of a rollout that a person abandoned before its build served.

    The build will be retired, unless it is kept for another reason.
    """

    rollout: int
    reason: str


class Failed(JournalEvent, frozen=True, tag="failed"):
    """The failure of a rollout: the rollout ends, and its build does not serve.

    For example, the job stopped, a check failed, or the candidate did not reach the live build
    while the live build was held. If the switch of a group failed, `together` contains the other
    rollouts of the group.
    """

    rollout: int
    reason: str
    hint: str = ""
    together: tuple[int, ...] = ()


class Retired(JournalEvent, frozen=True, tag="retired"):
    """The retirement of a build: the build no longer runs, and its data may be deleted."""

    build: str


class Proved(JournalEvent, frozen=True, tag="proved"):
    """The result of a proof: a build's log was folded again, and the rows were compared.

    The log was folded from the build's origin, or from the `base` of a branch, to `offsets`. `how`
    is the way in which slices were cut: at random with `seed`, evenly, or as one slice. `rows` rows
    were compared with the rows in the build's tables. `hash` is a hash of the rows in the build's
    tables (replay/rollout/prove/row_hash.py computes it), without the columns in `left_out`
    (`table.column` -> reason). `causes` are possible reasons for a difference. `views` contains the
    result for each maintained view: its rows were compared with the result of its query, which
    DuckDB ran over the build's tables. The record is an observation, and changes nothing.
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
    """The retirement of a pipeline, which begins a new generation without the pipeline.

    `serving` is the new serving map. `build` is the build that served the pipeline last. This build
    is kept for `kept_seconds`, so that an undo can switch back to it. `names` contains the tables
    and views that are no longer served. `offsets` are the offsets that readers saw when a person
    confirmed the retirement.
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
        """Returns an empty tuple, since no rollout ends with this record."""
        return ()


class Paused(JournalEvent, frozen=True, tag="paused"):
    """A pause: no job of the pipeline runs, and its tables are served unchanged."""

    pipeline: str


class Resumed(JournalEvent, frozen=True, tag="resumed"):
    """The end of a pause: each job of the pipeline continues from its frontier."""

    pipeline: str


class RedriveAsked(JournalEvent, frozen=True, tag="redrive_asked"):
    """A request to produce corrected rejects of a pipeline again. It changes no build.

    `records` maps each topic to the number of records. The record is appended before the records
    are produced.
    """

    pipeline: str
    records: Mapping[str, int]


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
    | RedriveAsked
)
# The records that make a generation: each has the generation's whole serving map.
GenerationMade = Served | PipelineRetired
