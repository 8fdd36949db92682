"""Spark's standalone cluster on 127.0.0.1, of real processes. Each process can be killed.

The jars are those of the installed PySpark. Workers may be isolated: then each worker runs in a
separate mount namespace, in which some folders are empty. The worker and this machine share all
other folders.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from kappa.base.errors import KappaError
from kappa.base.java.jars import spark_home
from kappa.base.java.java import locate_java
from kappa.base.process import ensure_session_gone, start_tied, started
from kappa.kafka.broker.broker import HOST, free_ports

_PATIENCE_SECONDS = 240.0
_NAP_SECONDS = 0.05
# Mounts an empty file system over each folder, in this namespace alone, and becomes the command.
_ISOLATED = (
    'while [ "$1" != -- ]; do mount -t tmpfs tmpfs "$1" || exit 1; shift; done; shift; exec "$@"'
)


def why_not_isolated() -> str | None:
    """Returns the reason why workers cannot be isolated on this machine, or None if they can."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "no unshare"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else "no mount namespaces without root"


@dataclass(frozen=True, slots=True)
class Started:
    """A process of the cluster and its start time. The process is a session leader."""

    process: subprocess.Popen[bytes]
    born: int

    def end(self) -> None:
        """Kills the process, and the executors that it has started in its session."""
        self.process.kill()
        self.process.wait()
        assert ensure_session_gone(self.process.pid, since=self.born), "nothing survives SIGKILL"


class RunningSpark:
    """A Spark master and its workers. Each worker has one core."""

    def __init__(
        self,
        folder: Path,
        hidden: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares the cluster without starting it.

        The output of the processes is written to `folder`. The folders in `hidden` are not visible
        to the workers.
        """
        self._folder, self._hidden = folder, hidden
        self._environment = os.environ if environment is None else environment
        folder.mkdir(parents=True, exist_ok=True)
        self._port, self._page = free_ports(None)
        self._master: Started | None = None
        self._workers: dict[int, Started] = {}

    @property
    def url(self) -> str:
        """Returns the master's URL."""
        return f"spark://{HOST}:{self._port}"

    @property
    def page(self) -> str:
        """Returns the URL of the master's web page."""
        return f"http://{HOST}:{self._page}"

    def start_master(self) -> None:
        """Starts the master, and waits until it answers."""
        self._master = self._start(
            "master",
            [
                *("org.apache.spark.deploy.master.Master", "--host", HOST),
                *("--port", str(self._port), "--webui-port", str(self._page)),
            ],
        )
        self.wait(lambda: self._state() is not None, "the master")

    def end_master(self) -> None:
        """Kills the master."""
        assert self._master is not None, "it has been started"
        self._master.end()
        self._master = None

    def start_worker(self, number: int) -> None:
        """Starts a worker, and waits until the worker is registered with the master."""
        before = self.workers()
        self._workers[number] = self._start(
            f"worker-{number}",
            [
                *("org.apache.spark.deploy.worker.Worker", "--host", HOST, "--webui-port", "0"),
                *("--cores", "1", "--memory", "1g"),
                *("--work-dir", str(self._folder / f"work-{number}"), self.url),
            ],
            self._hidden,
        )
        self.wait(lambda: self.workers() > before, f"worker {number}")

    def kill_worker(self, number: int) -> None:
        """Kills a worker and its executors without a shutdown, as in a power cut."""
        self._workers.pop(number).end()

    def workers(self) -> int:
        """Returns the number of workers that the master considers alive."""
        state = self._state()
        return 0 if state is None else int(state["aliveworkers"])

    def cores_used(self) -> int:
        """Returns the number of the cluster's cores that executors use now."""
        state = self._state()
        return 0 if state is None else int(state["coresused"])

    def applications(self, *, ended: bool) -> list[str]:
        """Lists the names of the ended applications, or of the running ones if `ended` is False."""
        state = self._state()
        listed = [] if state is None else state["completedapps" if ended else "activeapps"]
        return [each["name"] for each in listed]

    def wait(self, until: Callable[[], object], what: str) -> None:
        """Waits until `until` returns a true value.

        Raises KappaError after four minutes, with `what` in its message.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not until():
            if time.monotonic() > deadline:
                raise KappaError(f"{what} did not come; {self.output()}")
            time.sleep(_NAP_SECONDS)

    def output(self) -> str:
        """Returns the last lines of output of all processes, including executors."""
        files = [*self._folder.glob("*.out"), *self._folder.glob("work-*/*/*/stderr")]
        return "\n".join(
            f"== {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-25:])
            for file in sorted(files)
        )

    def close(self) -> None:
        """Kills the workers, their executors, and the master."""
        for each in (*self._workers.values(), self._master):
            if each is not None:
                each.end()

    def _state(self) -> dict[str, Any] | None:
        try:
            with urlopen(f"{self.page}/json/", timeout=30) as answer:  # noqa: S310  our own URL
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            # A page of its own comes before those of the master.
            return None
        return found

    def _start(self, name: str, arguments: list[str], hidden: Sequence[Path] = ()) -> Started:
        command = [
            *(locate_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            "-Dspark.master.rest.enabled=false",
            *("-cp", str(spark_home() / "jars" / "*"), *arguments),
        ]
        if hidden:
            shown = [str(folder) for folder in hidden]
            command = ["unshare", "-m", "sh", "-c", _ISOLATED, "sh", *shown, "--", *command]
        with (self._folder / f"{name}.out").open("ab") as output:
            process = start_tied(
                command,
                output=output,
                folder=self._folder,
                environment={
                    **self._environment,
                    "SPARK_HOME": str(spark_home()),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_NO_DAEMONIZE": "1",
                    "SPARK_SCALA_VERSION": "2.13",
                },
            )
        return Started(process, started(process.pid) or 0)
