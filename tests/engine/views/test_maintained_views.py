"""I11: at every frontier, a maintained view has exactly the rows of its SQL over the tables."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from rehearsing import Rehearse, memory_log, pass_on

from kappa import Pipeline, Table, Topic, View, count, max_, pipeline
from kappa.base.clock import Stopwatch
from kappa.base.duck import DuckError, progress_of_queries
from kappa.base.errors import Broken
from kappa.base.sql import quoted
from kappa.state.build_status import read_view_costs
from kappa.state.files.duckdb_access import open_for_few_rows
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.versions import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from object_store import ObjectStore
    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.children.rehearsal import LocalPipeline, MemoryLog, Rehearsal

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

BIDS = Topic("bids", event="auction int not null, price bigint, bidder string", partitions=2)
AUCTIONS = Topic(
    "auctions", kind="compacted", key="id", event="id int not null, category string", partitions=2
)
WINNING = """
    select a.id as auction, a.category, max(b.price) as price, count(*) as bids
    from auctions a join bids b on b.auction = a.id group by a.id, a.category
"""


@pipeline(
    reads={"bids": BIDS, "auctions": AUCTIONS},
    writes=[
        Table("bids"),
        Table("auctions", latest=AUCTIONS),
        Table("totals", keys=("auction",), fold={"n": count(), "most": max_("price")}),
        View("per_bid", "select b.auction, b.bidder, b.price, a.category from bids b"
             " left join auctions a on a.id = b.auction", by=("auction",)),
        View("per_category", "select a.category, count(*) as n, sum(b.price) as total"
             " from auctions a join bids b on a.id = b.auction group by a.category",
             keys=("category",)),
        View("by_category", "select category, avg(price) as mean, count(*) as n from winning"
             " group by category", keys=("category",)),
        View("winning", WINNING, keys=("auction",)),
        View("per_bidder", "select bidder, count(*) as n, sum(price) as total, max(price) as most,"
             " sum(price) / count(price) as mean from bids where auction > 0 group by bidder",
             keys=("bidder",)),
        View("since", "select b.auction, b.price, t.n, t.most from bids b asof left join totals t"
             " on b.auction = t.auction and b.price >= t.n", by=("auction",)),
        View("sizes", "select bids, count(*) as auctions, sum(price) filter (category = 'a') as a"
             " from winning group by bids", keys=("bids",)),
        View("busy", "select auction from totals where n > 2"),
        View("busy_bids", "select b.* from bids b semi join busy using (auction)", by=("auction",)),
        View("unsold", "select id from auctions anti join bids on auction = id", keys=("id",)),
        View(
            "sides",
            "select coalesce(t.auction, a.id) as id, a.category, t.most from totals t"
            " full join auctions a on a.id = t.auction",
            keys=("id",),
        ),
    ],
)  # fmt: skip
def market(bids: DataFrame) -> dict[str, DataFrame]:
    return {"bids": bids.select("auction", "price", "bidder"), "totals": bids}


VIEWS = {view.name for view in market.views if view.is_maintained}


def put(log: MemoryLog, draw: random.Random, records: int) -> None:
    """Adds bids on few auctions, and auctions that come, change their category, and go."""
    for _ in range(records):
        auction = draw.randrange(6)
        key = str(auction).encode()
        if draw.random() < 0.3:
            value = {"id": auction, "category": draw.choice(["a", "b", None])}
            record = draw.choice([json.dumps(value).encode()] * 3 + [None])
            log.add("auctions", auction % 2, record, key=key)
        else:
            bid = {"auction": auction, "price": draw.choice([None, 1, 2, 3]), "bidder": "é"}
            log.add("bids", draw.randrange(2), json.dumps(bid).encode(), key=key)


def ensure_views_hold(built: Rehearsal, made: Pipeline = market) -> None:
    from kappa.serving.query.reader.relations import tables_of

    served = tables_of(built.birth, built.publisher.newest, built.store, listed=files)
    views = {view.name: view.sql for view in made.views}
    with open_for_few_rows() as duck:
        duck.execute("create schema stored")
        for name, table in served.items():
            schema = "stored" if name in views else "main"
            duck.execute(f"create view {schema}.{quoted(name)} as {table.sql}")
        # A view may read one that comes later.
        for name, sql in [*views.items()] * len(views):
            with suppress(DuckError):
                duck.execute(f"create or replace view {quoted(name)} as {sql}")
        for view in made.views:
            if view.is_maintained:
                sides = [f"from stored.{view.name}", f"from main.{view.name}"]
                for one, other in (sides, sides[::-1]):
                    assert duck.execute(f"{one} except all {other}").fetchall() == [], view.name


SLOW = """
    select auction, price,
        (select count(*) from range(3000000) as r where hash(r.range) % 7 = price) as n
    from bids
