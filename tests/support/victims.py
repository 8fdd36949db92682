"""The processes of a platform by their tasks. Each is found, killed or stopped by its id."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from testbed import Testbed

from kappa.base.process import process_id

SUPERVISOR, LIVE, CANDIDATE = "supervisor", "live job", "candidate's job"
VERIFIER, ARCHIVER, HTTP, BROKER = "verifier", "archiver", "HTTP server", "broker"
COURIER, CONSUMER, COMMAND = "courier", "consumer", "kappa changes"

_PROGRAMS = {
    SUPERVISOR: "kappa.replay.platform.supervisor",
    VERIFIER: "kappa.replay.rollout.verify.verify",
    ARCHIVER: "kappa.engine.archive.archiver",
    HTTP: "kappa.replay.platform.serve",
    BROKER: "kafka.Kafka",
    COURIER: "kappa.serving.outlets.courier",
    CONSUMER: "consuming.py",
    COMMAND: "cli changes",
}


def pids_of(bed: Testbed, victim: str, builds: dict[str, str]) -> list[int]:
    """Lists the processes of a victim; `builds` gives the build of each victim that is a job."""
    if victim in _PROGRAMS:
        return bed.pids(_PROGRAMS[victim])
    build = builds.get(victim)
    return [] if build is None else jobs_of(bed, build)


def jobs_of(bed: Testbed, build: str) -> list[int]:
    return bed.pids("kappa.engine.job.job", build)


def kill(pid: int) -> bool:
    """Kills a process as `kill -9` does, and waits until it is dead.

    Returns False if the process had exited before.
    """
    process = process_id(pid)
    if process is None:
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while process.alive():
        os.sched_yield()
    return True


def stop(pid: int) -> bool:
    """Suspends a process until it is resumed. Returns False if the process has exited."""
    return _sent(pid, signal.SIGSTOP)


def go_on(pid: int) -> bool:
    """Resumes a suspended process. Returns False if the process has exited."""
    return _sent(pid, signal.SIGCONT)


def _sent(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Suspends a process within the block. It is no error if the process exits meanwhile."""
    stop(pid)
    try:
        yield
    finally:
        go_on(pid)
