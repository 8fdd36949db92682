"""A build that a Spark cluster folds equals the build that this machine folds.

This also holds if an executor dies. Workers see neither the project nor the user's cache: the code
and Numba's compiled files are shipped. tests/e2e/test_cluster_kills.py kills all other processes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_faults import replay_past_a_killed_executor
from cluster_shop import assert_right, declare_dearer, must, produce, shop_on_cluster
from spark_cluster import RunningCluster
from testbed import Testbed

from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.timeout(900)]
RECORDS = 30_000


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Testbed, RunningCluster]]:
    with shop_on_cluster(tmp_path_factory.mktemp("cluster")) as (bed, cluster):
        produce(bed, RECORDS)
        must(bed, "deploy", "--yes")
        yield bed, cluster


def test_a_build_is_folded_on_the_cluster_which_is_free_again_then(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop

    assert_right(bed)

    build = bed.live("shop")
    assert cluster.applications(ended=True) == [build], cluster.output()
    assert (cluster.applications(ended=False), cluster.cores_used()) == ([], 0)


@pytest.mark.fault
def test_an_executor_that_is_killed_in_a_slice_costs_no_record_and_doubles_none(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    bed, cluster = shop

    replay_past_a_killed_executor(bed, lambda: cluster.kill_executor(0))


@pytest.mark.sweep
def test_the_fold_of_a_proof_runs_on_the_cluster(shop: tuple[Testbed, RunningCluster]) -> None:
    bed, cluster = shop

    assert "proved: 3 tables" in must(bed, "prove", "shop", "--slices", "2")

    assert f"proof of {bed.live('shop')}" in cluster.applications(ended=True)
    assert (cluster.applications(ended=False), cluster.cores_used()) == ([], 0)


@pytest.mark.sweep
def test_the_base_of_a_branch_is_folded_on_the_cluster_by_the_code_before(
    shop: tuple[Testbed, RunningCluster],
) -> None:
    """No kept frontier is at the base, so the cluster folds up to the base, and the rest too."""
    bed, cluster = shop
    ends = bed.log.end(["orders"])
    base = Offsets({"orders": {partition: 9 * end // 20 for _, partition, end in ends.items()}})
    declare_dearer(bed)

    must(bed, "branch", "shop", "--from", str(base).replace(" ", ","), "--yes")

    assert cluster.applications(ended=True).count(bed.live("shop")) == 2
    assert_right(bed, dearer_from=base)
