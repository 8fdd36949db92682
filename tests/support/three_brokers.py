"""A cluster of three brokers, each a controller too, any of which can be killed and started."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    ClusterMetadata,
    NewTopic,
)

from kappa.base.process import start_tied
from kappa.broker.last_run import free_ports
from kappa.broker.properties import HOST, java_text, log4j2_properties, server_properties
from kappa.java.jars import Jars
from kappa.java.java import Java

_CLUSTER_ID = "a2FwcGEta2FwcGEta2FwcA"
NODES = (1, 2, 3)
_PATIENCE_SECONDS = 120.0
# Topics of Kafka's own survive one broker, as those of users do.
_REPLICATED = """
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
replica.lag.time.max.ms=3000
"""
# A client cannot ask for the leader of the controllers: it is told of any broker as of one.
_ACTIVE = re.compile(r"Becoming the active controller at epoch (\d+)")


class ThreeBrokers:
    """Three real brokers on 127.0.0.1, with small heaps."""

    def __init__(self, root: Path, jars: Jars, java: Java) -> None:
        self._root, self._java = root, java
        self._class_path = ":".join(map(str, jars.broker))
        self._ports = {node: free_ports(None) for node in NODES}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        for node in NODES:
            self._write(node)
            done = self._command("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c")
            subprocess.run(
                [*done, str(self._settings(node))],
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
        for node in NODES:
            self.start(node)
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{port}" for port, _ in self._ports.values())

    def start(self, node: int) -> None:
        with (self._root / f"{node}.out").open("ab") as output:
            self._running[node] = start_tied(
                self._command("kafka.Kafka", str(self._settings(node)), node=node), output=output
            )

    def kill(self, node: int) -> None:
        """Kills a broker, as a power cut would end it."""
        self._running[node].kill()
        self._running.pop(node).wait()

    def stop(self, node: int) -> None:
        """Ends a broker in good order, as a restart does: it hands its leaderships over."""
        self._running[node].terminate()
        self._running.pop(node).wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        for node in tuple(self._running):
            self.kill(node)

    def create(self, topic: str, replicas: Iterable[int]) -> None:
        """Makes a topic of one partition on these brokers; the first of them is its leader.

        A replica that lacks acknowledged records may lead it, if no other is there.
        """
        new = NewTopic(
            topic,
            num_partitions=1,
            replica_assignment=[list(replicas)],
            config={
                "unclean.leader.election.enable": "true",
                "min.insync.replicas": "1",
                "retention.ms": "-1",
            },
        )
        self.wait_until_up()
        self._admin.create_topics([new])[topic].result(30)

    def wait_until_up(self) -> None:
        """Waits until all three are brokers of the cluster."""
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

    def in_sync(self, topic: str) -> tuple[int, frozenset[int]]:
        """Returns the leader of the topic's partition (-1: none), and its replicas in sync."""
        found = self._metadata()
        parts = None if found is None else found.topics[topic].partitions
        return (parts[0].leader, frozenset(parts[0].isrs)) if parts else (-1, frozenset())

    def controller(self) -> int:
        """Returns the broker that leads the controllers, by what each has written of itself."""
        epochs = {
            node: [
                int(epoch) for epoch in _ACTIVE.findall(self._log(node).read_text(errors="replace"))
            ]
            for node in self._running
        }
        return max(epochs, key=lambda node: max(epochs[node], default=0))

    def wait(self, reached: Callable[[], object]) -> None:
        """Waits for a state of the cluster; three JVMs take their time."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not reached():
            assert time.monotonic() < deadline, "the brokers did not come so far"
            time.sleep(0.05)

    def _metadata(self) -> ClusterMetadata | None:
        try:
            return self._admin.list_topics(timeout=5)
        except KafkaException:
            return None

    def _settings(self, node: int) -> Path:
        return self._root / f"{node}.properties"

    def _log(self, node: int) -> Path:
        return self._root / f"{node}.log"

    def _write(self, node: int) -> None:
        port, controller_port = self._ports[node]
        voters = ",".join(f"{each}@{HOST}:{self._ports[each][1]}" for each in NODES)
        # Java takes the last of two equal names. What one has acknowledged, another has, too.
        text = server_properties(
            self._root / f"data-{node}", port, controller_port, syncs=False
        ) + (f"node.id={node}\ncontroller.quorum.voters={voters}{_REPLICATED}")
        self._settings(node).write_bytes(java_text(text))
        (self._root / f"{node}.log4j2.properties").write_bytes(
            java_text(log4j2_properties(self._log(node)))
        )

    def _command(self, *arguments: str, node: int = NODES[0]) -> list[str]:
        return [
            *(self._java.command, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            f"-Dlog4j2.configurationFile={self._root / f'{node}.log4j2.properties'}",
            *("-Djava.net.preferIPv4Stack=true", "-cp", self._class_path, *arguments),
        ]
