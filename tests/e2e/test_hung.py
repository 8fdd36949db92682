"""A live job that is stopped, not killed: an undo goes on, and it heals (I9)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import platform

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault]


def test_an_undo_tells_of_the_live_job_that_hangs_and_goes_on(tmp_path: Path) -> None:
    with platform(tmp_path / "shop", "[engine]\nhung_seconds = 6\n", shop=LEAN_1) as bed:
        bed.log.produce((order(number) for number in range(100)), "orders")
        bed.must("deploy", "--yes")
        first = bed.live("shop")
        bed.declare("shop", LEAN_2)
        bed.must("deploy", "--yes")
        second = bed.live("shop")
        (hung,) = bed.pids("kappa.engine.job.job", second)

        os.kill(hung, signal.SIGSTOP)
        assert bed.rows("select count(*) as n from order_log") == [{"n": 100}]
        undone = bed.must("undo", "shop", "--yes")

        assert f"build {second}: its job shows no sign of life" in undone.err
        assert bed.live("shop") == first
        bed.wait(lambda: hung not in bed.pids(), "the end of the stopped job")
        bed.log.produce((order(number) for number in range(100, 150)), "orders")
        bed.wait_until_folded("shop", bed.log.end(["orders"]))
        assert bed.rows("select count(*) as n from order_log") == [{"n": 150}]
        # What is kept for a redo is fed again, too.
        bed.wait(lambda: bool(bed.pids("kappa.engine.job.job", second)), "the other job")
