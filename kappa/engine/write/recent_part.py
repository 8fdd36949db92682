"""A recent table beside a large table, and the bounds of sums.

Each large table has two recent tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.errors import unreadable
from kappa.base.failpoint import failpoint
from kappa.base.sql import quoted
from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import Decimal, parse_type
from kappa.state.files.address import arrow_source
from kappa.state.mark import Mark
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.merge import merge_for
from kappa.tables.stored_table import ensure_table, open_table
from kappa.tables.versions import files


class RecentPart:
    """A recent table of contributions, with one row per key."""

    def __init__(self, name: str, path: str, birth: TableBirth, limited: Iterable[str]) -> None:
        """Opens an existing table. `limited` are the columns of `sum_limits`."""
        self.name = name
        self._path = path
        self._birth = birth
        self._into = merge_for(birth, quoted)
        self._schema = arrow_schema(birth.columns)
        self.stored = open_table(path)
        self.rows = 0
        self.greatest = dict.fromkeys(limited, 0)
        if self.stored is not None:
            held = self.read()
            self.rows, self.greatest = (
                held.num_rows,
                {name: greatest_in(held, name) for name in self.greatest},
            )

    @property
    def fed_at(self) -> tuple[int, int, int]:
        """Returns the place of the table's last slice.

        The greater place tells which of the two tables was fed later.
        """
        return (-1, -1, -1) if self.stored is None else self.stored.mark().place

    def ensure(self, mark: Mark) -> None:
        """Makes the table, empty and with this mark, if missing."""
        if self.stored is None:
            self.stored = ensure_table(self._path, self._birth.columns, mark)

    def merge(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> None:
        """Folds a slice's contributions, if any, into the table."""
        assert self.stored is not None
        if rows is None:
            self.stored.commit_nothing(mark, guard)
            return
        self.stored.merge(rows, self._into, mark, guard)
        self.rows = self.stored.rows()
        # An upper bound for every key: the sum of a key's contributions is within the sum of the
        # greatest contributions.
        self.greatest = {
            name: most + greatest_in(rows, name) for name, most in self.greatest.items()
        }

    def read(self) -> pa.Table:
        """Returns all rows of the table. Raises Damaged if a file cannot be read."""
        assert self.stored is not None
        held = [self._schema.empty_table()]
        for path in files(self._path, self.stored.version, None):
            try:
                rows = pq.ParquetFile(arrow_source(path), pre_buffer=True).read()
                held.append(rows.select(self._schema.names).cast(self._schema))
            except (OSError, pa.ArrowInvalid) as error:
                raise unreadable(
                    f"file {path} cannot be read, and contributions to table {self._birth.name} "
                    f"wait in it: {error}",
                    error,
                    hint="kappa replay makes a new build of it",
                ) from error
        return pa.concat_tables(held)

    def empty(self) -> None:
        """Removes all rows; the mark stays."""
        assert self.stored is not None
        failpoint("recent.before_empty")
        self.stored.empty(self.stored.mark())
        failpoint("recent.after_empty")
        self.rows, self.greatest = 0, dict.fromkeys(self.greatest, 0)


def sum_limits(birth: TableBirth) -> dict[str, Any]:
    """Returns the greatest allowed amount for each sum that may overflow its column.

    Only builds that are older than wide totals have these sums (kappa/declare/folds/sums.py).
    """
    kinds = dict(birth.columns)
    narrow = (each for name, fold in birth.folds.items() for each in fold.narrow_sums(name, kinds))
    # Half of the column's range: statistics of decimals in a file are rounded.
    limits: dict[str, Any] = {}
    for name in narrow:
        match parse_type(kinds[name]):
            case Decimal(precision=precision, scale=scale):
                limits[name] = Number(10) ** (precision - scale) / 2
            case _:
                limits[name] = 2**62
    return limits


def greatest_in(rows: pa.Table, column: str) -> Any:
    """Returns the greatest absolute amount in a column of rows."""
    bounds = pc.min_max(rows.column(column))
    return max(
        (abs(end) for end in (bounds["min"].as_py(), bounds["max"].as_py()) if end is not None),
        default=0,
    )
