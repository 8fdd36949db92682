"""The broker is killed while a slice is being folded: each record is counted once (I1, I9)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from e2e_shop import V1, order
from reading import assert_right
from testbed import Testbed, platform

from kappa.base.process import process_id
from kappa.state.build import folder_of_build
from kappa.state.build_status import DECODED, read_progress
from kappa.state.frontier import Frontier

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault]
KILLS = 3
# In a slice of so many, Spark's workers read for long enough to be met at it.
RECORDS = 40_000


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("mid") / "shop"
    with platform(folder, "[engine]\ndriver_rows = 1000\n", shop=V1) as bed:
        produce(bed, 100)
        bed.must("deploy", "--yes")
        yield bed


def produce(bed: Testbed, count: int) -> None:
    bed.log.produce((order(number) for number in range(count)), "orders")


def kill_broker(bed: Testbed, until: Callable[[], object], what: str) -> Frontier | None:
    """Kills the broker once `until` returns True, and waits for the next broker.

    Returns the live build's frontier at the moment of the kill.
    """
    (pid,) = bed.pids("kafka.Kafka")
    broker = process_id(pid)
    assert broker is not None
    bed.wait(lambda: bool(until()), what)
    os.kill(broker.pid, signal.SIGKILL)
    then = bed.frontier(bed.live("shop"))
    bed.wait(lambda: not broker.alive() and bool(bed.pids("kafka.Kafka")), "another broker")
    bed.wait(lambda: bed.log.wait_until_ready(1.0), "its answer")
    return then


def assert_all_right(bed: Testbed) -> None:
    bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
    assert_right(bed, version=1)


def records_read(bed: Testbed) -> int:
    """Returns the number of records that the live job's workers have read for the current slice."""
    found = 0
    for path in bed.store.path(f"{folder_of_build(bed.live('shop'))}/{DECODED}").glob("*/_*.read"):
        # Its slice may end meanwhile.
        with suppress(OSError, ValueError):
            found += int(path.read_text(encoding="ascii"))
    return found


@pytest.mark.timeout(1800)
def test_a_broker_killed_in_a_slice_of_the_live_job_costs_no_record_and_doubles_none(
    bed: Testbed,
) -> None:
    for _ in range(KILLS):
        before = bed.frontier(bed.live("shop"))
        assert before is not None
        produce(bed, RECORDS)

        then = kill_broker(bed, lambda: records_read(bed), "records that are being read")

        assert then is not None
        assert (then.leg, then.slice) == (before.leg, before.slice), "the slice was over"
        assert_all_right(bed)


@pytest.mark.parametrize("step", ["read", "function", "commit"])
@pytest.mark.timeout(1800)
def test_a_broker_killed_in_a_slice_of_a_candidate_costs_no_record_and_doubles_none(
    bed: Testbed, step: str
) -> None:
    if records_of_log(bed) < RECORDS:
        produce(bed, RECORDS)
    before = bed.live("shop")
    asked = bed.start("replay", "shop", "--yes")

    def at_step() -> bool:
        rollout = bed.state().active("shop")
        if rollout is None:
            return False
        at = read_progress(bed.store, rollout.build, bed.frontier(rollout.build))
        return at is not None and at.step == step

    kill_broker(bed, at_step, f"the step {step} of a slice")
    asked.communicate(timeout=300)
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
    assert bed.live("shop") != before
    assert_all_right(bed)


def records_of_log(bed: Testbed) -> int:
    return sum(offset for _, _, offset in bed.log.end(["orders"]).items())
