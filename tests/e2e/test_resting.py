"""Laws of a platform at rest: no job runs, and whoever needs one has it in seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import Testbed, platform

pytestmark = pytest.mark.jvm

COUNTED = "select sum(orders)::bigint as n from by_customer"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("resting") / "shop"
    with platform(folder, "[engine]\nrest_after = 1\n", whole=True, shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(50)), "orders")
        bed.must("deploy", "--yes")
        yield bed


def wait_until_at_rest(bed: Testbed) -> None:
    bed.wait(lambda: not bed.pids("kappa.engine.job.job"), "the end of all jobs")


def test_the_next_record_wakes_a_build_that_rests(bed: Testbed) -> None:
    wait_until_at_rest(bed)
    before = bed.rows(COUNTED)[0]["n"]

    acknowledged = bed.log.produce((order(number) for number in range(50, 60)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    assert bed.rows(COUNTED)[0]["n"] == before + 10
    wait_until_at_rest(bed)


def test_a_platform_that_comes_up_starts_no_job_that_has_nothing_to_do(bed: Testbed) -> None:
    bed.must("down")
    bed.must("up", "-d")
    log = bed.store.folder / "logs" / "supervisor.log"
    live = bed.live("shop")
    bed.wait(
        lambda: log.read_text().rpartition(" up: ")[2].count(f"build {live} rests") == 1, "rest"
    )

    acknowledged = bed.log.produce((order(number) for number in range(60, 70)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    begun = log.read_text().rpartition(" up: ")[2]
    assert begun.index(f"build {live} wakes") < begun.index(f"the job of build {live}")


def test_what_rests_can_be_replaced_and_what_was_kept_has_all_after_an_undo(bed: Testbed) -> None:
    wait_until_at_rest(bed)
    first, total = bed.live("shop"), bed.rows(COUNTED)[0]["n"]
    bed.declare("shop", LEAN_2)
    bed.must("deploy", "--yes")
    changed = bed.rows(COUNTED)[0]["n"]
    assert changed < total
    wait_until_at_rest(bed)

    acknowledged = bed.log.produce((order(number) for number in range(70, 80)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)
    # The build that is kept for an undo leaves a few records unread.
    kept = bed.frontier(first)
    assert kept is not None
    assert not kept.offsets.covers(acknowledged.offsets)
    assert not bed.pids("kappa.engine.job.job", first)
    status = {each["build"]: each for each in bed.must("status", "-o", "json").json()["builds"]}
    assert status[first]["role"] == "idle"
    assert not status[first]["trouble"]
    assert "rests, and folds in turns" in status[first]["note"]
    # A comparison has it fold what there is.
    bed.must("diff", "shop")
    kept = bed.frontier(first)
    assert kept is not None
    assert kept.offsets.covers(acknowledged.offsets)
    wait_until_at_rest(bed)
    acknowledged = bed.log.produce((order(number) for number in range(80, 85)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    bed.must("undo", "--yes")

    assert bed.live("shop") == first
    assert bed.rows(COUNTED)[0]["n"] == total + 15
