"""The platform on a root in a bucket, if the bucket's server or the host is lost.

Readers and a producer continue throughout: no error (I4), no mix (I2), nothing goes back (I3), and
the tables are right (I1).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from between import Between, proxy_before
from e2e_shop import V1, V2, item, order, orders_and_a_title
from losing import Restarted
from meanwhile import Producing, beside
from object_store import ObjectStore
from reading import assert_right, readers, version_of
from testbed import Testbed, platform
from victims import jobs_of, kill, standing_still

from kappa.replay.rollout.rollout import Phase

# tests/e2e/test_root_in_bucket.py is its short form.
pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault, pytest.mark.timeout(900)]

READERS = 2
SETTINGS = """
root = "{root}"
[storage]
endpoint = "{endpoint}"
[engine]
tail_records = 1000
maintenance_seconds = 5
[kafka]
bootstrap_servers = "{bootstrap_servers}"
"""
# So long is the server away: less than what asks it is patient.
AWAY_SECONDS = 3.0
# Three requests of a collection, at a thousand objects each.
STRAYS = 2_500


class At(StrEnum):
    """The work of the platform while the server is away."""

    TAIL = "tail"
    REPLAY = "replay"
    SWITCH = "switch"
    COLLECTION = "collection"


@dataclass(frozen=True, slots=True)
class Shop:
    """The platform, its server, and the proxy between them."""

    bed: Testbed
    server: ObjectStore
    between: Between
    produced: Producing

    def go_on(self) -> None:
        """Waits until one more record is acknowledged and folded."""
        acknowledged = self.produced.acknowledged
        self.bed.wait(lambda: self.produced.acknowledged > acknowledged, "an acknowledgement")
        self.bed.wait_until_folded("shop", self.bed.log.end(["orders", "items"]))

    def replay(self) -> None:
        """Replays the other version to its end, and asserts that another build serves."""
        before = self.bed.live("shop")
        self.declare_the_other()
        self.bed.must("replay", "shop", "--yes")
        assert self.bed.live("shop") != before

    def kill_at_a_commit(self) -> None:
        """Kills the server when a table's next commit arrives, so that the answer is lost."""
        killed = threading.Event()

        def kill_server(path: str) -> None:
            if "/_delta_log/" in path:
                self.server.kill()
                killed.set()
            else:
                self.between.before("PUT", ".json", kill_server)

        self.between.before("PUT", ".json", kill_server)
        self.bed.wait(killed.is_set, "a commit")

    def leave_strays(self) -> Path:
        """Waits for a retired build, and puts objects into it; returns the objects' folder."""
        self.replay()
        self.bed.wait(lambda: bool(self.bed.state().retired), "a build that is retired")
        build = min(self.bed.state().retired)
        folder = f"builds/{build}/strays"
        for number in range(STRAYS):
            self.bed.store.put(f"{folder}/{number}.parquet", b"left behind")
        return self.server.folder / self.bed.store.address(folder).removeprefix("s3://")

    def declare_the_other(self) -> None:
        self.bed.declare("shop", V1 if version_of(self.bed, self.bed.live("shop")) == 2 else V2)


