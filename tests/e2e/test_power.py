"""A real power loss under a running platform: ext4 ends without another write (I13)."""

from __future__ import annotations

import random
import threading

import ext4
import pytest
from e2e_shop import V1, V2, item, order
from reading import assert_right
from testbed import Testbed, platform

from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault]
LOSSES = 8
# So that checkpoints, joined files and deletions are among what is lost.
SETTINGS = "[engine]\nmaintenance_seconds = 0.5\nlarge_rows = 10\n[history]\nevery_seconds = 1\n"


class Producer(threading.Thread):
    """Produces orders one by one; `acknowledged` are the offsets after the last of them."""

    def __init__(self, bed: Testbed, first: int) -> None:
        super().__init__(daemon=True)
        self._log = bed.log
        self.next = first
        self.acknowledged = Offsets()
        self.ended: Exception | None = None
        self._one_more = threading.Semaphore(0)

    def wait(self, count: int) -> None:
        """Waits until this many more orders are acknowledged."""
        for _ in range(count):
            assert self._one_more.acquire(timeout=60), self.ended

    def run(self) -> None:
        try:
            with self._log.producer() as producer:
                while True:
                    producer.send("orders", order(self.next))
                    producer.flush()
                    self.acknowledged = producer.acknowledged.offsets
                    self.next += 1
                    self._one_more.release()
        except Exception as error:  # noqa: BLE001  # whatever it is
            # The broker goes with the power.
            self.ended = error


def test_whenever_power_is_lost_acknowledged_orders_and_answers_are_there(
    disk: ext4.Ext4,
) -> None:
    """One command starts the platform again, and its jobs continue."""
    draw = random.Random(26)
    with platform(disk.folder / "a shop", SETTINGS, shop=V1) as bed:
        bed.must("deploy", "--yes")
        version, produced = 1, 1
        for loss in range(LOSSES):
            producer = Producer(bed, produced)
            producer.start()
            producer.wait(draw.randrange(1, 80))
            if loss in {2, 5}:
                # In the middle of a replay of another version, wherever it is.
                version = 3 - version
                bed.declare("shop", V1 if version == 1 else V2)
                deploy = bed.start("deploy", "--yes")
                bed.wait(lambda: bool(bed.state().active_rollouts), "the rollout")
                threading.Event().wait(draw.random() * 8)
                deploy.kill()
                deploy.communicate()
            state, acknowledged = bed.state(), producer.acknowledged
            seen = {build: bed.frontier(build) for build in state.serving.values()}
            disk.cut_power()
            bed.ensure_gone()
            disk.mount_again()

            # Before anything runs again, readers have what they had.
            for build, frontier in seen.items():
                now = bed.frontier(build)
                assert frontier is not None
                assert now is not None
                assert now.offsets.covers(frontier.offsets)
            assert bed.rows("select count(*) as n from order_log")[0]["n"] >= 0
            bed.must("up", "-d")
            bed.wait(lambda: bed.log.wait_until_ready(1.0), "the broker")
            assert bed.log.end(["orders"]).covers(acknowledged)
            bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")
            bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
            assert_right(bed, version=version)
            produced = producer.next + 1
            bed.log.produce([item(loss, f"title {loss}")], "items")
