"""Laws of a platform with a spare: commands and jobs use it, and the results are the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import Testbed, platform

from kappa.code.task import SPARES, spare_sockets

pytestmark = [pytest.mark.long, pytest.mark.jvm]


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("spares") / "shop"
    with platform(folder, whole=True, shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(50)), "orders")
        yield bed


@pytest.fixture
def serving(bed: Testbed) -> Testbed:
    """Returns the platform with a serving shop."""
    if "shop" not in bed.state().serving:
        bed.must("deploy", "--yes")
    return bed


def spare_of(bed: Testbed) -> int:
    """Waits for a warm spare, and returns its process id."""
    folder = bed.store.path(SPARES)
    bed.wait(lambda: any(spare_sockets(folder)), "a spare with a door")
    return int(next(iter(spare_sockets(folder))).name.partition("-")[0])


def test_a_deploy_has_the_spare_describe_and_the_next_one_become_the_job(bed: Testbed) -> None:
    spare = spare_of(bed)

    said = bed.must("deploy", "--yes")

    assert "in 2 of 2 ways to cut them" in said.err + said.out
    assert not Path(f"/proc/{spare}").exists()
    live = bed.live("shop")
    (job,) = bed.pids("kappa.engine.job.job", live)
    # One process was the catch-up and is the tail: there was nothing to boot a second time.
    begun = (bed.store.folder / "logs" / "supervisor.log").read_text(encoding="utf-8")
    assert begun.count(f"the job of build {live}") == 1
    assert f"begins, process {job}" in begun
    # It is at a normal priority: it serves.
    assert os.getpriority(os.PRIO_PROCESS, job) == 0
    assert bed.rows("select count(*) as n from by_customer")[0]["n"] > 0


def test_a_job_that_is_killed_is_followed_by_the_spare(serving: Testbed) -> None:
    bed = serving
    spare = spare_of(bed)
    live = bed.live("shop")
    (job,) = bed.pids("kappa.engine.job.job", live)

    os.kill(job, signal.SIGKILL)
    acknowledged = bed.log.produce((order(number) for number in range(50, 60)), "orders")
    bed.wait_until_folded("shop", acknowledged.offsets)

    assert bed.pids("kappa.engine.job.job", live) == [spare]
    assert spare_of(bed) != spare


def test_a_killed_spare_costs_a_command_time_alone(serving: Testbed) -> None:
    bed = serving
    spare = spare_of(bed)
    os.kill(spare, signal.SIGSTOP)
    os.kill(spare, signal.SIGKILL)
    bed.declare("shop", LEAN_2)

    assert "shop: changed" in bed.must("plan").out
