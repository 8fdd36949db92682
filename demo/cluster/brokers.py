"""Three Kafka brokers on 127.0.0.1. Each is also a controller, and each can be killed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import (
    HOST,
    free_ports,
    java_text,
    log4j2_properties,
    server_properties,
)

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


class Brokers:
    """Three real brokers with small heaps. Their data and logs are in one folder."""

    def __init__(
        self, folder: Path, jars: Jars, java: Java, environment: Mapping[str, str] | None = None
    ) -> None:
        """Starts the brokers with the given `environment`, without waiting until they answer."""
        self._folder, self._java, self._environment = folder, java, environment
        self._class_path = ":".join(map(str, jars.broker))
        self._ports = {node: free_ports(None) for node in NODES}
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        try:
            for node in NODES:
                self._format(node)
            for node in NODES:
                self.start(node)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """Returns the addresses of all three brokers."""
        return ",".join(f"{HOST}:{port}" for port, _ in self._ports.values())

    def start(self, node: int) -> None:
        """Starts a broker. The broker is killed when this process exits."""
        with (self._folder / f"{node}.out").open("ab") as output:
            self._running[node] = start_tied(
                self._command("kafka.Kafka", str(self._settings(node)), node=node),
                output=output,
                environment=self._environment,
            )

    def kill(self, node: int) -> None:
        """Kills a broker without a shutdown, as in a power cut."""
        self._running[node].kill()
        self._running.pop(node).wait()

    def stop(self, node: int) -> None:
        """Shuts a broker down as for a restart: other brokers first take over its leaderships."""
        self._running[node].terminate()
        self._running.pop(node).wait(_PATIENCE_SECONDS)

    def close(self) -> None:
        """Kills all running brokers."""
        for node in tuple(self._running):
            self.kill(node)

    def _format(self, node: int) -> None:
        port, controller_port = self._ports[node]
        voters = ",".join(f"{each}@{HOST}:{self._ports[each][1]}" for each in NODES)
        # Java takes the last of two equal names. What one has acknowledged, another has, too.
        text = server_properties(
            self._folder / f"data-{node}", port, controller_port, syncs=False
        ) + (f"node.id={node}\ncontroller.quorum.voters={voters}{_REPLICATED}")
        self._settings(node).write_bytes(java_text(text))
        (self._folder / f"{node}.log4j2.properties").write_bytes(
            java_text(log4j2_properties(self._log(node)))
        )
        command = self._command("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c")
        subprocess.run(
            [*command, str(self._settings(node))],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )

    def _settings(self, node: int) -> Path:
        return self._folder / f"{node}.properties"

    def _log(self, node: int) -> Path:
        return self._folder / f"{node}.log"

    def _command(self, *arguments: str, node: int = NODES[0]) -> list[str]:
        return [
            *(self._java.command, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            f"-Dlog4j2.configurationFile={self._folder / f'{node}.log4j2.properties'}",
            *("-Djava.net.preferIPv4Stack=true", "-cp", self._class_path, *arguments),
        ]
