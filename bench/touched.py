"""Measures the cost that a maintained view adds to a slice, if it is computed by touched keys.

This is a part of the cell `views`. Slices are committed as a job commits them, but without a topic
and without Spark, to a table of bids and to a table of their auctions. A view computes the winning
bid of each auction. Bids are on auctions that were opened recently, as in a live stream, or on
random auctions. At the end, the view must contain the rows that DuckDB computes from all bids.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import duckdb
import pyarrow as pa
from cells import OPEN_MS, STEP_MS, WINNING
from ground import say
from pyspark.sql import SparkSession

from kappa import View
from kappa.base.clock import Stopwatch
from kappa.base.sections import EngineSettings
from kappa.declare.values.arrow import arrow_schema
from kappa.engine.slice_rows import ArrowRows
from kappa.engine.views.view_maintenance import MaintainedViews
from kappa.engine.write.commit import Merging, TableWriter
from kappa.serving.query.reader.relations import tables_of
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.mark import Mark, origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.merge import contribution_columns
from kappa.tables.views.view_tables import view_births

KEYS = 300
# Auctions that get bids lately, and how many open in a slice: Nexmark has 46 bids for three.
_OPEN, _OPENING = 20_000, 20
_SLICES = 10
_FILLED_AT_ONCE = 1_000_000
_BUILD = "bench-1"
_TABLES = (
    TableBirth("bids", (("auction", "bigint"), ("price", "bigint"), ("ms", "bigint"))),
    TableBirth(
        "auctions",
        (("auction", "bigint"), ("category", "bigint"), ("opened", "bigint")),
        ("auction",),
        {"category": ("max", "category"), "opened": ("min", "ms")},
    ),
)
_BIRTHS = (*_TABLES, *view_births([View("winning", WINNING, keys=("auction",))], _TABLES))
# One auction opens with each number, and gets some bids while it is open.
_FILLED = """
    create table bids as
    select greatest(i - hash(i) % {open}, 0)::bigint as auction,
        (hash(i, 1) % 10000)::bigint as price, i * {step} as ms
    from range({rows}) t(i);
    create table opened as select i as auction, i * {step} as ms from range({rows}) t(i);
