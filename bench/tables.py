"""Measures slices and reads by the size of the table and the number of touched keys.

    python bench --cell tables

Contributions to random keys are committed as a job commits them, but without a topic and without
Spark. They either wait as recent rows next to the table, or are merged at once. Reads of a table
with recent rows and reads of the drained table are timed in turns. Both tables must contain what
DuckDB computes from all contributions.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
import pyarrow as pa
from ground import say
from screen import Report, table

from kappa.base.sections import EngineSettings
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.write.commit import AT_ONCE, Merging, TableWriter
from kappa.serving.query.reader.reader import Reader, open_reader
from kappa.serving.query.reader.relations import put_tables
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.merge import contribution_columns

ROWS, TOUCHED = (50_000, 1_000_000, 10_000_000), (300, 2_000, 20_000)
_BUILD = "bench-1"
_TABLE = TableBirth(
    "totals",
    (
        ("bidder", "bigint"),
        ("bids", "bigint"),
        ("total", "bigint"),
        ("least", "bigint"),
        ("most", "bigint"),
    ),
    ("bidder",),
    {
        "bids": ("count", None),
        "total": ("sum", "price"),
        "least": ("min", "price"),
        "most": ("max", "price"),
    },
)
_READS = {
    "all": "select sum(bids)::bigint, sum(total)::bigint, max(most) from {}",
    "group by": (
        "select bidder % 100 as part, sum(total)::bigint from {} group by part order by part"
    ),
    "one key": "select * from {} where bidder = 77",
}
_ORACLE = (
    "select bidder, count(*) as bids, sum(price)::bigint as total, min(price) as least, "
    "max(price) as most from contributions group by bidder"
)
# Some reads take milliseconds.
_READ_ROUNDS = 21
# The longest of them takes seconds a slice.
_MERGED_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost for one table size and number of touched keys.

    `waiting`, `waiting_most` and `at_once` are seconds per slice. `waiting` is the median and
    `waiting_most` the maximum if contributions wait as recent rows; `at_once` is the median if each
    slice is merged at once. `reads` maps each read to its time with recent rows, divided by its
    time on the drained table.
    """

    rows: int
    touched: int
    slices: int
    waiting: float
    waiting_most: float
    at_once: float
    reads: Mapping[str, float]


def main(home: Path, rounds: int) -> Report | None:
    """Measures each size with `rounds` slices. Returns None if a table contains wrong rows."""
    costs = list[Cost]()
    for rows in ROWS:
        for touched in TOUCHED:
            cost = _measured(home / "tables", rows, touched, rounds)
            if cost is None:
                return None
            costs.append(cost)
    head = (
        "rows",
        "keys a slice",
        "a slice, ms",
        "at most",
        "merged at once, ms",
        "so many times",
        *(f"reading {name}" for name in _READS),
    )
    note = (
        f"Medians of {rounds} slices where contributions may wait, of {_MERGED_AT_ONCE} where "
        "each is merged at once; reading: how many times as long it takes as when all is "
        f"drained, of {_READ_ROUNDS} rounds."
    )
    worst = max(value for cost in costs for value in cost.reads.values())
    sizes = ", ".join(
        f"{cost.rows:,} rows by {cost.touched:,} keys {cost.at_once / cost.waiting:.1f}x"
        for cost in costs
    )
    line = f"bench tables, {rounds} slices: {sizes}; reading at most {worst:.1f}x"
    return Report(line, costs, f"{table(head, map(_row, costs), words=())}\n\n{note}")


def _row(cost: Cost) -> Sequence[str]:
    return (
        f"{cost.rows:,}",
        f"{cost.touched:,}",
        f"{cost.waiting * 1000:,.0f}",
        f"{cost.waiting_most * 1000:,.0f}",
        f"{cost.at_once * 1000:,.0f}",
        f"{cost.at_once / cost.waiting:.1f}",
        *(f"{value:.1f}" for value in cost.reads.values()),
    )


