"""A Spark standalone cluster of real processes, any of which tests kill or stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from demo.cluster.spark import RunningSpark
from kappa.base.process import ProcessId, process_id

_EXECUTOR = "CoarseGrainedExecutorBackend"


class RunningCluster(RunningSpark):
    """A master and its workers, whose executors can be found."""

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
    """Yields a cluster whose workers do not see the `hidden` folders; at the end it is gone.

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
