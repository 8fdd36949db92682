"""The findings of a verification: checks, differences of tables, counts. Values."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Check(Struct, frozen=True):
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


class Difference(Struct, frozen=True):
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


class OutcomeCount(Struct, frozen=True):
    """The records of a topic with one outcome, counted on both sides.

    `what` is duplicate, rejected, or rejected for one reason.
    """

    topic: str
    what: str
    before: int
    after: int
