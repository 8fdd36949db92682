"""Losses of producers whose broker is killed: the first table of docs/explain/losses.md.

    PYTHONPATH=. python tests/support/losses.py

measures again and writes both tables into the page. `tests/e2e/test_losses.py` also measures, and
compares its counts with those of the page.
"""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from crash_losses import crash_all
from crash_losses import table as crash_table
from house import HOUSE
from three_brokers import CARELESS, ThreeBrokers

from demo.cluster.brokers import NODES
from kappa.base.java.jars import ensure_jars
from kappa.base.java.java import find_java
from kappa.kafka.client import Log
from kappa.state.witness import LostEnd

PAGE = HOUSE / "docs" / "explain" / "losses.md"
# The followers are left behind at this record, and the leader is killed at that one.
BEHIND_AT, KILLED_AT, SENT = 1_000, 1_100, 2_100
_RATE_A_SECOND = 200
_PATIENCE_SECONDS = 120.0
# Kappa makes topics with these options in a cluster of three brokers.
_CAREFUL = MappingProxyType({"min.insync.replicas": "2"})


@dataclass(frozen=True, slots=True)
class Way:
    """A way to produce: the options of the producer, and the replicas and options of its topic."""

    acks: str
    is_idempotent: bool = False
    is_careless: bool = False

    @property
    def name(self) -> str:
        """Returns the name of the way as the table shows it."""
        idempotent = ", idempotent" if self.is_idempotent else ""
        return f"`acks={self.acks}`{idempotent}" + (
            ", unclean election" if self.is_careless else ""
        )

    @property
    def topic(self) -> str:
        """Returns the name of the way's topic."""
        return re.sub(r"\W+", "-", self.name).strip("-")

    @property
    def last_written(self) -> int:
        """Returns the last record that the leader certainly has before its followers continue.

        A broker reads the next request of a connection only after it has answered the last one.
        """
        return BEHIND_AT if self.acks == "all" else KILLED_AT - 1


