"""Two builds of one table, for tests: one with waiting contributions, one that merges at once.

As a program, this module is a series of jobs that fold into the first build: `python waiting.py
FOLDER COUNT POINT...` starts a job for each failpoint, which is killed there, and a last job. Each
job continues after the tables' own slice, folds at most COUNT slices for each job so far, and
drains what waits.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from births import make_birth
from writers import make_mark, make_writer

from kappa.base.failpoint import acting, parsed
from kappa.declare.folds.order import FOLD_ORDER_COLUMNS, order_column
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.write import recent_rows
from kappa.engine.write.commit import AT_ONCE, Merging, TableWriter
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.relations import put_tables
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.durable_versions import take_back_to_frontier
from kappa.tables.merge import contribution_columns
from kappa.tables.shape import LATEST_COLUMNS

# So many rows fill a recent table here.
FULL = 8
WAITING = Merging(large_rows=0)


def _order_of(column: str) -> tuple[tuple[str, str], ...]:
    return tuple((order_column(column, name), kind) for name, kind in FOLD_ORDER_COLUMNS)


FOLDED = TableBirth(
    "totals",
    (
        *(("k", "string"), ("at", "timestamp"), ("bids", "bigint"), ("total", "bigint")),
        *(("price", "decimal(20,2)"), ("weight", "double"), ("mean", "double")),
        *(("_mean_sum", "bigint"), ("_mean_count", "bigint"), ("mean_price", "double")),
        *(("_mean_price_sum", "decimal(20,2)"), ("_mean_price_count", "bigint")),
        *(("least", "string"), ("most", "timestamp"), ("all", "boolean"), ("any", "boolean")),
        *(("last", "string"), *_order_of("last"), ("first", "bigint"), *_order_of("first")),
    ),
    keys=("k", "at"),
    fold={
        "bids": ("count", None),
        "total": ("sum", "n"),
        "price": ("sum", "p"),
        "weight": ("sum", "w"),
        "mean": ("avg", "n"),
        "mean_price": ("avg", "p"),
        "least": ("min", "s"),
        "most": ("max", "t"),
        "all": ("and", "b"),
        "any": ("or", "b"),
        "last": ("latest", "s"),
        "first": ("first", "n"),
    },
)
# A record that is folded twice shows in it, and its merges cost a third of the other's.
COUNTED = TableBirth(
    "counted",
    (("k", "string"), ("at", "timestamp"), ("bids", "bigint"), ("total", "bigint")),
    keys=("k", "at"),
    fold={"bids": ("count", None), "total": ("sum", "n")},
)
LATEST = TableBirth(
    "people", (("k", "string"), ("name", "string"), *LATEST_COLUMNS), ("k",), latest="people"
)


class Twins:
    """A build whose contributions wait, and a build whose contributions are merged at once."""

    def __init__(self, folder: Path, table: TableBirth) -> None:
        self.table = table
        self.births = {build: make_birth(build, (table,)) for build in ("waits", "plain")}
        self.store = Store(folder)
        self.number = 0
        self.writers: dict[str, TableWriter] = {}
        self.begin()

    def begin(self) -> None:
        """Opens both builds, as a job does at its start, after the job before has ended."""
        for writer in self.writers.values():
            writer.close()
        for birth in self.births.values():
            take_back_to_frontier(self.store, birth)
        self.writers = {
            build: make_writer(
                *(self.store, self.table, build),
                driver_rows=1_000_000,
                merging=WAITING if build == "waits" else AT_ONCE,
            )
            for build in self.births
        }

    @property
    def waits(self) -> TableWriter:
        return self.writers["waits"]

    def fold(self, rows: pa.Table | None, *, published: bool = True) -> None:
        """Folds the next slice into both builds."""
        for build, writer in self.writers.items():
            commit(writer, build, self.number, rows)
            if published:
                publish(self.store, writer, build, self.number)
        self.number += 1

    def fold_plain(self, place: int) -> None:
        """Folds into the plain build the slice that `main` folds into the other build."""
        commit(self.writers["plain"], "plain", place, slice_of(place))

    def rows(self, build: str, versions: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
        """Returns the rows that readers see, with the hidden columns that are compared."""
        last = Frontier(1, build, 1, Offsets(), versions or self.writers[build].versions(), "")
        with open_reader(None, served=True) as reader:
            put_tables(reader, "it", self.births[build], last, self.store)
            found = reader.rows(f"select * from it.{self.table.name} order by all nulls first")
        return [dict(zip(found.columns, row, strict=True)) for row in found.rows]

    def assert_equal(self) -> list[dict[str, Any]]:
        """Asserts that readers see the same rows in both builds, and returns them."""
        found = self.rows("waits")
        assert found == self.rows("plain")
        return found


def contributions(table: TableBirth, draw: random.Random, place: int) -> pa.Table:
    """Draws contributions for some keys, with nulls among keys and values."""

    def some(kind: str, *, null: float = 0.2) -> Any:
        if draw.random() < null:
            return None
        match kind:
            case "string":
                return draw.choice(["", "a", "ä", "b'", "zz", '"'])
            case "timestamp":
                return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(5))
            case "boolean":
                return draw.random() < 0.5
            case "double":
                return draw.choice([0.0, 0.25, -2.5, 1e12])
            case "bigint" | "int":
                return draw.randrange(-100, 100)
            case _:
                return Decimal(draw.randrange(-(10**8), 10**8)).scaleb(
                    0 if kind.endswith(",0)") else -2
                )

    columns, found = contribution_columns(table), {}
    for number in range(draw.randrange(6)):
        row = {name: some(kind) for name, kind in columns}
        for name, (how, _) in table.fold.items():
            if how == "count":
                row[name] = draw.randrange(1, 5)
            if how == "avg":
                row[f"_{name}_count"] = 0 if row[f"_{name}_sum"] is None else draw.randrange(1, 5)
            if how in {"first", "latest"}:
                # A value that is not null has a place in the log, and no two have the same.
                order = [place, "x", 0, number] if row[name] is not None else [None] * 4
                row |= dict(zip((name for name, _ in _order_of(name)), order, strict=True))
        if table.latest is not None:
            row |= {"_log_time": draw.randrange(3), "_partition": 0}
            row |= {"_offset": place * 10 + number, "_deleted": draw.random() < 0.3}
        found[tuple(row[key] for key in table.keys)] = row
    types = arrow_schema(columns)
    return pa.Table.from_pylist(list(found.values()), types)


def commit(writer: TableWriter, build: str, place: int, rows: pa.Table | None) -> None:
    mark = make_mark(place, build=build, table=writer.birth.name)
    writer.commit(None if rows is None else ArrowRows(rows), mark)
    assert writer.mark() == mark


def publish(store: Store, writer: TableWriter, build: str, place: int) -> None:
    at = Offsets({"x": {0: place + 1}})
    Frontiers(store, build).publish(
        Frontier(place + 1, build, 1, at, writer.versions(), "then", leg=1, slice=place)
    )


def slice_of(place: int) -> pa.Table:
    return contributions(COUNTED, random.Random(place), place)


def main(folder: str, count: str, *points: str) -> None:
    recent_rows._LEAST = FULL
    # Delta's threads do not survive a fork: this process only starts jobs, and imports once.
    for number, each in enumerate((*(f"{point}:kill:2" for point in points), ""), start=1):
        job = os.fork()
        if job == 0:
            with acting(parsed(each) or (lambda _name: None)):
                fold_up_to(folder, number * int(count))
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
        if ended != (-signal.SIGKILL if each else 0):
            sys.exit(f"the job that was to die at {each or 'no failpoint'} ended with {ended}")


def fold_up_to(folder: str, count: int) -> None:
    twins = Twins(Path(folder), COUNTED)
    writer = twins.waits
    assert writer.recent is not None
    for place in range(writer.mark().slice + 1, count):
        commit(writer, "waits", place, slice_of(place))
        publish(twins.store, writer, "waits", place)
    writer.recent.drain()


if __name__ == "__main__":
    main(*sys.argv[1:])
