"""Faults of a Spark cluster during a replay of the shop. After each fault the tables are right."""

from __future__ import annotations

import re
from collections.abc import Callable
from subprocess import Popen

from cluster_shop import (
    PATIENCE_SECONDS,
    assert_right,
    assert_switched,
    candidate,
    is_reading,
    replay,
    slice_under_way,
)
from spark_cluster import WORKERS, RunningCluster
from testbed import Testbed
from victims import jobs_of, kill
from yarn_cluster import RunningYarn

# A worker that stands still is given up after this; Spark's default is two minutes. After ten
# seconds executors of a busy machine were, too.
GIVEN_UP = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.heartbeatInterval": "2s",
}
_GIVEN_UP = re.compile(r" ERROR (?:TaskSchedulerImpl|YarnScheduler): Lost executor (\S+) on ")


def given_up(bed: Testbed, build: str) -> set[str]:
    """Returns the executors that the driver of a build has given up, according to its logs."""
    logs = bed.store.local.path("logs").glob(f"{build}*.log")
    return {found for log in logs for found in _GIVEN_UP.findall(log.read_text(errors="replace"))}


def _at_work(bed: Testbed, cluster: RunningCluster, asked: Popen[str]) -> tuple[int, str, str]:
    """Waits until tasks read. Returns a worker, its executor that is at work, and the build."""
    found: list[tuple[int, str, str]] = []

    def are_found() -> bool:
        assert asked.poll() is None, "the replay is not over"
        build = candidate(bed)
        if build is not None and is_reading(bed):
            found.extend(
                (number, executor, build)
                for number in range(WORKERS)
                for executor in cluster.at_work(number)
            )
        return bool(found)

    bed.wait(are_found, "an executor at work", PATIENCE_SECONDS)
    return found[-1]


def kill_the_driver(bed: Testbed, cluster: RunningCluster | RunningYarn) -> None:
    """Kills the job of a replay; asserts that another continues and no executor is left."""
    before = bed.live("shop")
    asked = replay(bed)
    build = candidate(bed)
    assert build is not None
    assert [kill(pid) for pid in jobs_of(bed, build)] == [True]
    assert_switched(bed, before, asked)

    bed.wait(lambda: not cluster.applications(ended=False), "the end of the first one, too")
    assert cluster.applications(ended=True).count(build) == 2


def kill_a_worker(bed: Testbed, cluster: RunningCluster) -> None:
    """Kills a worker in a replay; asserts that no record is lost or counted twice."""
    before = bed.live("shop")
    asked = replay(bed)
    worker, executor, build = _at_work(bed, cluster, asked)
    cluster.kill_worker(worker)
    assert_switched(bed, before, asked)
    assert executor in given_up(bed, build)

    cluster.start_worker(worker)


def replay_past_a_killed_executor(bed: Testbed, kill_executor: Callable[[], object]) -> None:
    """Kills an executor that reads in a replay of the shop; asserts that the tables are right."""
    before = bed.live("shop")
    asked = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: is_reading(bed) and bool(kill_executor()), "an executor at work")
    build = candidate(bed)
    assert build is not None
    assert_switched(bed, before, asked)
    assert given_up(bed, build)


def stop_a_worker_for_a_slice(bed: Testbed, cluster: RunningCluster) -> None:
    """Stops a worker until a later slice is folded; asserts that it changes nothing then."""
    before = bed.live("shop")
    asked = replay(bed)
    worker, executor, build = _at_work(bed, cluster, asked)
    begun = slice_under_way(bed)
    assert begun is not None

    def is_later() -> bool:
        found = slice_under_way(bed)
        return found is not None and found.slice > begun.slice

    with cluster.stopped(worker):
        bed.wait(is_later, "the next slice", PATIENCE_SECONDS)
        bed.wait(lambda: executor in given_up(bed, build), "an executor that is given up")
        assert asked.poll() is None
    assert_switched(bed, before, asked)


def stop_a_worker_past_the_replay(bed: Testbed, cluster: RunningCluster) -> None:
    """Stops a worker until the replay is over; asserts that the resumed worker changes nothing."""
    before = bed.live("shop")
    asked = replay(bed)
    worker, executor, build = _at_work(bed, cluster, asked)
    with cluster.stopped(worker):
        assert_switched(bed, before, asked)
        assert executor in given_up(bed, build)
    cluster.wait(lambda: cluster.workers() == WORKERS and cluster.cores_used() == 0, "the worker")
    assert_right(bed)
