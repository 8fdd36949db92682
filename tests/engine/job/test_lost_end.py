"""A job whose log lost its end stops, whenever that happens, and names the offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builds import JobProcess, Project
from losing import Restarted, aborted_transaction

from kappa.state.build_status import read_stopped
from kappa.state.frontier import Frontier, Frontiers

pytestmark = [pytest.mark.jvm, pytest.mark.fault]

SOURCE = """
    from kappa import Table, Topic, pipeline

    ORDERS = Topic("{topic}", event="n int", partitions=2)

    @pipeline(reads={{"orders": ORDERS}}, writes=[Table("rows")])
    def shop(orders):
        return {{"rows": orders.select("n")}}
"""
OUTPUTS = {"rows": "n int"}


@pytest.fixture
def project(tmp_path: Path, kafka: Restarted, topic_name: str) -> Project:
    found = Project(tmp_path / "project", kafka.log)
    found.bear("b-1", SOURCE.format(topic=topic_name), OUTPUTS)
    return found


def produce(kafka: Restarted, topic: str, *numbers: int) -> None:
    kafka.produce(topic, *(json.dumps({"n": number}) for number in numbers))


def assert_stopped(
    project: Project, topic: str, lost: str, branch: str, build: str = "b-1"
) -> None:
    stopped = read_stopped(project.store, build)
    assert stopped is not None
    assert stopped.message == (
        f"the log has lost its end, which build {build} has folded: {topic} partition 0 {lost}"
    )
    assert stopped.hint == (
        "kappa replay shop makes a new build from the log that is there; "
        f"kappa branch shop --from {topic}:0={branch},{topic}:1=0 keeps what was folded before"
    )
    assert stopped.cut == (topic,)


def assert_nothing_folded_since(project: Project, folded: Frontier) -> None:
    newest = Frontiers(project.store, "b-1").newest()
    assert newest is not None
    assert newest.offsets == folded.offsets


@pytest.mark.long
@pytest.mark.parametrize(
    "after",
    [
        pytest.param(0, id="shorter", marks=pytest.mark.sweep),
        pytest.param(1, id="as long", marks=pytest.mark.sweep),
        pytest.param(4, id="longer"),
    ],
)
def test_a_job_that_was_away_stops_before_it_folds_anything(
    project: Project, kafka: Restarted, topic_name: str, jobs: list[JobProcess], after: int
) -> None:
    produce(kafka, topic_name, *range(5))
    job = project.start("b-1")
    jobs.append(job)
    folded = project.wait_until_folded("b-1", job)
    assert job.stop() == 0
    assert folded.witnesses[topic_name].keys() == {0}

    kafka.lose(topic_name)
    produce(kafka, topic_name, *range(10, 10 + after))
    again = project.start("b-1")
    jobs.append(again)

    assert again.ended() == 1, again.said()
    assert_stopped(project, topic_name, "was cut at offset 4 and has lost offset 4", "4")
    assert_nothing_folded_since(project, folded)


@pytest.mark.long
def test_a_large_slice_has_the_witnesses_of_a_small_one(
    project: Project, kafka: Restarted, topic_name: str, jobs: list[JobProcess]
) -> None:
    """A large slice, read by Spark workers, has the same witnesses as a small slice.

    Transaction markers follow the last record.
    """
    produce(kafka, topic_name, *range(5))
    aborted_transaction(kafka, topic_name)
    small = project.start("b-1")
    jobs.append(small)
    expected = project.wait_until_folded("b-1", small).witnesses
    assert small.stop() == 0, small.said()
    project.bear("b-2", SOURCE.format(topic=topic_name), OUTPUTS)
    (project.folder / "kappa.toml").write_text("[engine]\ndriver_rows = 1\n")
    large = project.start("b-2")
    jobs.append(large)

    found = project.wait_until_folded("b-2", large)

    assert found.offsets.at(topic_name, 0) == 7
    assert found.witnesses == expected
    assert found.witnesses[topic_name][0].offset == 4
    kafka.lose(topic_name, batches=3)
    produce(kafka, topic_name, *range(10, 14))
    assert large.ended() == 1, large.said()
    assert_stopped(
        project, topic_name, "was cut at offset 4 and has lost offsets 4 to 6", "4", "b-2"
    )


@pytest.mark.parametrize("after", [0, 4], ids=["shorter", "longer"])
def test_a_running_tail_stops(
    project: Project, kafka: Restarted, topic_name: str, jobs: list[JobProcess], after: int
) -> None:
    produce(kafka, topic_name, *range(5))
    job = project.start("b-1")
    jobs.append(job)
    folded = project.wait_until_folded("b-1", job)

    kafka.lose(topic_name, batches=2)
    produce(kafka, topic_name, *range(10, 10 + after))

    assert job.ended() == 1, job.said()
    while read_stopped(project.store, "b-1") is None:
        # It met the broker that was away, at a load like that of all tests: the next one is told.
        jobs.append(project.start("b-1"))
        assert jobs[-1].ended() == 1, jobs[-1].said()
    assert_stopped(project, topic_name, "was cut at offset 3 and has lost offsets 3 to 4", "3")
    assert_nothing_folded_since(project, folded)


@pytest.mark.long
def test_a_broker_that_loses_nothing_stops_no_tail(
    project: Project, kafka: Restarted, topic_name: str, jobs: list[JobProcess]
) -> None:
    """A restart without loss changes the leaders, but the witnesses still match."""
    produce(kafka, topic_name, *range(5))
    job = project.start("b-1")
    jobs.append(job)
    before = project.wait_until_folded("b-1", job)

    kafka.lose(topic_name, batches=0)
    produce(kafka, topic_name, *range(5, 8))
    after = project.wait_until_folded("b-1", job)

    found = [one.witnesses[topic_name][0] for one in (before, after)]
    assert [one.offset for one in found] == [4, 7]
    assert found[0].epoch < found[1].epoch
    assert job.stop() == 0, job.said()
