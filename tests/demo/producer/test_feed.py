"""Laws of the producer's process, with a real broker: its ledger equals the log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from house import HOUSE

from demo.processes.child import Child
from demo.producer.events import PARTITIONS, first_count
from demo.producer.feed import Progress, offsets_of
from kappa.base.errors import KappaError
from kappa.declare.topic import Topic
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm]
FEW = 500
PATIENCE_SECONDS = 60.0


@pytest.fixture
def topics(log: Log) -> Iterator[None]:
    for name, partitions in PARTITIONS.items():
        log.create(Topic(name, partitions=partitions, event="id string"))
    yield
    for name in PARTITIONS:
        log.delete(name)


def test_the_ledger_holds_every_record_of_the_log_at_its_offset(
    topics: None, broker: Broker, log: Log, tmp_path: Path
) -> None:
    feed = Child(
        "demo.producer.feed",
        [
            broker.bootstrap_servers,
            str(tmp_path / "ledger.parquet"),
            "--rate",
            "500",
            "--flights",
            str(FEW),
        ],
        environment={**os.environ, "PYTHONPATH": str(HOUSE)},
        folder=tmp_path,
    )
    try:
        feed.wait_until_it_speaks(PATIENCE_SECONDS)
        wait_for(lambda: Progress(**(feed.last or {})).acknowledged > first_count(FEW) + 200)
        code, words = feed.finish()
    finally:
        feed.ensure_ended()

    end = offsets_of(Progress(**words))
    ledger = pq.read_table(tmp_path / "ledger.parquet").to_pylist()
    written = {
        (row["topic"], row["partition"], row["offset"]): (row["key"].encode(), row["value"])
        for row in ledger
    }
    read = {
        (record.topic, record.partition, record.offset): (record.key, record.value)
        for record in log.records(PARTITIONS, Offsets(), end)
    }
    assert code == 0
    assert end == log.end(PARTITIONS)
    assert len(ledger) == words["acknowledged"]
    assert read == written


def test_a_log_that_holds_records_already_is_refused(
    topics: None, broker: Broker, log: Log, tmp_path: Path
) -> None:
    log.produce([ProducedRecord(b"{}")], "flights")
    feed = Child(
        "demo.producer.feed",
        [
            broker.bootstrap_servers,
            str(tmp_path / "ledger.parquet"),
            "--rate",
            "1",
            "--flights",
            "1",
        ],
        environment={**os.environ, "PYTHONPATH": str(HOUSE)},
        folder=tmp_path,
    )

    with pytest.raises(KappaError, match="hold records already"):
        feed.wait_until_it_speaks(PATIENCE_SECONDS)

    feed.ensure_ended()


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to it in time"
        time.sleep(0.05)