"""
_ORACLE = f"""
    select auction, auction % 50 as category, max(price) as price, count(*) as bids
    from bids join (select auction, min(ms) as first from opened group by auction) using (auction)
    where ms - first <= {OPEN_MS} group by auction"""


def seconds_added(home: Path, rows: int) -> Mapping[str, Sequence[float]] | None:
    """Measures the seconds that the view adds to slices over tables of `rows` rows.

    The key `open` of the result is for slices with bids on recently opened auctions, and `any` for
    slices with bids on random auctions. Returns None if the view's rows differ from the oracle's at
    the end.
    """
    folder = home / "touched"
    shutil.rmtree(folder, ignore_errors=True)
    # What a path's version consists of is remembered by readers, so no two may be alike.
    store, draw = Store(folder / secrets.token_hex(4)), random.Random(rows)
    with duckdb.connect() as oracle:
        oracle.execute(_FILLED.format(rows=rows, open=_OPEN, step=STEP_MS))
        build = _Build(store, oracle)
        build.fill(rows)
        taken: dict[str, list[float]] = {}
        for which in ("open", "any"):
            taken[which] = []
            # The first of them is warm for neither DuckDB nor the disk's cache.
            for number in range(_SLICES + 1):
                least = max(0, rows - _OPEN) if which == "open" else 0
                new = range(rows, rows + _OPENING)
                tables, view = build.commit(
                    [*draw.sample(range(least, rows), KEYS - _OPENING), *new], draw
                )
                rows = new.stop
                say(
                    f"bids to {which} auctions: {view * 1000:.0f} ms for the view, "
                    f"{tables * 1000:.0f} ms for the tables"
                )
                if number:
                    taken[which].append(view)
        wrong = build.differences()
    if wrong:
        say(f"no figure: {wrong} rows of the view are not the oracle's, or are not in it")
        return None
    shutil.rmtree(folder)
    return taken


_BIRTH = Birth(_BUILD, "bench", "v", {}, 1, {}, "", (), _BIRTHS, {}, {}, {}, "", "")


class _Build:
    """Two tables and a view over them. All committed rows are also inserted into the oracle."""

    def __init__(self, store: Store, oracle: duckdb.DuckDBPyConnection) -> None:
        engine = EngineSettings()
        self._store = store
        self._oracle = oracle
        self._writers = {
            birth.name: TableWriter(
                store,
                _BUILD,
                birth,
                origin=origin_mark(_BUILD, Offsets()),
                driver_rows=engine.driver_rows,
                merging=Merging(engine.merge_bytes, engine.large_rows),
            )
            for birth in _BIRTHS
        }
        self._views = MaintainedViews(list(self._writers.values()), _BIRTH, are_current=False)
        self._end = 0

    def fill(self, rows: int) -> None:
        """Fills both tables with the rows in the oracle, and computes the view as a whole."""
        auctions = self._writers["auctions"].stored
        for first in range(0, rows, _FILLED_AT_ONCE):
            count = min(_FILLED_AT_ONCE, rows - first)
            mark = self._mark(count)
            within = f"where ms >= {first * STEP_MS} and ms < {(first + count) * STEP_MS}"
            self._writers["bids"].commit(ArrowRows(self._rows(f"from bids {within}")), mark)
            # Nothing is there yet that they would have to be merged with.
            auctions.append(
                self._rows(
                    f"select auction, auction % 50 as category, ms as opened from opened {within}"
                ).cast(arrow_schema(_TABLES[1].columns)),
                mark.of_table("auctions"),
                Guard(f"{_BUILD}/filled", first),
            )
        say(f"{rows:,} rows are in each of the tables")
        mark = self._mark(1)
        for table in _TABLES:
            self._writers[table.name].commit(None, mark)
        seconds = self._seconds_of_views(mark)
        say(f"the view was computed whole in {seconds:.1f} s")

    def commit(self, auctions: Sequence[int], draw: random.Random) -> tuple[float, float]:
        """Commits a slice with one bid on each of the given auctions.

        Returns the seconds for the tables, and the seconds for the view.
        """
        prices = draw.choices(range(10_000), k=len(auctions))
        # While it is open: so each bid changes the view.
        times = [each * STEP_MS + draw.randrange(OPEN_MS) for each in auctions]
        bids = pa.table({"auction": auctions, "price": prices, "ms": times})
        self._oracle.register("more", bids)
        self._oracle.execute("insert into bids from more")
        self._oracle.execute("insert into opened select auction, ms from more")
        of_auctions = pa.table(
            {"auction": auctions, "category": [each % 50 for each in auctions], "opened": times}
        ).cast(arrow_schema(contribution_columns(_TABLES[1])))
        mark = self._mark(len(auctions))
        begun = time.monotonic()
        for name, rows in (("bids", bids), ("auctions", of_auctions)):
            self._writers[name].commit(ArrowRows(rows), mark)
        return time.monotonic() - begun, self._seconds_of_views(mark)

    def differences(self) -> int:
        """Closes the view and the tables. Returns the number of rows that differ.

        A row differs if only the view or only the oracle contains it.
        """
        self._views.close()
        for writer in self._writers.values():
            writer.close()
        versions = {
            name: version
            for writer in self._writers.values()
            for name, version in writer.versions().items()
        }
        newest = Frontier(1, _BUILD, 1, Offsets({"x": {0: self._end}}), versions, "")
        found = tables_of(_BIRTH, newest, self._store)["winning"].sql
        self._oracle.execute(f"create table wanted as {_ORACLE}; create table found as {found}")
        (count,) = self._oracle.execute(
            "select count(*) from ((from wanted except all from found) union all "
            "(from found except all from wanted))"
        ).fetchone() or (0,)
        return int(count)

    def _seconds_of_views(self, mark: Mark) -> float:
        watch = Stopwatch()
        # Spark would have to merge more than is committed here.
        self._views.commit(mark, cast("SparkSession", None), watch, are_due=True)
        return sum(watch.seconds.values())

    def _mark(self, count: int) -> Mark:
        begun, self._end = self._end, self._end + count
        return Mark(_BUILD, "", 1, 0, Offsets({"x": {0: begun}}), Offsets({"x": {0: self._end}}))

    def _rows(self, sql: str) -> pa.Table:
        return self._oracle.sql(sql).to_arrow_table()
