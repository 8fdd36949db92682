"""A real YARN for tests on 127.0.0.1: Hadoop's resource manager and one node."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen
from xml.sax.saxutils import escape

from fetched_jars import fetched_jars
from ports import free_port

from kappa.base.errors import KappaError
from kappa.base.java.jars import spark_home
from kappa.base.java.java import find_java
from kappa.base.process import start_tied
from kappa.kafka.broker.broker import HOST

_READY_SECONDS = 240.0
_NAP_SECONDS = 0.1
_RUNNING = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
_ENDED = "FINISHED,FAILED,KILLED"
_SERVERS = ("resourcemanager.ResourceManager", "nodemanager.NodeManager")
# Of the resource manager, then of the node.
_ADDRESSES = (
    *(f"resourcemanager.{name}address" for name in ("", "scheduler.", "admin.", "webapp.")),
    "resourcemanager.resource-tracker.address",
    *(f"nodemanager.{name}address" for name in ("", "localizer.", "webapp.")),
)


def ensure_yarn() -> Path | None:
    """Returns the folder of YARN's jars, or None if they cannot be fetched here."""
    return fetched_jars("yarn", Path(__file__).with_name("yarn_jars.lock"), {"server": "server"})


class RunningYarn:
    """A resource manager and a node, whose containers are processes."""

    def __init__(self, folder: Path, jars: Path) -> None:
        self._folder, self._jars = folder, jars
        self._node = folder / "node"
        self._processes: list[Any] = []
        (folder / "staging").mkdir(parents=True)
        self._settings = {
            **{f"yarn.{name}": f"{HOST}:{free_port()}" for name in _ADDRESSES},
            "yarn.nodemanager.hostname": HOST,
            "yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server"
            ".resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.scheduler.maximum-allocation-mb": "16384",
            # Containers ask for what Python's workers may take, and take a part of it.
            "yarn.nodemanager.resource.memory-mb": "16384",
            "yarn.nodemanager.resource.cpu-vcores": "3",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.local-dirs": str(self._node / "local"),
            "yarn.nodemanager.log-dirs": str(self._node / "logs"),
            "yarn.nodemanager.delete.debug-delay-sec": "3600",
        }

    @property
    def conf(self) -> Mapping[str, str]:
        """Returns the Spark settings with which a project uses this YARN."""
        managers = (f"yarn.resourcemanager.{name}address" for name in ("", "scheduler."))
        return {
            **{f"spark.hadoop.{name}": self._settings[name] for name in managers},
            "spark.yarn.stagingDir": (self._folder / "staging").as_uri(),
            "spark.executor.instances": "2",
        }

    def start(self) -> None:
        """Starts the resource manager and the node, and waits until the node takes containers."""
        settings = "".join(
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in self._settings.items()
        )
        conf = self._folder / "conf"
        conf.mkdir()
        (conf / "yarn-site.xml").write_text(f"<configuration>{settings}</configuration>")
        java = find_java().command
        path = [conf, *self._jars.rglob("*.jar"), spark_home() / "jars" / "*"]
        for server in _SERVERS:
            with (self._folder / f"{server}.out").open("wb") as output:
                self._processes.append(
                    start_tied(
                        [
                            *(java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                            "-Djava.net.preferIPv4Stack=true",
                            *("--add-opens", "java.base/java.lang=ALL-UNNAMED"),
                            *("-cp", ":".join(map(str, path))),
                            f"org.apache.hadoop.yarn.server.{server}",
                        ],
                        output=output,
                        folder=self._folder,
                        environment={
                            **os.environ,
                            "JAVA_HOME": str(Path(java).resolve().parent.parent),
                        },
                    )
                )
        self.wait(lambda: self._asked("metrics")["clusterMetrics"]["activeNodes"] == 1, "the node")

    def applications(self, *, ended: bool) -> list[str]:
        """Lists the names of the ended applications, or of the running ones if `ended` is False."""
        found = self._asked(f"apps?states={_ENDED if ended else _RUNNING}")["apps"]
        return [each["name"] for each in found["app"]] if found else []

    def kill_executor(self) -> bool:
        """Kills the executors; YARN starts new ones. Returns False if there are none."""
        found = [pid for pid in self._containers() if _runs(pid, "CoarseGrainedExecutorBackend")]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(found)

    def wait(self, until: Callable[[], object], what: str) -> None:
        """Waits for a state of YARN. Raises KappaError if the state is not reached in time."""
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            with suppress(OSError, ValueError):
                if until():
                    return
            if time.monotonic() > deadline:
                raise KappaError(f"{what} did not come; {self.output()}")
            time.sleep(_NAP_SECONDS)

    def output(self) -> str:
        """Returns the last lines of the output of all processes and containers."""
        files = [*self._folder.glob("*.out"), *(self._node / "logs").rglob("std*")]
        return "\n".join(
            f"== {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-25:])
            for file in sorted(files)
        )

    def close(self) -> None:
        """Kills both processes, and the remaining containers."""
        for process in self._processes:
            process.kill()
            process.wait()
        while left := self._containers():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_NAP_SECONDS)

    def _containers(self) -> list[int]:
        """Lists the processes that run in folders of the node; each container has one."""
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_in(entry, self._node)
        ]

    def _asked(self, what: str) -> Any:
        page = self._settings["yarn.resourcemanager.webapp.address"]
        with urlopen(f"http://{page}/ws/v1/cluster/{what}", timeout=30) as answer:
            return json.load(answer)


def _is_in(entry: Path, folder: Path) -> bool:
    try:
        is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        return not is_zombie and (entry / "cwd").readlink().is_relative_to(folder)
    except OSError:
        return False


def _runs(pid: int, what: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    # The shell that has begun it has all of this in one word.
    return words[0].endswith(b"java") and any(word.endswith(what.encode()) for word in words)


@contextmanager
def yarn_cluster(folder: Path, jars: Path) -> Iterator[RunningYarn]:
    """Runs YARN within the block."""
    running = RunningYarn(folder, jars)
    try:
        running.start()
        yield running
    finally:
        running.close()
