"""A cluster of three brokers, with the questions and waits that tests need."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    ClusterMetadata,
    NewTopic,
)
from victims import standing_still

from demo.cluster.brokers import NODES, Brokers
from kappa.base.java.jars import Jars
from kappa.base.java.java import Java

_PATIENCE_SECONDS = 120.0
# A client cannot ask for the leader of the controllers: it is told of any broker as of one.
_ACTIVE = re.compile(r"Becoming the active controller at epoch (\d+)")
# A replica that lacks acknowledged records may lead, if no other is there.
CARELESS = MappingProxyType({"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})


class ThreeBrokers(Brokers):
    """Three real brokers, and a client of all three."""

    def __init__(self, root: Path, jars: Jars, java: Java) -> None:
        super().__init__(root, jars, java)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create(
        self, topic: str, replicas: Iterable[int], options: Mapping[str, str] = CARELESS
    ) -> None:
        """Makes a topic with one partition on these brokers; the first broker is its leader."""
        new = NewTopic(
            topic,
            num_partitions=1,
            replica_assignment=[list(replicas)],
            config={"retention.ms": "-1", **options},
        )
        self.wait_until_up()
        self._admin.create_topics([new])[topic].result(30)

    def wait_until_up(self) -> None:
        """Waits until all three brokers belong to the cluster."""
        self.wait(lambda: (found := self._metadata()) and len(found.brokers) == len(NODES))

    def wait_until_whole(self) -> None:
        """Waits until each partition has all of its replicas in sync."""
        self.wait_until_up()
        self.wait(
            lambda: (
                (found := self._metadata())
                and all(
                    len(part.isrs) == len(part.replicas)
                    for topic in found.topics.values()
                    for part in topic.partitions.values()
                )
            )
        )

    def wait_until_without(self, node: int) -> None:
        """Waits until no partition has this broker as leader or as a replica in sync.

        The controllers decide that, so most of them must live.
        """
        self.wait(
            lambda: (
                (found := self._metadata())
                and all(
                    part.leader not in {-1, node} and node not in part.isrs
                    for topic in found.topics.values()
                    for part in topic.partitions.values()
                )
            )
        )

    @contextmanager
    def standing_still(self, nodes: Iterable[int]) -> Iterator[None]:
        """Suspends brokers within the block, as a long pause would."""
        with ExitStack() as stopped:
            for node in nodes:
                stopped.enter_context(standing_still(self._running[node].pid))
            yield

    def wait_until_written(self, node: int, topic: str, value: bytes) -> None:
        """Waits until a broker has a record in the file of the topic's first segment."""
        segment = self._folder / f"data-{node}" / f"{topic}-0" / f"{0:020}.log"
        self.wait(lambda: value in segment.read_bytes())

    def refusal(self, topic: str) -> KafkaError | None:
        """Sends one record; returns why it is not acknowledged, or None if it is."""
        answers: list[KafkaError | None] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "acks": "all",
                "retries": 0,
                "log_level": 0,
            }
        )
        producer.produce(topic, key=b"", on_delivery=lambda error, _: answers.append(error))
        producer.flush(_PATIENCE_SECONDS)
        (answer,) = answers
        return answer

    def in_sync(self, topic: str) -> tuple[int, frozenset[int]]:
        """Returns the leader of the topic's partition (-1 for none), and its replicas in sync."""
        found = self._metadata()
        parts = None if found is None else found.topics[topic].partitions
        return (parts[0].leader, frozenset(parts[0].isrs)) if parts else (-1, frozenset())

    def controller(self) -> int:
        """Returns the broker that leads the controllers, according to the logs."""
        epochs = {
            node: [
                int(epoch) for epoch in _ACTIVE.findall(self._log(node).read_text(errors="replace"))
            ]
            for node in self._running
        }
        return max(epochs, key=lambda node: max(epochs[node], default=0))

    def wait(self, reached: Callable[[], object]) -> None:
        """Waits for a state of the cluster, patiently, because three JVMs are slow."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < deadline, "the brokers did not come so far"
            time.sleep(0.05)

    def _metadata(self) -> ClusterMetadata | None:
        try:
            return self._admin.list_topics(timeout=5)
        except KafkaException:
            return None
