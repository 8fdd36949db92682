"""A Spark standalone cluster of real processes, which tests kill or stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from demo.cluster.spark import RunningSpark

WORKERS = 2
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_PYTHON = "kappa.engine.spark.workers"


class RunningCluster(RunningSpark):
    """A master and its workers, whose executors can be found."""

    def at_work(self, number: int) -> dict[str, int]:
        """Returns the executors of a worker that have run a task: process ids by Spark's ids.

        An executor starts Python with its first task, so the driver knows these executors.
        """
        found = {}
        for pid in self._session(number):
            if _PYTHON in _words(pid) and _EXECUTOR in (words := _words(parent := _parent(pid))):
                found[words[words.index("--executor-id") + 1]] = parent
        return found

    def kill_executor(self, number: int) -> list[str]:
        """Kills the executors of a worker that have run a task, and returns their ids.

        The worker starts new executors.
        """
        found = self.at_work(number)
        for pid in found.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return list(found)

    @contextmanager
    def stopped(self, number: int) -> Iterator[None]:
        """Suspends a worker and all processes that it has started, within the block."""
        pids = self._session(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _session(self, number: int) -> list[int]:
        """Lists the processes of a worker and of all that it has started."""
        session = self._workers[number].process.pid
        pids = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
        return [pid for pid in pids if _is_of(pid, session)]


def _is_of(pid: int, session: int) -> bool:
    try:
        return os.getsid(pid) == session
    except ProcessLookupError:
        return False


def _words(pid: int) -> list[str]:
    """Returns the command line of a process, or an empty list if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    """Returns the parent of a process, or 0 if the process has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextmanager
def spark_cluster(
    folder: Path, *, workers: int = WORKERS, hidden: Sequence[Path] = ()
) -> Iterator[RunningCluster]:
    """Yields a cluster whose workers do not see the `hidden` folders; it ends with the block.

    Its machines are in another time zone.
    """
    cluster = RunningCluster(folder, hidden, environment={**os.environ, "TZ": "Asia/Tokyo"})
    try:
        cluster.start_master()
        for number in range(workers):
            cluster.start_worker(number)
        yield cluster
    finally:
        cluster.close()