WAYS = (
    Way("0"),
    Way("1"),
    Way("all"),
    Way("all", is_idempotent=True),
    Way("all", is_careless=True),
    Way("all", is_idempotent=True, is_careless=True),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The record counts of one way to produce, and its acknowledgement times in seconds."""

    way: Way
    acknowledged: int
    lost: int
    doubled: int
    # Lost, though a reader had seen them.
    lost_ends: tuple[LostEnd, ...]
    # Of the records before the followers were left behind.
    latencies: Sequence[float]
    # From the kill to the first acknowledgement of a record that was sent after the kill, if any.
    outage: float | None
    # The producer was told that it cannot go on.
    is_told: bool

    @property
    def row(self) -> str:
        """Returns these counts as a row of the table."""
        times = (_percentile(self.latencies, share) * 1000 for share in (50, 99))
        cells = [
            self.way.name,
            *(f"{count:,}" for count in (SENT, self.acknowledged, self.lost, self.doubled)),
            self.noticed,
            *(f"{each:.1f} ms" for each in times),
            "never" if self.outage is None else f"{self.outage:.1f} s",
        ]
        return f"| {' | '.join(cells)} |"

    @property
    def noticed(self) -> str:
        """Returns who notices the loss, or `-` if there is no loss."""
        noticed = [*(["Kappa"] if self.lost_ends else []), *(["producer"] if self.is_told else [])]
        return " and ".join(noticed) or ("nobody" if self.lost else "-")


@dataclass
class _Sender:
    """A producer of numbered records at a steady rate; notes each acknowledgement's time."""

    way: Way
    bootstrap_servers: str
    sent_at: dict[int, float] = field(default_factory=dict)
    acknowledged_at: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ends = threading.Event()
        self.is_told = False
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "acks": self.way.acks,
                "enable.idempotence": self.way.is_idempotent,
                "log_level": 0,
            }
        )

    @contextmanager
    def polling(self) -> Iterator[None]:
        """Receives acknowledgements within the block."""

        def poll() -> None:
            while not self._ends.is_set():
                try:
                    self._producer.poll(0.1)
                except KafkaException:
                    self.is_told = True

        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def send(self, first: int, end: int) -> None:
        """Sends the records of a range, each at its scheduled time."""
        began = time.monotonic()
        for number in range(first, end):
            while (early := began + (number - first) / _RATE_A_SECOND - time.monotonic()) > 0:
                time.sleep(early)
            self.sent_at[number] = time.monotonic()
            # A producer that cannot go on takes no more records.
            with suppress(KafkaException):
                self._producer.produce(
                    self.way.topic, value_of(number), partition=0, on_delivery=self._settle
                )

    def flush(self) -> None:
        """Waits until every record is acknowledged or failed."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(self._producer) > 0:
            assert time.monotonic() < deadline, "the producer has records that are not settled"
            time.sleep(0.01)

    def _settle(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged_at[number_of(message.value())] = time.monotonic()


def value_of(number: int) -> bytes:
    """Returns the value of a record."""
    return f"record-{number:05}".encode()


def number_of(value: bytes | None) -> int:
    """Returns the number of a record."""
    assert value is not None
    return int(value.removeprefix(b"record-"))


def measure(cluster: ThreeBrokers, way: Way) -> Measured:
    """Produces in one way while the leader is killed, and counts the records that the log has."""
    cluster.wait_until_whole()
    leader, follower, third = NODES
    replicas = (leader, follower) if way.is_careless else NODES
    cluster.create(way.topic, replicas, CARELESS if way.is_careless else _CAREFUL)
    cluster.wait_until_whole()
    log = Log(cluster.bootstrap_servers)
    sender = _Sender(way, cluster.bootstrap_servers)
    with sender.polling():
        sender.send(0, BEHIND_AT)
        sender.flush()
        # A reader sees a record once each follower in sync has asked for the next one.
        cluster.wait(lambda: log.end([way.topic]).at(way.topic, 0) == BEHIND_AT)
        if way.is_careless:
            cluster.kill(follower)
            cluster.wait(lambda: cluster.in_sync(way.topic)[1] == {leader})
            sender.send(BEHIND_AT, KILLED_AT)
            sender.flush()
            cluster.wait(lambda: log.end([way.topic]).at(way.topic, 0) == KILLED_AT)
            seen = log.end([way.topic])
            witnesses = log.last_before(seen)
            cluster.kill(leader)
            killed_at = time.monotonic()
            cluster.start(follower)
        else:
            seen = log.end([way.topic])
            witnesses = log.last_before(seen)
            with cluster.standing_still((follower, third)):
                sender.send(BEHIND_AT, KILLED_AT)
                cluster.wait_until_written(leader, way.topic, value_of(way.last_written))
                cluster.kill(leader)
                killed_at = time.monotonic()
        sender.send(KILLED_AT, SENT)
        sender.flush()
    end = log.end([way.topic])
    found = Counter(
        number_of(record.value)
        for record in log.records([way.topic], log.beginning([way.topic]), end)
    )
    lost_ends = log.lost_ends(seen, {way.topic: {0: witnesses[way.topic, 0]}})
    cluster.start(leader)
    acknowledged = sender.acknowledged_at
    return Measured(
        way,
        acknowledged=len(acknowledged),
        lost=len(acknowledged.keys() - found.keys()),
        doubled=found.total() - len(found),
        lost_ends=lost_ends,
        latencies=sorted(
            at - sender.sent_at[number] for number, at in acknowledged.items() if number < BEHIND_AT
        ),
        # Acknowledgements are in the order in which they came.
        outage=next((at - killed_at for n, at in acknowledged.items() if n >= KILLED_AT), None),
        is_told=sender.is_told,
    )


def table(measured: Sequence[Measured]) -> str:
    """Returns a table with a row for each way."""
    head = (
        "| producer | sent | acknowledged | of these lost | doubled | noticed by | p50 | p99 "
        "| after the kill |\n|---|---:|---:|---:|---:|---|---:|---:|---:|"
    )
    return "\n".join([head, *(each.row for each in measured)])


def ensure_told(page: str, measured: Sequence[Measured]) -> None:
    """Asserts that a page lists these ways with right zeros, and says who notices each loss.

    Whether a record is doubled depends on chance: a record is doubled if a follower already has it
    when the leader dies, which is likely.
    """
    told = cells_of(page, "acks")
    assert [cells[0] for cells in told] == [each.way.name for each in measured]
    for each, (_, _, _, lost, doubled, noticed, *_) in zip(measured, told, strict=True):
        assert (each.lost == 0) == (lost == "0"), each.row
        assert each.doubled == 0 or doubled != "0", each.row
        assert each.noticed == noticed, each.row


def cells_of(page: str, name: str) -> list[list[str]]:
    """Returns the cells of each row of the table `name` in a page."""
    found = _marks(name).search(page)
    assert found is not None, f"the page has no marks of {name}"
    _, _, *rows = found[2].splitlines()
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def _percentile(values: Sequence[float], share: int) -> float:
    return values[ceil(len(values) * share / 100) - 1]


def _marks(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- losses:{name} -->\n)(.*?)(\n<!-- /losses:{name} -->)", re.DOTALL)


def main() -> None:
    """Measures all ways, and writes both tables into the page."""
    java = find_java()
    with tempfile.TemporaryDirectory(prefix="kappa-losses-") as folder:
        cluster = ThreeBrokers(Path(folder) / "brokers", ensure_jars(java), java)
        try:
            _write("acks", table([measure(cluster, way) for way in WAYS]))
            cluster.wait_until_whole()
            _write("crashes", crash_table(crash_all(Path(folder), cluster.bootstrap_servers)))
        finally:
            cluster.close()


def _write(name: str, written: str) -> None:
    print(written, flush=True)
    page = PAGE.read_text(encoding="utf-8")
    made = _marks(name).sub(lambda found: found[1] + written + found[3], page)
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
