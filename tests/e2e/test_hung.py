"""Jobs that hang: a suspended live job, and a function that never returns (I9)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from e2e_shop import LEAN_1, LEAN_2, order
from testbed import platform

from kappa.state.offsets import Offsets

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


# A function that never returns on an order of 13.
LOOPING = (
    LEAN_1.replace(
        "from kappa import",
        """from pyspark.sql.functions import udf

from kappa import""",
    )
    .replace(
        "@pipeline(",
        """
@udf("bigint")
def checked(amount):
    while amount == 13:
        pass
    return amount


@pipeline(""",
    )
    .replace(
        'orders.select("customer", "item", "amount", "at")}',
        'orders.select("customer", "item", checked("amount").alias("amount"), "at")}',
    )
)


def test_a_function_that_never_returns_is_named_with_its_slice(tmp_path: Path) -> None:
    """The slice is named on which the function hangs.

    The other records are folded, in parts, and the live build continues.
    """
    with platform(tmp_path / "shop", "[engine]\nslice_seconds = 20\n", shop=LEAN_1) as bed:
        bed.log.produce((order(number, amount=7) for number in range(40)), "orders")
        bed.must("deploy", "--yes")
        first = bed.live("shop")
        bed.log.produce([order(1, amount=13)], "orders")
        bed.declare("shop", LOOPING)
        asked = bed.start("deploy", "--yes")
        log = bed.store.path("logs")

        def named() -> bool:
            return any(
                "made no progress for 20 s" in file.read_text(encoding="utf-8", errors="replace")
                for file in log.glob("*.log")
            )

        bed.wait(named, "the name of the slice")
        said = "".join(
            file.read_text(encoding="utf-8", errors="replace") for file in log.glob("*.log")
        )
        (told,) = {
            line for line in said.splitlines() if "error: slice 1/0 " in line and "for 20 s" in line
        }
        assert "shop.py:" in told
        candidate = bed.state().rollouts[-1].build
        bed.wait(
            lambda: (
                (found := bed.frontier(candidate)) is not None
                and found.offsets.distance(Offsets()) > 0
            ),
            "the part on which it returns",
        )
        assert bed.live("shop") == first
        assert bed.rows("select count(*) as n from order_log") == [{"n": 41}]
        bed.must("abandon", "shop")
        asked.communicate(timeout=120)
        assert asked.returncode != 0