@pytest.fixture(scope="module")
def shop(
    kafka: Restarted, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """A build serves while readers and a producer run; at the end everything must be right."""
    folder = tmp_path_factory.mktemp("bucket")
    with proxy_before(object_store.storage) as between:
        settings = SETTINGS.format(
            root=object_store.new_root(),
            endpoint=between.storage.endpoint,
            bootstrap_servers=kafka.broker.bootstrap_servers,
        )
        with platform(folder / "shop", settings, shop=V1) as bed:
            bed.log.produce((order(number) for number in range(2_000)), "orders")
            bed.log.produce((item(number % 9, f"title {number}") for number in range(40)), "items")
            bed.must("deploy", "--yes")
            with (
                readers(bed, READERS, rest_seconds=1.0, script=folder / "reader.py") as seen,
                beside(Producing(bed, orders_and_a_title)) as produced,
            ):
                yield Shop(bed, object_store, between, produced)
            print(f"{sum(each.queries for each in seen)} queries; {produced.acknowledged} records")
            assert [fault for each in seen for fault in each.faults] == []
            bed.wait_until_folded("shop", bed.log.end(["orders", "items"]))
            assert_right(bed, version=version_of(bed, bed.live("shop")))


@contextmanager
def kept_at(shop: Shop, at: At) -> Iterator[None]:
    """Starts some work of the platform, runs the block in its middle, and waits for its end."""
    bed, before = shop.bed, shop.bed.state()
    match at:
        case At.TAIL:
            shop.kill_at_a_commit()
            yield
            return
        case At.REPLAY:
            shop.declare_the_other()
            asked = bed.start("replay", "shop", "--yes")
            bed.wait(lambda: bed.state().last > before.last, "the rollout")
            build = bed.state().rollouts[-1].build
            bed.wait(lambda: bool(jobs_of(bed, build)), "the candidate's job")
            yield
        case At.SWITCH:
            with standing_still(max(jobs_of(bed, bed.live("shop")))):
                asked = bed.start("undo", "shop", "--yes")
                bed.wait(lambda: bed.state().rollouts[-1].phase is Phase.HOLDING, "the hold")
                shop.server.kill()
            yield
        case At.COLLECTION:
            strays = shop.leave_strays()
            asked = bed.start("gc")
            bed.wait(lambda: len([*strays.iterdir()]) < STRAYS, "a deletion")
            shop.server.kill()
            assert [*strays.iterdir()], "it was over before the server was killed"
            yield
    out, err = asked.communicate(timeout=300)
    assert asked.returncode == 0, (out, err, bed.logs())
    if at is At.COLLECTION:
        assert not strays.exists()


@pytest.mark.parametrize("at", At)
def test_a_server_that_is_killed_and_started_again_costs_time_alone(shop: Shop, at: At) -> None:
    if at is At.SWITCH and "shop" not in shop.bed.state().idle:
        shop.replay()
    with kept_at(shop, at):
        shop.server.kill()
        time.sleep(AWAY_SECONDS)  # The time of an outage is what is tried.
        shop.server.start()

    shop.go_on()
    assert_right(shop.bed, version=version_of(shop.bed, shop.bed.live("shop")))


def test_a_replay_and_a_switch_past_answers_that_are_lost_and_too_many_requests(
    shop: Shop,
) -> None:
    shop.between.losing_each, shop.between.refused = 60, 20
    try:
        shop.replay()
    finally:
        shop.between.losing_each = shop.between.refused = 0
    shop.go_on()
    assert_right(shop.bed, version=version_of(shop.bed, shop.bed.live("shop")))


def test_a_slow_server_slows_a_replay_alone(shop: Shop) -> None:
    shop.between.delay_seconds = 0.05
    try:
        shop.replay()
    finally:
        shop.between.delay_seconds = 0.0
    shop.go_on()
    assert_right(shop.bed, version=version_of(shop.bed, shop.bed.live("shop")))


def test_a_host_that_is_lost_with_its_folder_is_followed_by_another(shop: Shop) -> None:
    bed, before = shop.bed, shop.bed.live("shop")
    shop.declare_the_other()
    asked = bed.start("replay", "shop", "--yes")
    bed.wait(lambda: bool(bed.state().active_rollouts), "the rollout")
    for pid in {*bed.pids()} - {*bed.pids("reader.py")}:
        kill(pid)
    asked.communicate(timeout=60)
    shutil.rmtree(bed.store.local.folder)

    # Nothing says here that this is the host that had it.
    refused = bed.kappa("up", "-d")
    assert (refused.code, "is claimed by host" in refused.err) == (6, True), refused
    bed.must("up", "-d", "--take-over")
    bed.wait(lambda: not bed.state().active_rollouts, "the end of the rollout")

    assert bed.live("shop") != before
    shop.go_on()
    assert_right(bed, version=version_of(bed, bed.live("shop")))
