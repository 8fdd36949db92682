"""The journal: numbered, append-only records of what was decided and observed, by whom.

Everything else about rollouts is a fold of it (replay/rollout/rollout.py).

A record is put if its number is free. If the number is taken, the record with that number is read.
If it is our own, as its random id shows, the put succeeded and only its answer was lost. Otherwise
another process was first, and the decision must be made again on the records that exist now. So the
journal decides every race, never a clock.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from kappa.base.clock import now
from kappa.base.failpoint import failpoint
from kappa.state.build import Base
from kappa.state.documents import Documents, NumberedRecords
from kappa.state.frontier import OffsetsField
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Staged:
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
    kind: Literal["staged"] = "staged"


@dataclass(frozen=True, slots=True)
class SwitchAsked:
    """A request that a kept build shall serve (again): undo, redo, or a deploy of its version.

    A rollout begins here too.
    """

    pipeline: str
    build: str
    reason: str
    accepted: tuple[str, ...] = ()
    kind: Literal["switch_asked"] = "switch_asked"


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The end of a catch-up: the candidate was aligned with the live build, or its log ended.

    Without an alignment (`alignment` is None) it has reached the end that the log had when its tail
    began.
    """

    rollout: int
    offsets: OffsetsField
    alignment: int | None = None
    kind: Literal["caught_up"] = "caught_up"


@dataclass(frozen=True, slots=True)
class Check:
    """One declared check and its result: the number of rows that fail it.

    `failing` is None if the check could not be run; `error` then gives the reason.
    """

    table: str
    condition: str
    rows: int
    failing: int | None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Returns True only if it ran and no row failed."""
        return self.failing == 0


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a table's served rows between two builds at equal offsets.

    `rows_before` and `rows_after` count the rows compared; None: that side has no such table. They
    leave out the `unsettled` rows, whose keys a compacted topic has written again since (law 5).

    Appended rows have no keys. Each is added or removed as often as it occurs more or less often.

    `changed_by_column` names the columns in which any row changed. `largest_relative_change` is
    |after - before| / max(|before|, |after|) at most, so 1 is from or to nothing.

    Columns of one side only, and retyped ones (old and new type), are no changed rows.
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
        """Returns True if both sides have the table and its rows were compared."""
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
        """Returns `rows` as a share of the old rows; of an empty table any row is all of it."""
        return rows / self.rows_before if self.rows_before else float(rows > 0)


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The records of a topic with one outcome, counted on both sides.

    `what` is duplicate, rejected, or rejected for one reason.
    """

    topic: str
    what: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification: the candidate was checked at one of its frontiers.

    It was also compared with the live build, if one existed: `live_build`, at equal offsets of all
    topics but `incomparable_topics`. The candidate has `rejected` so many of the `records` that it
    read (None: not known).
    """

    rollout: int
    verdict: Literal["passed", "failed", "inconclusive"]
    offsets: OffsetsField
    checks: tuple[Check, ...] = ()
    reason: str = ""
    live_build: str | None = None
    differences: tuple[Difference, ...] = ()
    counts: tuple[OutcomeCount, ...] = ()
    incomparable_topics: tuple[str, ...] = ()
    rejected: int | None = None
    records: int | None = None
    kind: Literal["verified"] = "verified"


@dataclass(frozen=True, slots=True)
class VerifyAsked:
    """A request to verify a ready candidate once more.

    The alignment must be later than number `alignment_after`.
    """

    rollout: int
    alignment_after: int
    kind: Literal["verify_asked"] = "verify_asked"


@dataclass(frozen=True, slots=True)
class PromoteAsked:
    """A person's request that a ready candidate shall serve, after reading its verification.

    `together`: the other rollouts that the same yes is for. All of them switch in one Served
    record, or none does.
    """

    rollout: int
    together: tuple[int, ...] = ()
    kind: Literal["promote_asked"] = "promote_asked"


@dataclass(frozen=True, slots=True)
class Held:
    """A hold: the live build `build` publishes no frontier until a Served or Released follows.

    Of an overlay, it is the build that folds its tables.

    `together`: the other rollouts that are promoted with this one. A record that ends or releases
    one of them ends this hold too.
    """

    rollout: int
    build: str
    attempt: int
    together: tuple[int, ...] = ()
    kind: Literal["held"] = "held"


@dataclass(frozen=True, slots=True)
class Released:
    """The end of hold number `hold` without a switch: the live job itself had waited too long."""

    rollout: int
    build: str
    hold: int
    reason: str
    kind: Literal["released"] = "released"


@dataclass(frozen=True, slots=True)
class Receipt:
    """The proof in a promote's record.

    `live_offsets` is None for the first build of a pipeline, which had nothing to hold. `code` and
    `live_code` are the hashes of both builds' sources (`Birth.code_sha256`), between which the
    code's diff was made. `base` is the base of a branch: up to its offsets the rows are another
    build's. `tables_of` is the build that an overlay is of: nothing was replayed.
    """

    pipeline: str
    build: str
    version: str
    candidate_offsets: OffsetsField
    live_build: str | None
    live_offsets: OffsetsField | None
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


@dataclass(frozen=True, slots=True)
class Switched:
    """One pipeline's part in a switch: the rollout that ends with it, and its receipt."""

    rollout: int
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Served:
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
    kind: Literal["served"] = "served"

    @property
    def switched(self) -> tuple[Switched, ...]:
        """Returns all that switched in this record: one, or those that were promoted together."""
        return Switched(self.rollout, self.receipt), *self.others


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The end of a rollout that was given up before it served.

    Its build will be retired, unless it is one that is kept.
    """

    rollout: int
    reason: str
    kind: Literal["abandoned"] = "abandoned"


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a rollout by itself without serving.

    The job stopped, a check failed, or no hold was kept. `together`: the others of its group, if
    their switch failed.
    """

    rollout: int
    reason: str
    hint: str = ""
    together: tuple[int, ...] = ()
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Retired:
    """The end of a build: it no longer runs and its data may be deleted."""

    build: str
    kind: Literal["retired"] = "retired"


