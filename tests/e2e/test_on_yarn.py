"""A build that Spark folds on Hadoop's YARN equals the build that this machine folds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cluster_faults import kill_the_driver, replay_past_a_killed_executor
from cluster_shop import assert_right, must, produce, shop_on_yarn
from testbed import Testbed
from yarn_cluster import RunningYarn, ensure_yarn

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Testbed, RunningYarn]]:
    jars = ensure_yarn()
    if jars is None:
        pytest.skip("not run: no YARN, since its jars cannot be fetched")
    with shop_on_yarn(tmp_path_factory.mktemp("yarn"), jars) as (bed, yarn):
        produce(bed, 30_000)
        must(bed, "deploy", "--yes")
        yield bed, yarn


def test_a_build_is_folded_on_yarn_which_is_free_again_then(
    shop: tuple[Testbed, RunningYarn],
) -> None:
    bed, yarn = shop

    assert_right(bed)

    build = bed.live("shop")
    yarn.wait(lambda: not yarn.applications(ended=False), "the end of the application")
    assert yarn.applications(ended=True) == [build], yarn.output()


@pytest.mark.fault
def test_an_executor_that_is_killed_in_a_slice_costs_no_record_and_doubles_none(
    shop: tuple[Testbed, RunningYarn],
) -> None:
    bed, yarn = shop

    replay_past_a_killed_executor(bed, yarn.kill_executor)


@pytest.mark.fault
def test_a_driver_that_is_killed_is_followed_by_another(shop: tuple[Testbed, RunningYarn]) -> None:
    bed, yarn = shop

    kill_the_driver(bed, yarn)