def _measured(folder: Path, rows: int, touched: int, slices: int) -> Cost | None:
    seconds: dict[str, list[float]] = {}
    reads: dict[str, float] = {}
    for how, merging, count in (
        ("waiting", Merging(large_rows=EngineSettings().large_rows), slices),
        ("at once", AT_ONCE, _MERGED_AT_ONCE),
    ):
        with _table(folder, merging) as (store, writer), duckdb.connect() as oracle:
            draw = random.Random(rows + touched)
            oracle.execute("create table contributions (bidder bigint, price bigint)")
            commit = _Commits(writer, oracle)
            commit(range(rows), draw)
            seconds[how] = [commit(draw.sample(range(rows), touched), draw) for _ in range(count)]
            # A drain slows readers as any work beside them does; this measures recent rows alone.
            writer.close()
            if writer.recent is not None:
                # The last drain has not emptied its table of recent rows yet.
                writer.recent.begin_upkeep()
            wanted = {
                name: oracle.sql(sql.format(f"({_ORACLE})")).fetchall()
                for name, sql in _READS.items()
            }
            some_wait = writer.versions()
            drainer = _writer(store, merging)
            if drainer.recent is not None:
                drainer.recent.drain()
            found = _read(store, some_wait, drainer.versions(), wanted)
            if found is None:
                return None
            if how == "waiting":
                reads = found
    return Cost(
        rows,
        touched,
        slices,
        median(seconds["waiting"]),
        max(seconds["waiting"]),
        median(seconds["at once"]),
        reads,
    )


@contextmanager
def _table(folder: Path, merging: Merging) -> Iterator[tuple[Store, TableWriter]]:
    """Creates a table for the block, and yields its store and writer."""
    shutil.rmtree(folder, ignore_errors=True)
    # What a path's version consists of is remembered by readers, so no two may be alike.
    store = Store(folder / secrets.token_hex(4))
    yield store, _writer(store, merging)
    shutil.rmtree(folder)


def _writer(store: Store, merging: Merging) -> TableWriter:
    return TableWriter(
        store, _BUILD, _TABLE, origin=origin_mark(_BUILD, Offsets()), driver_rows=0, merging=merging
    )


class _Commits:
    """Commits slices to a table. A call commits one slice and returns the seconds it took."""

    def __init__(self, writer: TableWriter, oracle: duckdb.DuckDBPyConnection) -> None:
        self._writer = writer
        self._oracle = oracle
        self._number = 0

    def __call__(self, keys: Sequence[int], draw: random.Random) -> float:
        prices = pa.array(draw.choices(range(10_000), k=len(keys)), pa.int64())
        bidders = pa.array(keys, pa.int64())
        self._oracle.register("more", pa.table({"bidder": bidders, "price": prices}))
        self._oracle.execute("insert into contributions from more")
        bids = pa.array([1] * len(keys), pa.int64())
        rows = pa.table(
            {"bidder": bidders, "bids": bids, "total": prices, "least": prices, "most": prices}
        ).cast(arrow_schema(contribution_columns(_TABLE)))
        mark = Mark(
            _BUILD,
            _TABLE.name,
            1,
            self._number,
            Offsets({"x": {0: self._number}}),
            Offsets({"x": {0: self._number + 1}}),
        )
        self._number += 1
        begun = time.monotonic()
        self._writer.commit(ArrowRows(rows), mark)
        return time.monotonic() - begun


def _read(
    store: Store,
    some_wait: Mapping[str, int],
    drained: Mapping[str, int],
    wanted: Mapping[str, Sequence[tuple[object, ...]]],
) -> dict[str, float] | None:
    """Returns the time of each read with recent rows divided by its time on the drained table.

    Each value is the median over the rounds. Returns None if a read returns other rows than the
    oracle.
    """
    with open_reader(None, served=True) as reader:
        for schema, versions in (("waits", some_wait), ("drained", drained)):
            put_tables(
                reader,
                schema,
                Birth(_BUILD, "bench", "v", {}, 1, {}, "", (), (_TABLE,), {}, {}, {}, "", ""),
                Frontier(1, _BUILD, 1, Offsets(), versions, ""),
                store,
            )
            for name, sql in _READS.items():
                if list(reader.rows(sql.format(f"{schema}.totals")).rows) != list(wanted[name]):
                    say(f"no figure: {name} of {versions} is not DuckDB's of all contributions")
                    return None
        return {
            name: median(
                _timed(reader, sql.format("waits.totals"))
                / _timed(reader, sql.format("drained.totals"))
                for _ in range(_READ_ROUNDS)
            )
            for name, sql in _READS.items()
        }


def _timed(reader: Reader, sql: str) -> float:
    begun = time.monotonic()
    reader.rows(sql)
    return time.monotonic() - begun
