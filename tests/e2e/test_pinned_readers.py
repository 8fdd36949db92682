"""Readers that pinned ten generations keep reading their own rows, while jobs are killed (I2, I4).

Each promote retires the build before it. Its files stay for as long as a reader has pinned them.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from e2e_shop import ASKED, LEAN_1, LEAN_2, order
from testbed import Testbed, platform
from victims import jobs_of, kill

from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.pin.snapshot import PinnedSnapshot
from kappa.serving.query.query import connect_reader

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(1800)]

PROMOTES = 10
SETTINGS = """
[engine]
maintenance_seconds = 1
[history]
keep_seconds = 0
[rollout]
soak = "1s"
"""
TABLES = ("by_customer", "order_log")
Rows = list[tuple[object, ...]]


def answers(bed: Testbed, pinned: PinnedSnapshot) -> dict[str, Rows]:
    with connect_reader(pinned.snapshot, bed.store) as reader:
        found = {name: sorted(reader.rows(ASKED[name]).rows, key=repr) for name in TABLES}
    pinned.confirm_kept()
    return found


def kill_job(bed: Testbed, build: str) -> None:
    bed.wait(lambda: bool(jobs_of(bed, build)), f"the job of {build}")
    for pid in jobs_of(bed, build):
        kill(pid)


def has_files(bed: Testbed, build: str) -> bool:
    return bool(bed.store.names(f"builds/{build}/tables"))


def test_pins_of_ten_promotes_answer_as_at_first(tmp_path: Path) -> None:
    with platform(tmp_path / "shop", SETTINGS, shop=LEAN_1) as bed, ExitStack() as closing:
        bed.log.produce((order(number) for number in range(200)), "orders")
        bed.must("deploy", "--yes")
        pins: list[tuple[str, PinnedSnapshot, dict[str, Rows]]] = []
        for turn in range(PROMOTES):
            live = bed.live("shop")
            bed.wait_until_folded("shop", bed.log.end(["orders"]))
            pinned = closing.enter_context(pin_served(bed.store, lease_seconds=60))
            pins.append((live, pinned, answers(bed, pinned)))

            bed.declare("shop", (LEAN_2, LEAN_1)[turn % 2])
            deploying = bed.start("deploy", "--yes")
            bed.wait(lambda: bool(bed.state().active_rollouts), "the rollout")
            candidate = bed.state().rollouts[-1].build
            kill_job(bed, live)
            kill_job(bed, candidate)
            first = 200 + 50 * turn
            bed.log.produce((order(number) for number in range(first, first + 50)), "orders")
            told = deploying.communicate(timeout=300)
            assert deploying.returncode == 0, (told, bed.logs())
            assert bed.live("shop") == candidate

            for _, each, then in pins:
                assert answers(bed, each) == then

        assert [each.snapshot.generation for _, each, _ in pins] == [*range(1, PROMOTES + 1)]
        assert len({repr(then) for _, _, then in pins}) == PROMOTES
        builds = [build for build, _, _ in pins]
        bed.wait(lambda: {*builds} <= bed.state().retired, "the builds' retirement")
        bed.must("gc")
        assert all(has_files(bed, build) for build in builds)
        assert all(answers(bed, each) == then for _, each, then in pins)
        closing.close()
        bed.wait(lambda: not any(has_files(bed, build) for build in builds), "their end")
