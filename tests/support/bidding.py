"""Many bids for a platform, the rows that they result in, and the memory that a replay takes."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from testbed import Testbed

from kappa.kafka.producer import ProducedRecord
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.query import connect_reader

BIDDING = """
from kappa import Table, Topic, count, pipeline, sum_

EVENT = "auction bigint, bidder bigint not null, price bigint, channel string"
BIDS = Topic("bids", partitions=4, key="bidder", event=EVENT)
BIDDERS = Table("bidders", keys=("bidder",), fold={"bids": count(), "price": sum_("price")})


@pipeline(reads={"bids": BIDS}, writes=[BIDDERS])
def bidding(bids):
    return {"bidders": bids}
"""
_KEYS = 16_384
# What the heap of a job (2 GiB), the broker and Python may come to together; shared pages are
# counted once per process.
MOST_BYTES = 6 * 2**30


def bid(number: int) -> ProducedRecord:
    """Returns the bid with this number."""
    bidder, price = _bid(number)
    value = (
        f'{{"auction":{number % 1000},"bidder":{bidder},"price":{price},'
        f'"channel":"channel-{number % 31}"}}'
    )
    return ProducedRecord(key=str(bidder).encode(), value=value.encode())


def _bid(number: int) -> tuple[int, int]:
    return number * 7919 % _KEYS, number % 9973


def expected(numbers: range) -> dict[int, list[int]]:
    """Returns the count and the total price of the bids with these numbers, by bidder."""
    found: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for number in numbers:
        bidder, price = _bid(number)
        found[bidder][0] += 1
        found[bidder][1] += price
    return dict(found)


def bidders(bed: Testbed) -> dict[int, list[int]]:
    """Returns the served rows in the form of `expected`."""
    with (
        pin_served(bed.store, lease_seconds=60) as pinned,
        connect_reader(pinned.snapshot, bed.store) as reader,
    ):
        rows = reader.rows("select bidder, bids, price from bidders").rows
        return {bidder: [bids, price] for bidder, bids, price in rows}


@dataclass
class Peak:
    """The largest number of bytes that were in use at once."""

    bytes: int = 0


@contextmanager
def watched(memory: Callable[[], int]) -> Iterator[Peak]:
    """Measures once a second how much memory is in use, and yields the peak."""
    peak, stop = Peak(memory()), threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            peak.bytes = max(peak.bytes, memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        stop.set()
        watcher.join()