@dataclass(frozen=True, slots=True)
class Proved:
    """A proof: a build's log was folded again in other slices, and compared with its tables.

    It was folded from the build's origin, or a branch's `base`, to `offsets`. It was cut as `how`
    names: at random with that `seed`, evenly, or as one slice.

    `rows` were compared. `hash` is that of the rows in the build's tables
    (replay/prove/row_hash.py), but for the columns `left_out` (`table.column` -> why). `causes` may
    explain a difference. The record is an observation, and changes nothing.
    """

    pipeline: str
    build: str
    offsets: OffsetsField
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
    kind: Literal["proved"] = "proved"


Event = Annotated[
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
    | Proved,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One line of the journal."""

    number: int
    event: Event
    at: str
    by: str
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    format: int = 1


_RECORD = Documents(JournalRecord)


class Journal:
    """The journal under one root."""

    def __init__(self, store: Store) -> None:
        self._records = NumberedRecords(
            store,
            "journal",
            _RECORD,
            "journal record {}",
            hint="it may come from a newer version of Kappa",
        )

    def append(self, number: int, event: Event) -> JournalRecord | None:
        """Puts record `number`, which must follow the last one read.

        Returns None if another process's record has that number.
        """
        record = JournalRecord(number=number, event=event, at=now(), by=whoami())
        failpoint(f"journal.before_{event.kind}")
        put = self._records.put(number, record)
        failpoint(f"journal.after_{event.kind}")
        if put:
            return record
        taken = self.get(number)
        return record if taken is not None and taken.id == record.id else None

    def get(self, number: int) -> JournalRecord | None:
        """Returns record `number`, or None if the journal ends before it."""
        return self._records.get(number)

    def after(self, number: int) -> Iterator[JournalRecord]:
        """Yields the records that follow `number`, in order; `after(0)` is the whole journal."""
        for _, record in self._records.after(number):
            yield record

    def last_served(self) -> tuple[int, JournalRecord | None]:
        """Returns the journal's last number, and the newest Served record.

        The record is None if nothing has served yet.
        """
        numbers = self._records.numbers()
        last = numbers[-1] if numbers else 0
        while self.get(last + 1) is not None:
            last += 1
        for number in range(last, 0, -1):
            record = self.get(number)
            if record is not None and isinstance(record.event, Served):
                return last, record
        return last, None


def as_document(record: JournalRecord) -> dict[str, Any]:
    """Returns a record as the journal keeps it."""
    document: dict[str, Any] = _RECORD.plain(record)
    return document


def whoami() -> str:
    """Returns the acting user, as `user@host`; KAPPA_BY overrides it (CI jobs, bots)."""
    given = os.environ.get("KAPPA_BY")
    if given:
        return given
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
