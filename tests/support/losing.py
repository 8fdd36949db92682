"""A partition that loses its last batches, as after an unclean leader election."""

from __future__ import annotations

import struct
from pathlib import Path

from confluent_kafka import Producer

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.kafka.broker.broker import Broker
from kappa.kafka.broker_requests import wait_until
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord

# A batch's head: its base offset, its length behind these twelve bytes, and more.
_HEAD = 12


class Restarted:
    """A broker that can be stopped, lose batches, and be started again."""

    def __init__(self, root: Path, jars: Jars, java: Java) -> None:
        self._root, self._jars, self._java = root, jars, java
        self.start()

    def start(self) -> None:
        self.broker = Broker.start(self._root, self._jars, self._java, heap="256m")
        self.log = Log(self.broker.bootstrap_servers)

    def lose(self, topic: str, batches: int = 1) -> int:
        self.broker.stop()
        end = lose_last_batches(self._root, topic, batches=batches) if batches else -1
        self.start()
        return end

    def produce(self, topic: str, *values: str) -> None:
        """Produces each value in a batch of its own."""
        for value in values:
            self.log.produce([ProducedRecord(value.encode(), partition=0)], topic)


def lose_last_batches(root: Path, topic: str, partition: int = 0, *, batches: int = 1) -> int:
    """Cuts the last batches off a partition of a stopped broker. Returns the partition's new end.

    Files that belong to the lost part are deleted too, as in a broker's own truncation: the broker
    makes the indexes again, and recovers as after a crash.
    """
    data = root / "broker" / "data"
    folder = data / f"{topic}-{partition}"
    segment = max(folder.glob("*.log"))
    content = segment.read_bytes()
    starts: list[tuple[int, int]] = []
    place = 0
    while place + _HEAD <= len(content):
        base, length = struct.unpack_from(">qi", content, place)
        if length <= 0:
            break
        starts.append((place, base))
        place += _HEAD + length
    cut, end = starts[-batches]
    with segment.open("r+b") as file:
        file.truncate(cut)
    for left in (*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")):
        left.unlink()
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return end


def aborted_transaction(kafka: Restarted, topic: str) -> None:
    """Produces a record in an aborted transaction, and its marker: two offsets without a record."""
    before = kafka.log.high_watermark([topic]).at(topic, 0)
    producer = Producer(
        {"bootstrap.servers": kafka.broker.bootstrap_servers, "transactional.id": topic}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", partition=0)
    producer.flush(20)
    producer.abort_transaction(20)
    # The marker is written a moment after the answer.
    wait_until(lambda: kafka.log.end([topic]).at(topic, 0) == before + 2, "the abort's marker")
