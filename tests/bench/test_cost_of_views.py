"""The bench cell of views: its oracle is a separate query, and finds each wrong row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import touched
import views
from cells import OPEN_MS, TASKS, WINNING, Cell
from views import Added

from kappa.state.store import Store
from kappa.tables.views.ways import ways_of

ROWS = 3_000


@pytest.fixture
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def test_the_winning_bid_is_the_oracles_and_bids_after_the_close_do_not_count(
    oracle: duckdb.DuckDBPyConnection,
) -> None:
    wanted = Cell("small", "q4", ROWS, 7, 1, ()).fill(TASKS["q4"].wanted["winning"])
    # Two auctions that opened at 0 and at 5: a higher bid comes just in time, a third too late.
    oracle.execute(
        "create table bids as select * from (values (1, 10, 0), (2, 10, 5), (1, 20, $close), "
        "(1, 30, $close + 1), (2, 20, $close + 5), (2, 30, $close + 6)) t(auction, price, ms)",
        {"close": OPEN_MS},
    )
    oracle.execute(f"create table auctions as {TASKS['q4'].wanted['auctions']}")

    assert oracle.sql(wanted).order("auction").fetchall() == [(1, 1, 20, 2), (2, 2, 20, 2)]
    assert oracle.sql(WINNING).order("auction").fetchall() == [(1, 1, 20, 2), (2, 2, 20, 2)]


def test_the_view_of_the_slices_is_computed_by_touched_keys() -> None:
    assert ways_of(touched._BIRTHS)["winning"].whole_after == {}


@pytest.mark.parametrize("missing", [False, True])
def test_a_bid_that_the_view_lacks_is_seen(
    missing: bool, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    oracle.execute(touched._FILLED.format(rows=ROWS, open=20, step=10))
    build = touched._Build(Store(tmp_path), oracle)
    build.fill(ROWS)
    build.commit([*range(ROWS - 5, ROWS + 5)], random.Random(1))
    if missing:
        oracle.execute(f"insert into bids values ({ROWS}, 20000, {ROWS * 10})")

    # The row as it is, and as it should be.
    assert build.differences() == (2 if missing else 0)


def test_costs_are_told_in_turns_and_recent_keys_apart_from_random_ones() -> None:
    told = views._report(
        Added(
            10_000_000,
            5_000_000,
            {"open": [0.08, 0.1, 0.12], "any": [0.5]},
            {"totals": [0.4, 0.2], "stages": [0.5, 0.3]},
            {"auctions": [20.0], "q4": [25.0]},
        )
    )

    assert told.line == (
        "bench views, 10000000 rows, 5000000 events: a view adds to a slice of 300 keys "
        "100 (80-120) ms, of random ones 500 ms; freshness with a second stage "
        "1.38 (1.25-1.50)x; a replay with views 1.25x"
    )
    assert "| 300 auctions, any of all: likewise |  |  | 500 |  |" in told.page
    assert "| 20.0 | 25.0 | 1.25 | 1.3 |" in told.page
