"""Workers that see the root's bucket, but no file of the control host, fold a build.

This also works if an executor, a worker or the driver dies in a slice, or if a worker is suspended
in a slice and returns late. Decoded files are in the bucket meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cluster_faults import (
    GIVEN_UP,
    kill_a_worker,
    kill_the_driver,
    replay_past_a_killed_executor,
    stop_a_worker_for_a_slice,
    stop_a_worker_past_the_replay,
)
from cluster_shop import assert_right, must, produce, shop_on_cluster
from object_store import ObjectStore
from spark_cluster import RunningCluster
from testbed import Testbed

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.timeout(900)]
RECORDS = 30_000


@pytest.fixture(scope="module")
def shop(
    object_store: ObjectStore, lent: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Testbed, RunningCluster]]:
    """Yields a shop with two workers, which have credentials in their own environment."""
    endpoint = object_store.storage.endpoint
    rooted = f'root = "{object_store.new_root()}"\n[storage]\nendpoint = "{endpoint}"\n{lent}'
    folder = tmp_path_factory.mktemp("cluster")
    with shop_on_cluster(folder, GIVEN_UP, rooted=rooted) as (bed, cluster):
        produce(bed, RECORDS)
        must(bed, "deploy", "--yes")
        yield bed, cluster


def test_a_build_is_folded_by_workers_that_see_the_bucket_alone(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop

    assert_right(bed)

    build = bed.live("shop")
    assert cluster.applications(ended=True) == [build], cluster.output()
    assert bed.store.names(f"builds/{build}/slice") == ()


@pytest.mark.fault
def test_an_executor_that_is_killed_costs_no_record_and_leaves_nothing(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop

    replay_past_a_killed_executor(bed, lambda: cluster.kill_executor(0))

    assert bed.store.names(f"builds/{bed.live('shop')}/slice") == ()


@pytest.mark.fault
@pytest.mark.parametrize("kill", [kill_a_worker, kill_the_driver])
def test_a_worker_or_a_driver_that_is_killed_costs_no_record_and_leaves_nothing(
    shop: tuple[Testbed, RunningCluster], kill: Callable[[Testbed, RunningCluster], None]
) -> None:
    bed, cluster = shop

    kill(bed, cluster)

    assert bed.store.names(f"builds/{bed.live('shop')}/slice") == ()


@pytest.mark.fault
@pytest.mark.parametrize("stop", [stop_a_worker_for_a_slice, stop_a_worker_past_the_replay])
def test_a_worker_that_comes_back_late_costs_no_record_and_doubles_none(
    shop: tuple[Testbed, RunningCluster], stop: Callable[[Testbed, RunningCluster], None]
) -> None:
    """Files that a late worker may still put are deleted when the build's next job begins."""
    stop(*shop)
