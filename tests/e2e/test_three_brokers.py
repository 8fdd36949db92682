"""One of three brokers is lost, in a tail, a replay and a switch: no record is lost.

Any broker, also the leader of the controllers, is killed with -9. So are two brokers, and one
broker of topics that need all three: nothing is acknowledged meanwhile. Each broker is restarted in
turn, under load. Readers, an HTTP client and a producer continue throughout: no error (I4), no mix
(I2), nothing goes back (I3). Acknowledged records are in the log once, and the tables are right
(I1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from subprocess import Popen

import pytest
from confluent_kafka import KafkaError
from e2e_shop import V1, V2, item, order, orders_and_a_title
from meanwhile import Asking, Producing, beside
from reading import assert_right, readers, version_of
from testbed import PATIENCE_SECONDS, Testbed, platform
from three_brokers import ThreeBrokers
from victims import jobs_of, standing_still

from demo.cluster.brokers import NODES
from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.engine.job.legs import LegKind, Legs
from kappa.replay.rollout.rollout import Phase

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault, pytest.mark.timeout(900)]

READERS = 4
# So that the records of a test are enough for a catch-up.
SETTINGS = """
[engine]
# A job that stands still while a broker is restarted is not taken for one that hangs.
hung_seconds = 180
tail_records = 1000
maintenance_seconds = 5
[kafka]
bootstrap_servers = "{}"
"""
FIRST = 2_000
TOPICS = ("orders", "items")
# What was in flight as brokers were lost has settled once a turn has waited so long.
SETTLED_SECONDS = 3.0


class At(StrEnum):
    """The state of the platform in which a broker is lost."""

    TAIL = "tail"
    REPLAY = "replay"
    SWITCH = "switch"


class Who(StrEnum):
    """A broker's role."""

    CONTROLLER = "leader of the controllers"
    LEADER = "leader of a partition"


# What `make test` has; `make faults` has all.
SHORT = {(At.TAIL, Who.CONTROLLER)}
LOSSES = [
    pytest.param(at, who, id=f"{at}-{who}", marks=[] if (at, who) in SHORT else pytest.mark.sweep)
    for at in At
    for who in (*Who, *NODES)
]


@dataclass(frozen=True, slots=True)
class Shop:
    """The platform on three brokers, with the producer and the client that run meanwhile."""

    bed: Testbed
    cluster: ThreeBrokers
    produced: Producing
    http: Asking

    def broker(self, who: Who | int) -> int:
        match who:
            case Who.CONTROLLER:
                return self.cluster.controller()
            case Who.LEADER:
                return self.cluster.in_sync("orders")[0]
            case _:
                return who

    def go_on(self) -> None:
        """Waits until one more record is acknowledged, folded, and read over HTTP."""
        acknowledged, answers = self.produced.acknowledged, self.http.answers
        self.bed.wait(lambda: self.produced.acknowledged > acknowledged, "an acknowledgement")
        self.bed.wait_until_folded("shop", self.bed.log.end(list(TOPICS)))
        self.bed.wait(lambda: self.http.answers > answers, "an answer")


