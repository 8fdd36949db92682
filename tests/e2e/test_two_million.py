"""A replay of 2 million events (fewer in make test) within bounded memory.

Time and memory are printed, the result is compared, and no time is asserted.
"""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic

import duckdb
import pytest
from testbed import platform

from kappa.log.producer import ProducedRecord
from serving.pin.catalog import pin
from serving.query.query import connect

KEYS = 16_384
# What the heap of a job (2 GiB), the broker and Python may come to together; shared pages are
# counted once per process.
MOST_BYTES = 6 * 2**30

PIPELINE = """
from kappa import Table, Topic, count, pipeline, sum_

EVENT = "auction bigint, bidder bigint not null, price bigint, channel string"
BIDS = Topic("bids", partitions=4, key="bidder", event=EVENT)
BIDDERS = Table("bidders", keys=("bidder",), fold={"bids": count(), "price": sum_("price")})


@pipeline(reads={"bids": BIDS}, writes=[BIDDERS])
def bidding(bids):
    return {"bidders": bids}
"""


def bid(number: int) -> ProducedRecord:
    bidder = number * 7919 % KEYS
    value = (
        f'{{"auction":{number % 1000},"bidder":{bidder},"price":{number % 9973},'
        f'"channel":"channel-{number % 31}"}}'
    )
    return ProducedRecord(key=str(bidder).encode(), value=value.encode())


@pytest.mark.jvm
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("events", [60_000, pytest.param(2_000_000, marks=pytest.mark.sweep)])
def test_so_many_events_replay_within_bounded_memory(tmp_path: Path, events: int) -> None:
    with platform(tmp_path / "big", bidding=PIPELINE) as bed:
        bed.log.produce((bid(number) for number in range(events)), "bids")
        peak, stop = [0], threading.Event()

        def watch() -> None:
            while not stop.wait(1.0):
                peak[0] = max(peak[0], bed.memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        begun = monotonic()
        bed.must("deploy", "--yes")
        took = monotonic() - begun
        stop.set()
        watcher.join()

        with (
            pin(bed.store, lease_seconds=60) as pinned,
            connect(pinned.snapshot, bed.store) as reader,
        ):
            rows = [
                tuple(row)
                for row in reader.rows(
                    "select bidder, bids, price from bidders order by bidder"
                ).rows
            ]
        wanted = duckdb.sql(
            f"select (i * 7919) % {KEYS} as bidder, count(*), sum(i % 9973)::bigint "
            f"from range({events}) t(i) group by 1 order by 1"
        ).fetchall()
        assert rows == wanted
        frontier = bed.frontier(bed.live("bidding"))
        assert frontier is not None
        assert sum(tally.decoded for tally in frontier.tally["bids"].values()) == events
        print(
            f"{events:,} events, deploy to serving in {took:.1f} s = {events / took:,.0f} events/s "
            f"with all start-up, peak RSS of all processes {peak[0] / 2**30:.2f} GiB"
        )
        for line in bed.logs().splitlines():
            if "slice " in line:
                print(line)
        assert peak[0] < MOST_BYTES