"""
FEW_BIDS = Topic("bids", event="auction int not null, price bigint", partitions=2)
slow_market = pass_on(FEW_BIDS, Table("bids"), View("slow", SLOW, by=("auction",)))


def test_the_query_of_a_view_shows_how_far_it_is(rehearse: Rehearse) -> None:
    """A slice with slow views is not ended while one of the views is being computed."""
    log, seen, done = memory_log(), set[tuple[float, ...]](), threading.Event()
    put(log, random.Random(1), 50)

    def look() -> None:
        while not done.wait(0.001):
            seen.add(progress_of_queries())

    built = rehearse(slow_market, log)
    watching = threading.Thread(target=look)
    watching.start()
    built.fold(log.end)
    done.set()
    watching.join()

    ensure_views_hold(built, slow_market)
    assert len(seen - {()}) > 1


@pytest.mark.parametrize("driver_rows", [1_000, pytest.param(0, marks=pytest.mark.sweep)])
def test_a_view_is_its_query_at_each_frontier_whatever_the_slices(
    rehearse: Rehearse, driver_rows: int, tried: Counter[tuple[str, bool]]
) -> None:
    log = memory_log()
    fold_slices(rehearse(market, log, driver_rows), driver_rows)
    # Rows that Spark commits are not at hand.
    assert {name for name, is_so in tried if is_so} == (VIEWS if driver_rows else set())
    assert not driver_rows or not any(name for name, is_so in tried if not is_so)
    whole = rehearse(market, log, driver_rows)
    whole.fold(log.end)
    ensure_views_hold(whole)
    # The job has told what each view cost.
    costs = read_view_costs(whole.store, whole.birth.build)
    assert {*costs} == VIEWS
    assert {each.way for each in costs.values()} <= {"whole", "by change", "by touched keys"}
    assert all((each.touched is None) is (each.way == "whole") for each in costs.values())
    assert costs["per_bidder"].records == log.end.distance(Offsets())
    assert costs["per_bidder"].rows == whole.table("per_bidder").num_rows


@pytest.mark.long
def test_in_a_bucket_it_is_as_well(
    described: Callable[[Pipeline], LocalPipeline],
    object_store: ObjectStore,
    tmp_path: Path,
    tried: Counter[tuple[str, bool]],
) -> None:
    from kappa.engine.children.rehearsal import Rehearsal

    store = Store(object_store.new_root(), storage=object_store.storage, local=tmp_path)
    fold_slices(Rehearsal(store, described(market), memory_log(), driver_rows=1_000), 1_000)
    assert {name for name, is_so in tried if is_so} == VIEWS


def fold_slices(built: Rehearsal, driver_rows: int) -> None:
    draw, log = random.Random(28), built._log
    for number in range(6):
        put(log, draw, draw.choice([0, 1, 7, 30]))
        if number == 3:
            built.die_before_the_frontier_of(log.end)
            built.begin(driver_rows=driver_rows)
        built.fold(log.end)
        ensure_views_hold(built)


def test_views_of_a_new_build_are_computed_at_the_end_of_a_leg(
    spark: SparkSession, rehearse: Rehearse
) -> None:
    log = memory_log()
    built = rehearse(market, log)
    put(log, random.Random(1), 60)
    half = Offsets.of_partitions({place: end // 2 for place, end in log.ends.items()})
    for end in (half, log.end):
        built.slices.run_slice(
            built._next(end), lambda: spark, log, built.publisher, Stopwatch(), views_at=log.end
        )  # type: ignore[arg-type]
        if end is half:
            assert built.table("winning").num_rows == 0 < built.table("bids").num_rows
    ensure_views_hold(built)


def test_rows_of_one_key_end_a_rehearsal_with_the_key(rehearse: Rehearse) -> None:
    one = View("one", "select auction, price from bids", keys=("auction",))
    log = memory_log()
    built = rehearse(pass_on(FEW_BIDS, Table("bids"), one), log)
    for price in (1, 2):
        log.add("bids", 0, json.dumps({"auction": 7, "price": price}).encode())

    with pytest.raises(Broken, match="view one: several rows have the keys auction=7"):
        built.fold(log.end)


@pytest.mark.long
def test_the_law_of_slices_holds_for_views(spark: SparkSession) -> None:
    from kappa.testing import law_of_slices, some_events

    law_of_slices(market, some_events(market, 24), cuts=2)
