"""Compares the cost of a query by Kappa with DuckDB itself, as ratios measured in turns.

    python bench --cell queries

The *cold* figure measures `kappa query`, from the start of its process to the exit. It is compared
with a Python process that only imports the two libraries that every query needs. The *warm* figure
measures a group by over a table with a million rows, which Kappa pins and reads as for every query.
It is compared with DuckDB on the same Parquet files. Kappa and DuckDB must return the same rows.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from project import seconds_of
from screen import Report, spread_of

from kappa.base.clock import now
from kappa.declare.values.arrow import arrow_schema
from kappa.serving.query.query import answer_query
from kappa.state.build import Birth, put_birth, table_path
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.mark import origin_mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.table import TableBirth
from kappa.tables.delta import Guard
from kappa.tables.shape import REJECTS_BIRTH
from kappa.tables.stored_table import ensure_table
from kappa.tables.versions import files

ROWS = 1_000_000
_BUILD = "bench-1"
_TABLE = TableBirth(
    "totals", (("bidder", "bigint"), ("channel", "string"), ("bids", "bigint"), ("total", "bigint"))
)
_ONE = "select count(*) as rows from totals"
_GROUPED = (
    "select channel, sum(bids)::bigint as bids, max(total) as most from {} group by channel order "
    "by channel"
)


def main(home: Path, rounds: int) -> Report | None:
    """Measures the ratios of a cold query and of a warm query in `rounds` rounds.

    Returns None if Kappa's rows differ from the rows in the files.
    """
    project = home / "queries"
    shutil.rmtree(project, ignore_errors=True)
    store = _served(project)
    paths = files(table_path(store, _BUILD, _TABLE.name), 1, None)
    there = [
        *(sys.executable, "-P", "-m", "cli"),
        *("--project", str(project), "query", _ONE, "-o", "json"),
    ]
    cold = _in_turns(
        rounds,
        lambda: seconds_of(sys.executable, "-c", "import duckdb, deltalake"),
        lambda: seconds_of(*there),
    )
    told = json.loads(subprocess.run(there, capture_output=True, check=True).stdout)["rows"]
    wanted = duckdb.sql(_GROUPED.format(f"read_parquet({list(paths)})")).fetchall()
    found = answer_query(store, _GROUPED.format("totals")).rows
    if told != [{"rows": ROWS}] or [tuple(row) for row in found] != wanted:
        print("no figure: the rows are not those of the files", file=sys.stderr)
        return None
    warm = _in_turns(
        rounds,
        lambda: _timed(
            lambda: duckdb.sql(_GROUPED.format(f"read_parquet({list(paths)})")).fetchall()
        ),
        lambda: _timed(lambda: answer_query(store, _GROUPED.format("totals"))),
    )
    shutil.rmtree(project)
    cold_told, warm_told = spread_of(cold, "{:.2f}"), spread_of(warm, "{:.2f}")
    return Report(
        f"bench queries, {ROWS} rows, {rounds} rounds: kappa query against a bare import "
        f"{cold_told}; a group by against DuckDB on the same files {warm_told}",
        {"rows": ROWS, "cold": cold, "warm": warm},
        f"`kappa query` takes {cold_told} times as long as `python -c 'import duckdb, deltalake'`, "
        "each from the start to the end of its process.\n"
        f"A group by over {ROWS:,} rows takes {warm_told} times as long through Kappa's reader as "
        f"in DuckDB on the same Parquet files. Each was measured in {rounds} rounds.",
    )


def _served(project: Path) -> Store:
    """Creates a project that serves one table, in the same state as after a job and a promote."""
    project.mkdir(parents=True)
    (project / "kappa.toml").touch()
    store = Store(project / ".kappa")
    put_birth(
        store,
        Birth(
            _BUILD,
            "bench",
            "v",
            {},
            1,
            {},
            "",
            (),
            (_TABLE, REJECTS_BIRTH),
            {},
            {},
            {},
            now(),
            "bench",
        ),
    )
    mark = origin_mark(_BUILD, Offsets())
    table, _ = (
        ensure_table(table_path(store, _BUILD, each.name), each.columns, mark.of_table(each.name))
        for each in (_TABLE, REJECTS_BIRTH)
    )
    numbers = duckdb.sql(
        "select i::bigint as bidder, 'channel-' || (hash(i) % 100) as channel, (hash(i, 1) % "
        f"1000)::bigint as bids, (hash(i, 2) % 1000000)::bigint as total from range({ROWS}) "
        "t(i)"
    )
    table.append(
        numbers.to_arrow_table().cast(arrow_schema(_TABLE.columns)),
        mark.of_table(_TABLE.name),
        Guard(f"{_BUILD}/bench", 1),
    )
    Frontiers(store, _BUILD).publish(
        Frontier(1, _BUILD, 1, Offsets(), {_TABLE.name: 1, REJECTS_BIRTH.name: 0}, now())
    )
    Journal(store).append(
        1, Served(1, 1, {"bench": _BUILD}, Receipt("bench", _BUILD, "v", Offsets(), None, None))
    )
    return store


def _in_turns(rounds: int, one: Callable[[], float], other: Callable[[], float]) -> list[float]:
    """Returns the time of `other` divided by the time of `one`, for each round.

    An additional first round is not counted, because it fills the disk cache for both.
    """
    taken = [(one(), other()) for _ in range(rounds + 1)]
    return [second / first for first, second in taken[1:]]


def _timed(work: Callable[[], Any]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
