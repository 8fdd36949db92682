"""A Spark standalone cluster of real processes, any of which can be killed or stopped.

It listens on 127.0.0.1 alone. Its jars are those of the installed PySpark. Workers may be isolated:
each in a mount namespace of its own, in which some folders are empty. All others are shared.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from kappa.base.process import ProcessId, ensure_session_gone, process_id, start_tied, started
from kappa.broker.last_run import free_ports
from kappa.java.jars import spark_home
from kappa.java.java import locate_java

HOST = "127.0.0.1"
_PATIENCE_SECONDS = 240.0
_NAP_SECONDS = 0.05
_EXECUTOR = "CoarseGrainedExecutorBackend"
# Mounts an empty file system over each folder, in this namespace alone, and becomes the command.
_ISOLATED = (
    'while [ "$1" != -- ]; do mount -t tmpfs tmpfs "$1" || exit 1; shift; done; shift; exec "$@"'
)


def why_not_isolated() -> str | None:
    """Returns why workers cannot be isolated on this machine, or None if they can."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return "no unshare"
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return None if tried.returncode == 0 else "no mount namespaces without root"


@dataclass(frozen=True, slots=True)
class _Started:
    """A process of the cluster, which leads its session, and its time of birth."""

    process: subprocess.Popen[bytes]
    born: int

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        # The executors that a worker has started are of its session.
        assert ensure_session_gone(self.process.pid, since=self.born)


class RunningCluster:
    """A master and its workers, each of one core."""

    def __init__(self, folder: Path, hidden: Sequence[Path] = ()) -> None:
        """Takes a folder for what its processes print, and folders that workers do not see."""
        self._folder, self._hidden = folder, hidden
        folder.mkdir(parents=True, exist_ok=True)
        self._port, self._page = free_ports(None)
        self._master: _Started | None = None
        self._workers: dict[int, _Started] = {}

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def start_master(self) -> None:
        self._master = self._start(
            "master",
            [
                *("org.apache.spark.deploy.master.Master", "--host", HOST),
                *("--port", str(self._port), "--webui-port", str(self._page)),
            ],
        )
        self.wait(lambda: self._state() is not None, "the master")

    def end_master(self) -> None:
        assert self._master is not None
        self._master.end()
        self._master = None

    def start_worker(self, number: int) -> None:
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
        """Kills a worker and its executors, as a power cut would end them."""
        self._workers.pop(number).end()

    def executors(self, number: int) -> list[ProcessId]:
        """Lists the executors that a worker has started and that live."""
        session = self._workers[number].process.pid
        found = [
            process_id(int(entry.name))
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and _is_executor(entry, session)
        ]
        return [each for each in found if each is not None]

    def kill_executor(self, number: int) -> bool:
        """Kills the executors of a worker, which starts others. False if it has none."""
        found = self.executors(number)
        for each in found:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        return bool(found)

    @contextmanager
    def stopped(self, number: int) -> Iterator[None]:
        """Stops a worker with all it has started: its host stands still within the block."""
        session = self._workers[number].process.pid
        pids = [int(each.name) for each in Path("/proc").iterdir() if _is_of(each, session)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def workers(self) -> int:
        """Counts the workers that the master takes for alive."""
        state = self._state()
        return 0 if state is None else int(state["aliveworkers"])

    def cores_used(self) -> int:
        """Counts the cores that executors have."""
        state = self._state()
        return 0 if state is None else int(state["coresused"])

    def applications(self, *, ended: bool) -> list[str]:
        """Lists the names of the applications that have ended, or of those that run."""
        state = self._state()
        listed = [] if state is None else state["completedapps" if ended else "activeapps"]
        return [each["name"] for each in listed]

    def wait(self, until: Callable[[], object], what: str) -> None:
        """Waits for a state of the cluster."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not until():
            assert time.monotonic() < deadline, f"{what} did not come; {self.output()}"
            time.sleep(_NAP_SECONDS)

    def output(self) -> str:
        """Returns the last lines that its processes have printed, executors too."""
        files = [*self._folder.glob("*.out"), *self._folder.glob("work-*/*/*/stderr")]
        return "\n".join(
            f"== {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-25:])
            for file in sorted(files)
        )

    def close(self) -> None:
        for each in (*self._workers.values(), self._master):
            if each is not None:
                each.end()

    def _state(self) -> dict[str, Any] | None:
        try:
            with urlopen(f"http://{HOST}:{self._page}/json/", timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            # A page of its own comes before those of the master.
            return None
        return found

    def _start(self, name: str, arguments: list[str], hidden: Sequence[Path] = ()) -> _Started:
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
                    **os.environ,
                    "SPARK_HOME": str(spark_home()),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_NO_DAEMONIZE": "1",
                    "SPARK_SCALA_VERSION": "2.13",
                },
            )
        return _Started(process, started(process.pid) or 0)


def _is_executor(entry: Path, session: int) -> bool:
    try:
        return _is_of(entry, session) and _EXECUTOR in (entry / "cmdline").read_text()
    except OSError:
        return False


def _is_of(entry: Path, session: int) -> bool:
    if not entry.name.isdigit():
        return False
    try:
        return os.getsid(int(entry.name)) == session
    except ProcessLookupError:
        return False


@contextmanager
def spark_cluster(
    folder: Path, *, workers: int = 2, hidden: Sequence[Path] = ()
) -> Iterator[RunningCluster]:
    """Yields a cluster whose workers do not see the `hidden` folders; at the end it is gone."""
    cluster = RunningCluster(folder, hidden)
    try:
        cluster.start_master()
        for number in range(workers):
            cluster.start_worker(number)
        yield cluster
    finally:
        cluster.close()
