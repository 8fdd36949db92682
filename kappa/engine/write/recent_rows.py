"""Recent rows: contributions that wait next to a large table, folded by key.

The cost of a merge grows with the number of rows in the table: merging 2,000 random keys takes
seconds if the table has 10 million rows, and some 50 ms if it has 100,000 rows. So next to a table
of many rows there are two small tables of contributions, and a slice is merged into one of the
small tables. When this small table is full, slices are merged into the other small table, and a
thread drains the full small table into the large table by the same merge. Readers fold all three
tables (merge on read), at the versions that a frontier names. So the rows that readers see are the
same before, during and after a drain.

A drain makes two commits: one to the large table, and one that empties the small table. A frontier
names the versions of both commits or of neither. After a crash between the two commits, the first
commit is reverted. If no merge can express the folds of a table, the table has no recent rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
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
from kappa.tables.merge import contributions_of, merge_for
from kappa.tables.stored_table import StoredTable, ensure_table, open_table
from kappa.tables.versions import files

# A recent table is full at this part of the table's rows, within these bounds. Reads then nearly
# always cost at most 5 times as much (docs/performance.md), and a drain rewrites this many rows per
# waiting row.
_SHARE, _LEAST, _MOST = 300, 10_000, 100_000
# After this many drains the next drain waits for upkeep: each drain may leave all old files of the
# table behind.
_COPIES = 4


class RecentRows:
    """The recent rows of one table of a build, for use by the thread that folds slices.

    A second thread drains recent rows into the table. The first drain starts the second thread.
    """

    def __init__(
        self,
        birth: TableBirth,
        table: StoredTable,
        paths: Mapping[str, str],
        *,
        large_rows: int | None,
    ) -> None:
        """Opens the two tables of recent rows, if they exist. `paths` maps their names to paths.

        A table with at least `large_rows` rows is large. If `large_rows` is None, no table is
        large.
        """
        self._birth = birth
        self._table = table
        self._large_rows = large_rows
        self._into = merge_for(birth, quoted)
        self._limits = sum_limits(birth)
        self._parts = tuple(
            RecentPart(name, path, contributions_of(birth), self._limits)
            for name, path in paths.items()
        )
        self._draining: tuple[RecentPart, Future[None]] | None = None
        self._thread: ThreadPoolExecutor | None = None
        # Since the last upkeep: the number of drains, and whether contributions were merged.
        self._drains = 0
        self._fed = True
        # The number of the table's rows, and the version at which the rows were counted.
        self._rows_at_version = (-1, 0)
        # The part that was fed last is fed again; the other part is drained if it has rows.
        self._active = max(self._parts, key=lambda part: (part.rows > 0, part.fed_at))

    @property
    def holds(self) -> bool:
        """Returns True while rows wait in a table of recent rows.

        Meanwhile only drains and maintenance commit to the large table.
        """
        return any(part.rows for part in self._parts)

    @property
    def wants_upkeep(self) -> bool:
        """Returns True if a full table of recent rows must wait for maintenance to be drained.

        This is the case after four drains: each drain may leave all old files of the large table on
        the disk, and only maintenance deletes these files.
        """
        return self._draining is None and self._drains >= _COPIES and self._is_full()

    def stored(self) -> Iterator[tuple[str, StoredTable]]:
        """Yields pairs (name, table) for the tables of recent rows that exist."""
        yield from ((part.name, part.stored) for part in self._parts if part.stored is not None)

    def at_rest(self) -> Iterator[tuple[str, StoredTable]]:
        """Yields pairs (name, table) for the stored tables that no drain reads or writes.

        The two tables of a running drain are left out. The reported versions of these two tables do
        not change until the drain has ended.
        """
        drained = () if self._draining is None else (self._table, self._draining[0].stored)
        yield from (
            (name, stored)
            for name, stored in ((self._birth.name, self._table), *self.stored())
            if stored not in drained
        )

    def takes(self, rows: pa.Table) -> bool:
        """Returns True if the contributions `rows` may wait next to the table.

        The table must be large, the contributions must be few, and no sum may exceed its limit.
        """
        if (
            self._large_rows is None
            or self._rows() < self._large_rows
            or rows.num_rows > self._full()
        ):
            return False
        facts = self._table.facts()
        return all(
            sum(
                (
                    greatest(facts, name),
                    *(part.greatest[name] for part in self._parts),
                    greatest_in(rows, name),
                )
            )
            <= limit
            for name, limit in self._limits.items()
        )

    def merge(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> None:
        """Folds a slice's contributions into the recent rows, and begins a drain if one is due.

        If there are no contributions, `rows` is None.
        """
        self._note_drained()
        self._active.ensure(self._table.mark())
        self._active.merge(rows, mark, guard)
        self._fed |= rows is not None
        if self._drains < _COPIES:
            self._drain_if(due=self._is_full())

    def drain(self) -> None:
        """Drains all waiting rows into the table, and returns when the drains have ended."""
        while self.holds:
            self._drain_if(due=True)
            if self._draining is not None:
                wait([self._draining[1]])
            self._note_drained()

    def begin_upkeep(self) -> None:
        """Finishes a drain that has ended, and begins the next drain if one is due.

        Maintenance calls this method first, and then works on the tables of `at_rest`. A drain is
        due if nothing was merged into the recent rows since the last maintenance.
        """
        self._note_drained()
        self._drain_if(due=not self._fed)
        self._fed = False
        if self._draining is None:
            self._drains = 0

    def close(self) -> None:
        """Waits until a running drain has ended.

        A drain may commit only under the build's lock.
        """
        if self._thread is not None:
            self._thread.shutdown()

    def _note_drained(self) -> None:
        """If a drain has ended, empties the table of recent rows that was drained.

        Raises the drain's error if the drain has failed.
        """
        if self._draining is not None and self._draining[1].done():
            part, ended = self._draining
            ended.result()
            self._table.refresh()
            part.empty()
            # Last: after a failure no other drain begins, and the next call raises the error again.
            self._draining = None

    def _drain_if(self, *, due: bool) -> None:
        """Begins a drain, unless a drain is running.

        Slices are merged into one of the two tables of recent rows. If the other table still
        contains rows of an earlier job, the other table is drained. Otherwise, the table into which
        slices are merged is drained if `due` is True.
        """
        if self._draining is not None:
            return
        fed, other = self._active, next(part for part in self._parts if part is not self._active)
        if due and not other.rows:
            self._active, other = other, fed
        if other.rows:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="drain")
            self._drains += 1
            self._draining = other, self._thread.submit(self._drain, other)

    def _drain(self, part: RecentPart) -> None:
        # A separate handle: meanwhile the other handle gives the version for readers.
        table = open_table(self._table.path, self._table.keys)
        assert table is not None
        assert part.stored is not None
        failpoint("recent.before_drain")
        table.merge(part.read(), self._into, part.stored.mark(), None)
        failpoint("recent.after_drain")

    def _is_full(self) -> bool:
        return self._active.rows >= self._full()

    def _full(self) -> int:
        return min(max(self._rows() // _SHARE, _LEAST), _MOST)

    def _rows(self) -> int:
        if self._rows_at_version[0] != self._table.version:
            self._rows_at_version = self._table.version, self._table.rows()
        return self._rows_at_version[1]


class RecentPart:
    """One of the two small tables of contributions next to a table, with one row per key."""

    def __init__(self, name: str, path: str, birth: TableBirth, limited: Iterable[str]) -> None:
        """Opens the table of recent rows if it exists.

        `limited` names the columns that have a limit in the result of `sum_limits`.
        """
        self.name = name
        self._path = path
        self._birth = birth
        self._into = merge_for(birth, quoted)
        self._schema = arrow_schema(birth.columns)
        self.stored = open_table(path, birth.row_keys)
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
        """Returns the place of the last slice that was merged into this table, as three numbers.

        A later slice has a greater place. If the table does not exist, the place is less than the
        place of any slice.
        """
        return (-1, -1, -1) if self.stored is None else self.stored.mark().place

    def ensure(self, mark: Mark) -> None:
        """Creates the table without rows and with the given mark, if the table does not exist."""
        if self.stored is None:
            self.stored = ensure_table(
                self._path, self._birth.columns, mark, keys=self._birth.row_keys
            )

    def merge(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> None:
        """Folds a slice's contributions into the table.

        If there are no contributions, `rows` is None, and only the mark is committed.
        """
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
        """Deletes all rows of the table. The mark of the table does not change."""
        assert self.stored is not None
        failpoint("recent.before_empty")
        self.stored.empty(self.stored.mark())
        failpoint("recent.after_empty")
        self.rows, self.greatest = 0, dict.fromkeys(self.greatest, 0)


def sum_limits(birth: TableBirth) -> dict[str, Any]:
    """Returns the maximum absolute value for each sum that may overflow its column, by name.

    Only builds that were made before Kappa stored sums in wider types have such sums
    (kappa/declare/folds/sums.py).
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
    """Returns the greatest absolute value in a column, or 0 if the column has no values."""
    bounds = pc.min_max(rows.column(column))
    return max(
        (abs(end) for end in (bounds["min"].as_py(), bounds["max"].as_py()) if end is not None),
        default=0,
    )


# A number that can be added to whole numbers and decimals.
_UNKNOWN = Number("Infinity")


def greatest(facts: pa.Table, column: str) -> Any:
    """Returns the greatest absolute value in a column of a table, from its files' statistics.

    `facts` contains the statistics of the files. Returns infinity if a file has no statistics for
    the column.
    """

    def of_files(what: str) -> list[Any]:
        return (
            facts.column(f"{what}.{column}").to_pylist()
            if f"{what}.{column}" in facts.column_names
            else [None] * facts.num_rows
        )

    every = zip(
        facts.column("num_records").to_pylist(),
        of_files("null_count"),
        of_files("min"),
        of_files("max"),
        strict=True,
    )
    return max(
        (
            0 if rows == nulls else _UNKNOWN if least is None or most is None else max(-least, most)
            for rows, nulls, least, most in every
        ),
        default=0,
    )
