"""A table of a build, as the build's birth certificate describes it. This module does no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from kappa.declare.folds.exactness import Exactness
from kappa.declare.folds.fold import Fold, Option
from kappa.declare.folds.registry import fold_of
from kappa.declare.options import DELETED, Thresholds
from kappa.declare.ordered_fold import PARTITION
from kappa.declare.table import Expiry

# A maintained view's own columns: the offsets that the build had folded when a row changed last,
# and the number of a row without keys among the rows that belong together.
SINCE, NUMBER = "_since", "_number"


class TableBirth(Struct, frozen=True):
    """A table of a build: its columns, keys, folds and checks.

    `columns` contains pairs of a column's name and its Spark type, including hidden columns, whose
    names begin with an underscore.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...] = ()
    # Served column -> (fold kind, input column).
    fold: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    latest: str | None = None
    checks: tuple[str, ...] = ()
    thresholds: Thresholds = field(default_factory=Thresholds)
    # Of a table that is folded by a step: the columns of the rows that the step gets.
    steps_over: tuple[tuple[str, str], ...] = ()
    # Served column -> the fold's options, if any.
    options: Mapping[str, Mapping[str, Option]] = field(default_factory=dict)
    # Served column -> the type of the values in the sketch, which the column's type hides.
    sketched: Mapping[str, str] = field(default_factory=dict)
    # Of a maintained view: the query, the tables and maintained views that the query reads,
    # and the columns by which rows belong together.
    view: str | None = None
    reads: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    # Of a table with the rows of a file: the file's SHA-256.
    file: str | None = None
    # Of a table whose rows expire.
    expiry: Expiry | None = None

    @property
    def row_keys(self) -> tuple[str, ...]:
        """Returns the names of the columns that identify a stored row.

        These are the keys. For a view without keys, they are the columns `by`, and the row's number
        among the rows with equal values in these columns. If a step folds the table, the table has
        one row per key and partition, so the column of the partition is included too; readers see
        only one of the rows of a key.
        """
        if self.keeps_partitions:
            return (*self.keys, PARTITION)
        return (*self.by, NUMBER) if self.by and not self.keys else self.keys

    @property
    def keeps_partitions(self) -> bool:
        """Returns True if a step folds the table with a separate state per key and partition.

        In a table that an older Kappa created, a step has one state per key, and the job stops if a
        key occurs in two partitions.
        """
        return bool(self.steps_over) and self.hides_rows

    @property
    def served(self) -> tuple[tuple[str, str], ...]:
        """Returns the columns that readers see, as pairs of name and Spark type."""
        return tuple(column for column in self.columns if not column[0].startswith("_"))

    @property
    def only_grows(self) -> bool:
        """Returns True if rows are only ever added to the table, and never changed or deleted."""
        return not self.row_keys and self.latest is None and self.expiry is None

    @property
    def hides_rows(self) -> bool:
        """Returns True if the table may contain rows that are hidden from readers.

        The column DELETED marks such rows.
        """
        return any(name == DELETED for name, _ in self.columns)

    @property
    def folds(self) -> dict[str, Fold]:
        """Returns the fold of each served column, by the column's name.

        Columns without a fold are left out.
        """
        return {
            name: fold_of(kind, column, self.options.get(name, {}))
            for name, (kind, column) in self.fold.items()
        }

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Returns the columns that a comparison of rows reads, as pairs of name and Spark type.

        These are the served columns, and hidden columns with the bounds of approximate values. From
        the bounds, the comparison computes by how much two approximate values may differ.
        """
        beside = {each for name, fold in self.folds.items() for each in fold.compared_columns(name)}
        return tuple(
            column for column in self.columns if column in self.served or column[0] in beside
        )

    @property
    def is_combined(self) -> bool:
        """Returns True if a fold of the table cannot be expressed by a merge statement.

        For such a table, Kappa reads the stored rows of the touched keys, computes the new rows,
        and replaces the stored rows.
        """
        return any(fold.is_combined for fold in self.folds.values())

    def exactness(self, column: str) -> Exactness:
        """Returns the exactness of a served column's values. A column without a fold is EXACT."""
        fold = self.folds.get(column)
        return Exactness.EXACT if fold is None else fold.value_exactness(column, dict(self.columns))
