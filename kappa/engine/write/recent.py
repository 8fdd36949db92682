"""Recent rows: what slices contribute to a large table waits beside it, folded by key, until it is drained into the table (merge on read).

A merge costs what its table weighs: 2,000 keys at random into 10 million rows take seconds, into 100,000 some 50 ms. So beside a table
of many rows lie two small ones, of contributions (kappa/tables/merge.py), and a slice is merged into one of them. When that is full the
other one takes over, and a thread drains the full one into the table by the same merge. Readers fold all three (serving/query/query.py), at
the versions that a frontier names together, so they see the same rows before, while, and after.

Each commit to the table that drains says which version of which recent table it took. So a crash between that commit and the
emptying is known by what the table's newest commit says. Not for tables whose folds no merge can say: their rows are read each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from decimal import Decimal as Number
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.errors import Damaged
from kappa.base.failpoint import failpoint
from kappa.base.sql import quoted
from kappa.state.build import TableBirth
from kappa.state.mark import Mark
from kappa.tables.delta import Guard, StoredTable, ensure_table, files, open_table
from kappa.tables.merge import contributions_of, merge_for
from kappa.values.arrow import arrow_schema
from kappa.values.columns import Decimal, Scalar, parse_type

# A recent table is full at this part of its table's rows, within these bounds: reading is then nearly always at most five times as
# dear (docs/performance.md), and so many of the table's rows are written again for each that waited.
_SHARE, _LEAST, _MOST = 300, 10_000, 100_000
# After so many drains the next one waits for upkeep: each may have left all of the table's files behind.
_COPIES = 4


class RecentRows:
    """The recent rows of one table of a build. Used by the thread that folds; what drains is a thread of its own, begun by the first merge or upkeep."""

    def __init__(
        self,
        birth: TableBirth,
        table: StoredTable,
        paths: Mapping[str, str],
        *,
        large_rows: int | None,
    ) -> None:
        """`paths`: the recent tables, by name. They are opened where they are there; a table is large from so many rows on, or never."""
        self._birth = birth
        self._table = table
        self._large_rows = large_rows
        self._into = merge_for(birth, quoted)
        self._parts = tuple(
            _Part(name, path, contributions_of(birth)) for name, path in paths.items()
        )
        self._draining: tuple[_Part, Future[None]] | None = None
        self._thread: ThreadPoolExecutor | None = None
        # Since the last upkeep: how often it was drained, and whether it was fed.
        self._drains = 0
        self._fed = True
        # The table's rows, by the version that they were counted at.
        self._counted = (-1, 0)
        drained = table.drained()
        for part in self._parts:
            if part.token == drained:
                part.empty()
        # The one that was fed last goes on; the other one is to be drained if it holds rows.
        self._active = max(self._parts, key=lambda part: (part.rows > 0, part.fed_at))

    @property
    def holds(self) -> bool:
        """True while some rows are in no table but a recent one: then the table itself takes no slice's commit, but drains and upkeep."""
        return any(part.rows for part in self._parts)

    @property
    def wants_upkeep(self) -> bool:
        """True where what is full waits until files that drains have left behind are gone."""
        return self._draining is None and self._drains >= _COPIES and self._is_full()

    def stored(self) -> Iterator[tuple[str, StoredTable]]:
        """The recent tables that are there, by name."""
        yield from ((part.name, part.stored) for part in self._parts if part.stored is not None)

    def at_rest(self) -> Iterator[tuple[str, StoredTable]]:
        """Of the table and its recent ones those that no drain is at, by name; what is drained keeps its version, by which it is known."""
        drained = () if self._draining is None else (self._table, self._draining[0].stored)
        yield from (
            (name, stored)
            for name, stored in ((self._birth.name, self._table), *self.stored())
            if stored not in drained
        )

    def takes(self, rows: pa.Table) -> bool:
        """True where contributions are to be merged here: the table is large, they are few beside it, and no sum could pass its column's limit."""
        if (
            self._large_rows is None
            or self._rows() < self._large_rows
            or rows.num_rows > self._full()
        ):
            return False
        return all(
            sum(
                (
                    self._table.greatest(name),
                    *(part.greatest[name] for part in self._parts),
                    _greatest(rows, name),
                )
            )
            <= limit
            for name, limit in _limits(self._birth).items()
        )

    def merge(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> None:
        """Folds a slice's contributions, if there are any, into the recent rows."""
        self._note_drained()
        self._active.ensure(self._table.mark())
        self._active.merge(rows, mark, guard)
        self._fed |= rows is not None
        if self._drains < _COPIES:
            self._drain_if(due=self._is_full())

    def drain(self) -> None:
        """Drains all that waits, and returns when it is in the table."""
        while self.holds:
            self._drain_if(due=True)
            if self._draining is not None:
                wait([self._draining[1]])
            self._note_drained()

    def begin_upkeep(self) -> None:
        """Takes note of a drain that has ended, and begins one where nothing came since the last upkeep. What is `at_rest` then is tidied up."""
        self._note_drained()
        self._drain_if(due=not self._fed)
        self._fed = False
        if self._draining is None:
            self._drains = 0

    def close(self) -> None:
        """Waits for the thread that drains: what it commits it commits while the build's lock is held."""
        if self._thread is not None:
            self._thread.shutdown()

    def _note_drained(self) -> None:
        """Where a drain has ended the table has its rows, so they are let go of here. Raises what it failed with."""
        if self._draining is not None and self._draining[1].done():
            part, ended = self._draining
            ended.result()
            self._table.refresh()
            part.empty()
            # Last: behind what has failed nothing more is begun, and the next one to ask hears of it again.
            self._draining = None

    def _drain_if(self, *, due: bool) -> None:
        """Where nothing is being drained: begins with what another job has left, or with what is fed now, where that is due."""
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

    def _drain(self, part: _Part) -> None:
        # By a handle of its own: the other one is asked meanwhile which version readers may see.
        table = open_table(self._table.path)
        assert table is not None
        assert part.stored is not None
        failpoint("recent.before_drain")
        if table.drained() != part.token:
            table.merge(part.read(), self._into, part.stored.mark(), None, drained=part.token)
        failpoint("recent.after_drain")

    def _is_full(self) -> bool:
        return self._active.rows >= self._full()

    def _full(self) -> int:
        return min(max(self._rows() // _SHARE, _LEAST), _MOST)

    def _rows(self) -> int:
        if self._counted[0] != self._table.version:
            self._counted = self._table.version, self._table.rows()
        return self._counted[1]


class _Part:
    """One recent table: contributions, a row per key."""

    def __init__(self, name: str, path: str, birth: TableBirth) -> None:
        self.name = name
        self._path = path
        self._birth = birth
        self._into = merge_for(birth, quoted)
        self._schema = arrow_schema(birth.columns)
        self.stored = open_table(path)
        self.rows = 0
        self.greatest = dict.fromkeys(_sums(birth), 0)
        if self.stored is not None:
            held = self.read()
            self.rows, self.greatest = (
                held.num_rows,
                {name: _greatest(held, name) for name in self.greatest},
            )

    @property
    def token(self) -> str:
        """What it holds, in a word: which table, at which version."""
        return "" if self.stored is None else f"{self.name}@{self.stored.version}"

    @property
    def fed_at(self) -> tuple[int, int, int]:
        """Which of two was fed later."""
        return (-1, -1, -1) if self.stored is None else self.stored.mark().place

    def ensure(self, mark: Mark) -> None:
        if self.stored is None:
            self.stored = ensure_table(self._path, self._birth.columns, mark)

    def merge(self, rows: pa.Table | None, mark: Mark, guard: Guard) -> None:
        assert self.stored is not None
        if rows is None:
            self.stored.commit_nothing(mark, guard)
            return
        self.stored.merge(rows, self._into, mark, guard)
        self.rows = self.stored.rows()
        # Never less than what a key has: sums of a key's contributions are within the sum of the greatest.
        self.greatest = {name: most + _greatest(rows, name) for name, most in self.greatest.items()}

    def read(self) -> pa.Table:
        assert self.stored is not None
        held = [self._schema.empty_table()]
        for path in files(self._path, self.stored.version):
            try:
                held.append(
                    pq.ParquetFile(path).read().select(self._schema.names).cast(self._schema)
                )
            except (OSError, pa.ArrowInvalid) as error:
                raise Damaged(
                    f"file {path} cannot be read, and contributions to table {self._birth.name} wait in it: {error}",
                    hint="kappa replay makes a new build of it",
                ) from error
        return pa.concat_tables(held)

    def empty(self) -> None:
        assert self.stored is not None
        failpoint("recent.before_empty")
        self.stored.empty(self.stored.mark())
        failpoint("recent.after_empty")
        self.rows, self.greatest = 0, dict.fromkeys(self.greatest, 0)


def _sums(birth: TableBirth) -> tuple[str, ...]:
    """The columns whose sums might not fit: those of whole numbers and decimals."""
    kinds = dict(birth.columns)
    return tuple(
        name
        for column, fold in birth.folds.items()
        for name in fold.sums(column)
        if parse_type(kinds[name]) != Scalar("double")
    )


def _limits(birth: TableBirth) -> dict[str, Any]:
    kinds = dict(birth.columns)
    # Half of what fits: what a file tells of its decimals is rounded.
    limits: dict[str, Any] = {}
    for name in _sums(birth):
        match parse_type(kinds[name]):
            case Decimal(precision=precision, scale=scale):
                limits[name] = Number(10) ** (precision - scale) / 2
            case _:
                limits[name] = 2**62
    return limits


def _greatest(rows: pa.Table, column: str) -> Any:
    bounds = pc.min_max(rows.column(column))
    return max(
        (abs(end) for end in (bounds["min"].as_py(), bounds["max"].as_py()) if end is not None),
        default=0,
    )