@pytest.fixture(scope="module")
def cluster(
    jars: Jars, java: Java, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ThreeBrokers]:
    running = ThreeBrokers(tmp_path_factory.mktemp("brokers"), jars, java)
    try:
        running.wait_until_up()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def shop(cluster: ThreeBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Yields a shop with builds of both versions; at the end everything must be right."""
    folder = tmp_path_factory.mktemp("three")
    settings = SETTINGS.format(cluster.bootstrap_servers)
    with platform(folder / "shop", settings, listen="127.0.0.1:0", shop=V1) as bed:
        bed.log.produce((order(number) for number in range(FIRST)), "orders")
        bed.log.produce((item(number, f"title {number}") for number in range(9)), "items")
        bed.must("deploy", "--yes")
        with (
            readers(bed, READERS, rest_seconds=2.0, script=folder / "reader.py") as seen,
            beside(Producing(bed, orders_and_a_title)) as produced,
            beside(Asking(bed)) as http,
        ):
            yield Shop(bed, cluster, produced, http)
        cluster.wait_until_whole()
        print(
            f"{READERS} readers: {sum(each.queries for each in seen)} queries; HTTP: "
            f"{http.answers} answers; {produced.acknowledged} records"
        )
        assert [fault for each in seen for fault in each.faults] == []
        assert (http.faults, http.away, produced.outages) == ([], 0, 0)
        ends = bed.log.end(list(TOPICS))
        assert sum(end for _, _, end in ends.items()) == FIRST + 9 + produced.acknowledged
        bed.wait_until_folded("shop", ends)
        assert_right(bed, version=version_of(bed, bed.live("shop")))


def restart(cluster: ThreeBrokers, node: int) -> None:
    """Restarts a broker in order, and waits until all replicas are in sync again."""
    cluster.stop(node)
    cluster.start(node)
    cluster.wait_until_whole()


def frontier_number(bed: Testbed, asked: Popen[str] | None) -> int:
    """Returns the number of the newest frontier of the replayed build, or of the live build."""
    build = bed.live("shop") if asked is None else bed.state().rollouts[-1].build
    found = bed.frontier(build)
    return 0 if found is None else found.number


@contextmanager
def kept_at(bed: Testbed, at: At) -> Iterator[Popen[str] | None]:
    """Brings the platform into a state, and keeps it there within the block."""
    match at:
        case At.TAIL:
            yield None
        case At.REPLAY:
            before = bed.live("shop")
            bed.declare("shop", V1 if version_of(bed, bed.live("shop")) == 2 else V2)
            asked = bed.start("replay", "shop", "--yes")
            found: list[int] = []
            bed.wait(lambda: bool(found.extend(_reading(bed, before)) or found), "a job that reads")
            with standing_still(found[0]):
                yield asked
                assert found[0] in _reading(bed, before)
        case At.SWITCH:
            if bed.state().idle.get("shop") is None:
                bed.must("replay", "shop", "--yes")
            # The live build acknowledges no hold while its job stands still.
            with standing_still(max(jobs_of(bed, bed.live("shop")))):
                asked = bed.start("undo", "shop", "--yes")
                bed.wait(lambda: bed.state().rollouts[-1].phase is Phase.HOLDING, "the hold")
                yield asked


def _reading(bed: Testbed, live: str) -> list[int]:
    """Lists the processes of a candidate's job in its catch-up."""
    build = bed.state().rollouts[-1].build
    leg = Legs(bed.store, build).last()
    is_reading = build != live and leg is not None and leg.kind is LegKind.CATCH_UP
    return sorted(jobs_of(bed, build), reverse=True) if is_reading else []


def killed_at(shop: Shop, at: At, *nodes: int) -> Popen[str] | None:
    """Kills brokers in a state of the platform; returns the command that led to that state."""
    with kept_at(shop.bed, at) as asked:
        for node in nodes:
            shop.cluster.kill(node)
    return asked


def assert_nothing_is_acknowledged(shop: Shop) -> None:
    """Asserts that the producer waits in vain, while the served tables are still read."""
    shop.bed.wait(lambda: shop.produced.waits_seconds > SETTLED_SECONDS, "a turn that waits")
    acknowledged, answers = shop.produced.acknowledged, shop.http.answers
    shop.bed.wait(lambda: shop.http.answers > answers + 2, "answers")
    assert shop.produced.acknowledged == acknowledged
    assert shop.produced.waits_seconds > SETTLED_SECONDS


@contextmanager
def all_needed(bed: Testbed) -> Iterator[None]:
    """Makes all replicas necessary for an acknowledgement, within the block."""
    try:
        for topic in TOPICS:
            bed.must("topics", "alter", topic, "--set", "min.insync.replicas=3", "--yes")
        yield
    finally:
        for topic in TOPICS:
            bed.must("topics", "alter", topic, "--set", "min.insync.replicas=2", "--yes")


def assert_done(bed: Testbed, asked: Popen[str] | None) -> None:
    """Asserts that a command succeeds, as if nothing had happened."""
    if asked is None:
        return
    out, err = asked.communicate(timeout=PATIENCE_SECONDS)
    assert asked.returncode == 0, (out, err, bed.logs())
    assert bed.state().rollouts[-1].phase is Phase.SERVED


def assert_all_right(shop: Shop) -> None:
    shop.go_on()
    assert_right(shop.bed, version=version_of(shop.bed, shop.bed.live("shop")))


def test_topics_are_made_so_that_one_broker_may_be_lost(shop: Shop) -> None:
    log = shop.bed.log
    for name in TOPICS:
        facts = log.facts(name)
        assert facts is not None
        assert facts.replicas == len(NODES)
        assert log.config(name)["min.insync.replicas"] == "2"

    assert "at risk" not in shop.bed.must("doctor").err


def test_a_topic_that_one_broker_would_take_is_named_by_plan_and_doctor(shop: Shop) -> None:
    bed = shop.bed
    bed.must("topics", "alter", "orders", "--set", "min.insync.replicas=1", "--yes")
    try:
        said = bed.kappa("replay", "shop", "--yes")
        assert said.code != 0
        assert "topic orders has min.insync.replicas=1 in a cluster of 3 brokers" in said.out
        assert "--allow 'replication:orders=REASON'" in said.out
        assert "at risk: topic orders has min.insync.replicas=1" in bed.must("doctor").err
    finally:
        bed.must("topics", "alter", "orders", "--set", "min.insync.replicas=2", "--yes")


@pytest.mark.parametrize(("at", "who"), LOSSES)
def test_a_broker_is_lost_and_nothing_else_is(shop: Shop, at: At, who: Who | int) -> None:
    shop.cluster.wait_until_whole()
    node = shop.broker(who)
    asked = killed_at(shop, at, node)
    try:
        assert_done(shop.bed, asked)
        assert_all_right(shop)
    finally:
        shop.cluster.start(node)


@pytest.mark.sweep
@pytest.mark.parametrize("at", At)
def test_two_brokers_are_lost_for_a_while_and_nothing_else_is(shop: Shop, at: At) -> None:
    shop.cluster.wait_until_whole()
    gone = tuple(dict.fromkeys((shop.cluster.controller(), *NODES)))[:2]
    asked = killed_at(shop, at, *gone)
    try:
        assert_nothing_is_acknowledged(shop)
    finally:
        for node in gone:
            shop.cluster.start(node)
    assert_done(shop.bed, asked)
    assert_all_right(shop)


@pytest.mark.sweep
@pytest.mark.parametrize("at", At)
def test_too_few_replicas_are_in_sync_for_a_while_and_nothing_is_lost(shop: Shop, at: At) -> None:
    """The partitions have leaders, which refuse each record, because the controllers live."""
    shop.cluster.wait_until_whole()
    with all_needed(shop.bed):
        node = shop.broker(Who.LEADER)
        asked = killed_at(shop, at, node)
        try:
            shop.cluster.wait_until_without(node)
            assert_nothing_is_acknowledged(shop)
            refused = [shop.cluster.refusal(topic) for topic in TOPICS]
        finally:
            shop.cluster.start(node)
        shop.go_on()
        assert_done(shop.bed, asked)
    assert [each and each.code() for each in refused] == [KafkaError.NOT_ENOUGH_REPLICAS] * 2
    assert_all_right(shop)


@pytest.mark.sweep
@pytest.mark.parametrize("at", [At.TAIL, At.REPLAY])
def test_all_brokers_are_restarted_in_turn_under_load(shop: Shop, at: At) -> None:
    """A replay is in a slice when the first broker restarts, and advances without the second."""
    cluster = shop.cluster
    cluster.wait_until_whole()
    first, second, third = NODES
    with kept_at(shop.bed, at) as asked:
        restart(cluster, first)
        cluster.stop(second)
        folded = frontier_number(shop.bed, asked)
    shop.bed.wait(lambda: frontier_number(shop.bed, asked) > folded, "a slice, while it is away")
    cluster.start(second)
    cluster.wait_until_whole()
    restart(cluster, third)
    assert_done(shop.bed, asked)
    assert_all_right(shop)
