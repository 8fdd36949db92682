"""Any process of a cluster dies or is suspended in a replay, and the tables are right."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from cluster_faults import (
    GIVEN_UP,
    given_up,
    kill_a_worker,
    kill_the_driver,
    stop_a_worker_for_a_slice,
    stop_a_worker_past_the_replay,
)
from cluster_shop import (
    PATIENCE_SECONDS,
    assert_right,
    assert_switched,
    candidate,
    must,
    produce,
    replay,
    shop_on_cluster,
    slice_under_way,
)
from spark_cluster import WORKERS, RunningCluster
from testbed import Testbed

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault, pytest.mark.timeout(1200)]
RECORDS = 30_000
CONF = {
    **GIVEN_UP,
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "30s",
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Testbed, RunningCluster]]:
    with shop_on_cluster(tmp_path_factory.mktemp("cluster"), CONF) as (bed, cluster):
        # The first build folds them in its tail, on this machine: each test replays all of them.
        must(bed, "deploy", "--yes")
        produce(bed, RECORDS)
        assert_right(bed)
        yield bed, cluster


def test_executors_are_taken_for_a_catch_up_and_given_back(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop
    before, ended = bed.live("shop"), len(cluster.applications(ended=True))

    asked = replay(bed)
    assert cluster.cores_used() > 0
    assert_switched(bed, before, asked)

    assert len(cluster.applications(ended=True)) == ended + 1
    assert (cluster.applications(ended=False), cluster.cores_used()) == ([], 0)


def test_a_worker_that_is_killed_costs_no_record_and_doubles_none(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    kill_a_worker(*shop)


def test_executors_that_die_in_each_slice_cost_no_record_and_double_none(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    """The executors of the two workers are killed alternately."""
    bed, cluster = shop
    before = bed.live("shop")
    killed: dict[int, list[str]] = {}

    asked = replay(bed)
    build = candidate(bed)
    assert build is not None

    def is_over() -> bool:
        found = slice_under_way(bed)
        if (
            found is not None
            and found.slice not in killed
            and (executors := cluster.kill_executor(found.slice % WORKERS))
        ):
            killed[found.slice] = executors
        return asked.poll() is not None

    bed.wait(is_over, "the end of the replay", PATIENCE_SECONDS)
    assert_switched(bed, before, asked)
    assert len(killed) > 1
    # The application may have ended before it gave the last ones up.
    *earlier, _ = killed.values()
    assert {each for executors in earlier for each in executors} <= given_up(bed, build)


def test_a_driver_that_is_killed_is_followed_by_one_that_goes_on(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    kill_the_driver(*shop)


def test_a_worker_that_comes_back_in_a_later_slice_changes_nothing(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    stop_a_worker_for_a_slice(*shop)


def test_a_worker_that_comes_back_after_the_replay_changes_nothing(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    stop_a_worker_past_the_replay(*shop)


def test_a_master_that_is_away_is_named_and_waited_for(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop
    before = bed.live("shop")
    cluster.end_master()

    asked = bed.start("replay", "shop", "--yes")
    named = f"the Spark cluster {cluster.url} does not answer"
    bed.wait(lambda: named in bed.must("status").out, "the reason")
    asked.send_signal(signal.SIGINT)
    asked.communicate(timeout=60)
    cluster.start_master()
    bed.wait(lambda: bed.live("shop") != before, "the next build")

    assert_right(bed)
