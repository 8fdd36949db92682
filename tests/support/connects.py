"""A real Kafka Connect with a real Debezium for tests.

`connect_jars.lock` names each jar and its use. `worker` jars are those that Connect needs in
addition to the broker's. `plugin` jars are Debezium's. `converter` jars are those of Apicurio's
converter to Avro.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fetched_jars import fetched_jars
from ports import free_port
from registries import RunningRegistry

from kappa.base.java.jars import Jars
from kappa.base.java.java import find_java
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import java_text, log4j2_properties

# Connect finds a plugin in a folder of its own.
_FOLDERS = {
    "worker": "worker",
    "plugin": "plugins/debezium",
    "converter": "plugins/apicurio",
}
_READY_SECONDS = 120.0
# Connect's web server and PostgreSQL's sender each let the other side have 60 seconds to end.
_ENDED_SECONDS = 150.0
_NAME = "source"
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def ensure_connect() -> Path | None:
    """Returns the folder of all these jars, or None if they cannot be fetched here."""
    return fetched_jars("connect", Path(__file__).with_name("connect_jars.lock"), _FOLDERS)


def ensure_jdbc_sink() -> Path | None:
    """Returns the folder of Debezium's JDBC sink, or None if its jars cannot be fetched here."""
    lock = Path(__file__).with_name("jdbc_sink_jars.lock")
    return fetched_jars("jdbc-sink", lock, {"plugin": "debezium-jdbc"})


def to_avro(registry: RunningRegistry) -> dict[str, str]:
    """Returns the settings of a worker that writes keys and values in Avro.

    By default, the converter would write another kind of id, and would write the id into headers.
    """
    url = f"http://127.0.0.1:{registry.port}/apis/registry/v2"
    converter = {
        "converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "converter.apicurio.registry.url": url,
        "converter.apicurio.registry.auto-register": "true",
        "converter.apicurio.registry.as-confluent": "true",
        "converter.apicurio.registry.use-id": "contentId",
        "converter.apicurio.registry.headers.enabled": "false",
    }
    return {
        # Its jar names no plugin, so it is found by a scan alone.
        "plugin.discovery": "hybrid_warn",
        **{f"{of}.{name}": value for of in ("key", "value") for name, value in converter.items()},
    }


@dataclass
class Connect:
    """A standalone worker with one connector, which can be started and ended several times."""

    program: Path
    folder: Path
    jars: Jars
    bootstrap_servers: str
    connector: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    worker: dict[str, str] = field(default_factory=dict)

    def start(self, *, flush_ms: int) -> None:
        """Starts the worker, and waits until its task runs.

        The worker saves its positions every `flush_ms` milliseconds.
        """
        port = free_port()
        worker = {
            "bootstrap.servers": self.bootstrap_servers,
            "key.converter": _CONVERTER,
            "value.converter": _CONVERTER,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": str(self.offsets),
            "offset.flush.interval.ms": str(flush_ms),
            "plugin.path": str(self.program / "plugins"),
            "plugin.discovery": "service_load",
            "listeners": f"http://127.0.0.1:{port}",
            "topic.creation.enable": "true",
            **self.worker,
        }
        connector = {"name": _NAME, "tasks.max": "1", **self.connector}
        for name, settings in (("worker", worker), ("connector", connector)):
            text = "".join(f"{option}={value}\n" for option, value in settings.items())
            (self.folder / f"{name}.properties").write_bytes(java_text(text))
        logging = log4j2_properties(self.folder / "connect.log")
        (self.folder / "log4j2.properties").write_bytes(java_text(logging))
        path = [*self.jars.broker, *sorted((self.program / "worker").glob("*.jar"))]
        with (self.folder / "connect.out").open("ab") as output:
            self.process = start_tied(
                [
                    *(find_java().command, "-Xmx256m", "-XX:+UseSerialGC"),
                    *("-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"),
                    f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
                    *("-cp", ":".join(map(str, path))),
                    "org.apache.kafka.connect.cli.ConnectStandalone",
                    *(str(self.folder / f"{name}.properties") for name in ("worker", "connector")),
                ],
                output=output,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._runs(port):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    @property
    def offsets(self) -> Path:
        """Returns the file to which the worker saves its positions."""
        return self.folder / "offsets.dat"

    def kill(self) -> None:
        """Kills the worker at once."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends the worker in order. It saves its positions, unless it hangs."""
        self._end(signal.SIGTERM)

    def log(self) -> str:
        """Returns the end of the worker's output."""
        files = (self.folder / name for name in ("connect.out", "connect.log"))
        return "\n".join(
            file.read_text(encoding="utf-8", errors="replace")[-3000:]
            for file in files
            if file.exists()
        )

    def _end(self, number: int) -> None:
        if self.process is not None:
            os.kill(self.process.pid, number)
            try:
                self.process.wait(_ENDED_SECONDS)
            except subprocess.TimeoutExpired:
                # It hangs, which its users meet too: a kill is what the tests hold up to anyway.
                self.process.kill()
                self.process.wait()
            self.process = None

    def _runs(self, port: int) -> bool:
        name = self.connector.get("name", _NAME)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", f"/connectors/{name}/status")
            answer = connection.getresponse()
            found = json.loads(answer.read())
            return answer.status == 200 and any(
                task["state"] == "RUNNING" for task in found["tasks"]
            )
        except (OSError, ValueError, http.client.HTTPException):
            return False
        finally:
            connection.close()
