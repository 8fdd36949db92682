"""Faults of a Spark cluster in a replay of the shop: each ends with the right tables."""

from __future__ import annotations

from collections.abc import Callable

from cluster_shop import (
    PATIENCE_SECONDS,
    assert_right,
    assert_switched,
    candidate,
    is_reading,
    replay,
    slice_under_way,
)
from spark_cluster import RunningCluster
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


def kill_the_driver(bed: Testbed, cluster: RunningCluster | RunningYarn) -> None:
    """Kills the job of a replay; asserts that another goes on, and that no executor is left."""
    before = bed.live("shop")
    asked = replay(bed)
    build = candidate(bed)
    assert build is not None
    assert [kill(pid) for pid in jobs_of(bed, build)] == [True]
    assert_switched(bed, before, asked)

    bed.wait(lambda: not cluster.applications(ended=False), "the end of the first one, too")
    assert cluster.applications(ended=True).count(build) == 2


def kill_a_worker(bed: Testbed, cluster: RunningCluster) -> None:
    """Kills a worker in a replay; asserts that it costs no record and doubles none."""
    before = bed.live("shop")
    asked = replay(bed)
    cluster.kill_worker(1)
    assert_switched(bed, before, asked)

    cluster.start_worker(1)


def replay_past_a_killed_executor(bed: Testbed, kill_executor: Callable[[], bool]) -> None:
    """Replays the shop; an executor is killed while it reads, and the tables are right."""
    before = bed.live("shop")
    asked = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: is_reading(bed) and kill_executor(), "an executor at work")
    assert_switched(bed, before, asked)


def stop_a_worker_for_a_slice(bed: Testbed, cluster: RunningCluster) -> None:
    """Stops a worker until a later slice is folded; asserts that it changes nothing then."""
    before = bed.live("shop")
    asked = replay(bed)
    begun = slice_under_way(bed)
    assert begun is not None

    def is_later() -> bool:
        found = slice_under_way(bed)
        return found is not None and found.slice > begun.slice

    with cluster.stopped(0):
        bed.wait(is_later, "the next slice", PATIENCE_SECONDS)
    assert asked.poll() is None
    assert_switched(bed, before, asked)


def stop_a_worker_past_the_replay(bed: Testbed, cluster: RunningCluster) -> None:
    """Stops a worker until the replay is over; asserts that it changes nothing then."""
    before = bed.live("shop")
    asked = replay(bed)
    with cluster.stopped(0):
        assert_switched(bed, before, asked)
    cluster.wait(lambda: cluster.workers() == 2 and cluster.cores_used() == 0, "the worker")
    assert_right(bed)
