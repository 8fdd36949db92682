"""Three brokers and an unclean election: acknowledged records are gone, and jobs stop for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from builds import JobProcess, Project
from three_brokers import ThreeBrokers

from kappa.base.java.jars import Jars
from kappa.base.java.java import Java
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.build_status import read_stopped

pytestmark = [pytest.mark.jvm, pytest.mark.fault, pytest.mark.sweep]

SOURCE = """
    from kappa import Table, Topic, pipeline

    ORDERS = Topic("orders", event="n int", partitions=1)

    @pipeline(reads={"orders": ORDERS}, writes=[Table("rows")])
    def shop(orders):
        return {"rows": orders.select("n")}
"""
LEFT_BEHIND, LEADER, THIRD = 1, 2, 3


@pytest.fixture
def cluster(jars: Jars, java: Java, tmp_path: Path) -> Iterator[ThreeBrokers]:
    running = ThreeBrokers(tmp_path, jars, java)
    yield running
    running.close()


def produce(log: Log, *numbers: int) -> None:
    for number in numbers:
        log.produce([ProducedRecord(json.dumps({"n": number}).encode(), partition=0)], "orders")


def test_an_unclean_election_stops_a_running_job_and_one_that_was_away(
    cluster: ThreeBrokers, tmp_path: Path, jobs: list[JobProcess]
) -> None:
    cluster.create("orders", (LEADER, LEFT_BEHIND))
    project = Project(tmp_path / "project", Log(cluster.bootstrap_servers))
    for build in ("running", "away"):
        project.bear(build, SOURCE, {"rows": "n int"})
    produce(project.log, 0, 1, 2)
    cluster.kill(LEFT_BEHIND)
    cluster.wait(lambda: cluster.in_sync("orders")[1] == {LEADER})
    produce(project.log, 3, 4)
    started = {build: project.start(build) for build in ("running", "away")}
    jobs.extend(started.values())
    for build, job in started.items():
        assert project.wait_until_folded(build, job).offsets.at("orders", 0) == 5
    assert started["away"].stop() == 0

    cluster.kill(LEADER)
    cluster.start(LEFT_BEHIND)
    cluster.wait(lambda: cluster.in_sync("orders")[0] == LEFT_BEHIND)
    produce(project.log, 10, 11, 12)
    started["away"] = project.start("away")
    jobs.append(started["away"])

    for build, job in started.items():
        assert job.ended() == 1, job.said()
        while (stopped := read_stopped(project.store, build)) is None:
            # A job whose Spark asks a dead broker ends too: the supervisor starts another.
            jobs.append(project.start(build))
            assert jobs[-1].ended() == 1, jobs[-1].said()
        assert stopped.message == (
            f"the log has lost its end, which build {build} has folded: orders partition 0 was cut "
            "at offset 3 and has lost offsets 3 to 4"
        )
    # The old leader takes the new one's log, and nothing of its own comes back.
    cluster.start(LEADER)
    cluster.wait(lambda: cluster.in_sync("orders")[1] == {LEADER, LEFT_BEHIND})
    assert project.log.end(["orders"]).at("orders", 0) == 6


def test_clients_ask_another_broker_if_theirs_dies(cluster: ThreeBrokers) -> None:
    """Each client may take any of the three for the controller, and wait for its answers."""
    cluster.create("orders", (LEADER, THIRD))
    clients = [Log(cluster.bootstrap_servers) for _ in range(12)]
    for client in clients:
        assert client.facts("orders") is not None

    cluster.kill(LEFT_BEHIND)

    for client in clients:
        assert client.facts("orders") is not None


def test_a_clean_election_stops_nothing(
    cluster: ThreeBrokers, tmp_path: Path, jobs: list[JobProcess]
) -> None:
    cluster.create("orders", (LEADER, LEFT_BEHIND))
    project = Project(tmp_path / "project", Log(cluster.bootstrap_servers))
    project.bear("b", SOURCE, {"rows": "n int"})
    produce(project.log, 0, 1, 2)
    jobs.append(project.start("b"))
    project.wait_until_folded("b", jobs[-1])

    for killed, next_leader in ((LEADER, LEFT_BEHIND), (LEFT_BEHIND, LEADER)):
        cluster.kill(killed)
        cluster.wait(lambda leader=next_leader: cluster.in_sync("orders")[0] == leader)
        produce(project.log, 3, 4)
        cluster.start(killed)
        cluster.wait(lambda: cluster.in_sync("orders")[1] == {LEADER, LEFT_BEHIND})

    def folded() -> bool:
        if jobs[-1].process.poll() is not None:
            # Its Spark has asked a dead broker: the supervisor starts another job.
            assert read_stopped(project.store, "b") is None, jobs[-1].said()
            jobs.append(project.start("b"))
        newest = project.frontier("b")
        return newest is not None and newest.offsets.at("orders", 0) == 7

    cluster.wait(folded)
    assert jobs[-1].stop() == 0
