"""A real job process with a real broker: killed between any two steps, it resumes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from builds import JobProcess, Project
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from counted import OUTPUTS, Story, served, source

from kappa.declare.values.tally import Tally
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.build import table_path
from kappa.state.build_status import Stopped, read_stopped
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Held, Released
from kappa.state.journal.journal import Journal
from kappa.tables.versions import mark_of

pytestmark = [pytest.mark.jvm, pytest.mark.fault]

FAILPOINTS = {
    # A slice in its steps; `tests/engine/job/test_align.py` kills jobs at the first two.
    "tail": [
        "job.before_first_commit",
        "job.between_tables",
        "job.before_frontier",
    ],
    # Where more rows come together than the driver commits.
    "large": ["table.before_spark_commit", "table.after_spark_commit"],
    # Where those are contributions by key, beside a table not much larger.
    "anew": ["table.before_rewriting", "table.after_rewriting"],
}


def assert_adds_up(frontier: Frontier) -> None:
    for topic, partition, end in frontier.offsets.items():
        tally = frontier.tally.get(topic, {}).get(partition, Tally())
        assert (
            tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent == end
        )


@pytest.mark.sweep
def test_killed_between_any_two_steps_it_folds_each_record_once(
    project: Project, log: Log, topic_name: str, jobs: list[JobProcess]
) -> None:
    project.bear("b-1", source(topic_name), OUTPUTS)
    # What slices contribute waits beside the tables, as if these were large.
    (project.folder / "kappa.toml").write_text("[engine]\nlarge_rows = 0\n")
    story = Story(log, topic_name)
    for point in FAILPOINTS["tail"]:
        story.produce(60)
        killed = project.start("b-1", KAPPA_FAIL=f"{point}:kill")
        jobs.append(killed)
        assert killed.ended() == -signal.SIGKILL, killed.said()
    story.produce(60)

    job = project.start("b-1")
    jobs.append(job)
    frontier = project.wait_until_folded("b-1", job)

    assert_folded_once(project, frontier, story, topic_name, jobs=4)
    # A catch-up that is killed twice in one slice holds it, too.
    assert "was begun 2 times and not ended" in job.log.read_text(errors="replace")
    assert job.stop() == 0
    assert read_stopped(project.store, "b-1") is None


def assert_folded_once(
    project: Project, frontier: Frontier, story: Story, topic_name: str, *, jobs: int
) -> None:
    """Asserts that this many jobs have folded each record of the story exactly once."""
    assert served(project, "b-1", frontier) == story.expected()
    assert_adds_up(frontier)
    tally = sum(frontier.tally[f"{topic_name}.events"].values(), Tally())
    assert (tally.duplicate, tally.late) == (story.duplicates, story.late)
    assert min(tally.duplicate, tally.late) > 0
    assert frontier.epoch == jobs


def test_killed_tails_go_on_with_new_partitions_and_torn_checkpoints_and_a_hold_ends(
    project: Project, log: Log, topic_name: str, broker: Any, jobs: list[JobProcess]
) -> None:
    """A second job is refused meanwhile, a killed job's JVM ends, and aborts are counted."""
    events = f"{topic_name}.events"
    project.bear("b-1", source(topic_name), OUTPUTS)
    # What slices contribute waits beside the tables, as if these were large.
    (project.folder / "kappa.toml").write_text(
        "[engine]\nlarge_rows = 0\n[rollout]\nhold_seconds = 3\n"
    )
    story = Story(log, topic_name)
    story.produce(60)
    killed = project.start("b-1", KAPPA_FAIL="job.before_frontier:kill")
    jobs.append(killed)
    assert killed.ended() == -signal.SIGKILL, killed.said()
    story.produce(60)

    # It folds fewer slices than this until it is to be killed.
    first = project.start("b-1", KAPPA_FAIL="frontier.after_put:kill:14")
    jobs.append(first)
    frontier = project.wait_until_folded("b-1", first)
    assert_folded_once(project, frontier, story, topic_name, jobs=2)
    # The tail goes on with these from their offset 0 (law 12).
    log.add_partitions(events, 5)
    story.produce(30, into=(3, 4))
    assert_folded(project, project.wait_until_folded("b-1", first), story, events, partitions=5)

    second = project.start("b-1")
    jobs.append(second)
    assert second.ended() == 6
    assert f"build b-1 is held by process {first.process.pid}" in second.said()

    left = [pid for pid in _session(first.process.pid) if pid != first.process.pid]
    assert left
    while first.process.poll() is None:
        story.produce(10, into=range(5))
        with suppress(subprocess.TimeoutExpired):
            first.process.wait(0.3)
    assert first.ended() == -signal.SIGKILL, first.said()

    job = project.start("b-1")
    jobs.append(job)
    story.produce(30, into=range(5))
    frontier = project.wait_until_folded("b-1", job)

    assert not [
        pid
        for pid in left
        if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert_folded_once(project, frontier, story, topic_name, jobs=3)
    _aborts_are_counted(project, job, story, broker, events)
    _a_hold_is_acknowledged_at_once_and_released_when_it_lasts_too_long(project, job, story)
    assert job.stop() == 0
    assert read_stopped(project.store, "b-1") is None
    _the_stream_of_a_torn_checkpoint_begins_anew(project, story, jobs)


@pytest.mark.sweep
def test_killed_around_a_commit_that_spark_makes_it_folds_each_record_once(
    project: Project, log: Log, topic_name: str, jobs: list[JobProcess]
) -> None:
    project.bear("b-1", source(topic_name), OUTPUTS)
    story = Story(log, topic_name, seed=8)
    # By Spark, and what Spark has computed by DuckDB and by delta-rs.
    for merge_bytes, point in [
        *((0, point) for point in FAILPOINTS["large"]),
        *((1, point) for point in FAILPOINTS["anew"]),
        (1_000_000, "table.before_commit"),
        (1_000_000, "table.after_commit"),
    ]:
        (project.folder / "kappa.toml").write_text(
            f"[engine]\ndriver_rows = 1\nmerge_bytes = {merge_bytes}\n"
        )
        story.produce(60)
        killed = project.start("b-1", KAPPA_FAIL=f"{point}:kill")
        jobs.append(killed)
        assert killed.ended() == -signal.SIGKILL, killed.said()
    story.produce(60)
    # Once two have died in its first slice, it is folded in parts, the last ones in the job alone.
    (project.folder / "kappa.toml").write_text("")

    job = project.start("b-1")
    jobs.append(job)
    frontier = project.wait_until_folded("b-1", job)

    assert served(project, "b-1", frontier) == story.expected()
    assert_adds_up(frontier)


def stopped_for_good(project: Project, job: JobProcess) -> Stopped:
    """Returns the reason that a job has recorded when it stopped for good."""
    assert job.ended() == 1, job.said()
    stopped = read_stopped(project.store, "b-1")
    assert stopped is not None
    return stopped


def assert_folded(
    project: Project, frontier: Frontier, story: Story, topic: str, *, partitions: int
) -> None:
    assert served(project, "b-1", frontier) == story.expected()
    assert_adds_up(frontier)
    assert sorted(
        partition for partition, end in frontier.offsets.next[topic].items() if end
    ) == list(range(partitions))


@pytest.mark.parametrize("longer", [False, True])
def test_a_topic_that_was_re_created_stops_the_job_for_good(
    project: Project, log: Log, topic_name: str, jobs: list[JobProcess], longer: bool
) -> None:
    project.bear("b-1", source(topic_name), OUTPUTS)
    story = Story(log, topic_name, seed=5)
    story.produce(20)
    log.delete(f"{topic_name}.people")
    _, people = project.pipeline("b-1").topics
    log.create(people)
    if longer:
        story.produce(60)

    job = project.start("b-1")
    jobs.append(job)

    stopped = stopped_for_good(project, job)
    assert "was re-created" in stopped.message
    assert "kappa replay counted" in stopped.hint


def test_a_log_that_has_lost_what_was_to_be_read_next_stops_the_job_which_names_it(
    project: Project, log: Log, topic_name: str, jobs: list[JobProcess]
) -> None:
    project.bear("b-1", source(topic_name), OUTPUTS)
    story = Story(log, topic_name, seed=9)
    story.produce(40, into=(1, 2))
    events = f"{topic_name}.events"
    admin = AdminClient({"bootstrap.servers": log.bootstrap_servers})
    # As retention does it.
    for deleted in admin.delete_records([TopicPartition(events, 2, 7)]).values():
        deleted.result(20)

    job = project.start("b-1")
    jobs.append(job)

    stopped = stopped_for_good(project, job)
    assert (
        stopped.message
        == f"the log no longer has what build b-1 was about to read: {events} partition 2 lost"
        " offsets 0 to 6 and begins at 7"
    )
    assert "kappa replay counted --accept-gap" in stopped.hint


def test_a_function_that_raises_stops_the_job_with_line_and_record_if_that_is_declared(
    project: Project, log: Log, topic_name: str, jobs: list[JobProcess]
) -> None:
    by_udf = """
        from pyspark.sql import functions as F

        @F.udf("bigint")
        def inverse(n):
            return n and 2**40 // (n - 7)

        @pipeline(on_error="stop", """
    text = (
        source(topic_name)
        .replace("\n        @pipeline(", by_udf)
        .replace('events.select("kind", "n")}', 'events.select("kind", inverse("n").alias("n"))}')
    )
    project.bear("b-1", text, OUTPUTS)
    story = Story(log, topic_name, seed=7)
    story.produce(20)
    events = f"{topic_name}.events"
    offset = log.end([events]).at(events, 1)
    bad = f'{{"kind": "Ä", "n": 7, "sent": {int(time.time() * 1000)}}}'
    log.produce([ProducedRecord(bad.encode(), partition=1)], events)
    story.produce(20)

    job = project.start("b-1")
    jobs.append(job)

    stopped = stopped_for_good(project, job)
    line = next(
        number
        for number, line in enumerate(
            project.store.path("builds/b-1/code/pipelines/p.py").read_text().splitlines(), 1
        )
        if "2**40" in line
    )
    assert (
        f"code/pipelines/p.py:{line}: pipeline counted raised ZeroDivisionError" in stopped.message
    )
    assert stopped.message.endswith(
        f"on {events} partition 1 offset {offset}: key null, value {bad}"
    )
    assert 'without on_error="stop"' in stopped.hint
    # The log has our sentence, and not Spark's account of it after the task's own.
    assert stopped.message in job.said()
    assert "terminated with error" not in job.log.read_text(encoding="utf-8")


def _aborts_are_counted(
    project: Project, job: JobProcess, story: Story, broker: Any, events: str
) -> None:
    before = project.wait_until_folded("b-1", job).tally[events][0]
    story.events += produce_in_transactions(broker.bootstrap_servers, events)
    # A broker answers the end of a transaction before its marker is in the log.
    job.wait_for(lambda: project.log.end([events]).equals(project.log.high_watermark([events])))

    frontier = project.wait_until_folded("b-1", job)

    assert_folded(project, frontier, story, events, partitions=5)
    # Ten records, ten that were aborted, four markers.
    assert frontier.tally[events][0] == before + Tally(decoded=10, absent=14)
    assert mark_of(
        table_path(project.store, "b-1", "rejects"), frontier.versions["rejects"]
    ).end.equals(frontier.offsets)


def produce_in_transactions(
    bootstrap_servers: str, topic: str
) -> list[tuple[str | None, int | None]]:
    """Writes transactions of five events, every second one aborted; returns committed events."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for commit in (True, False, True, False):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(
                topic,
                json.dumps({"kind": "a", "n": n, "sent": int(time.time() * 1000)}).encode(),
                partition=0,
            )
        producer.flush()
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    return [("a", n) for n in range(5)] * 2


def _a_hold_is_acknowledged_at_once_and_released_when_it_lasts_too_long(
    project: Project, job: JobProcess, story: Story
) -> None:
    before, journal = project.frontier("b-1"), Journal(project.store)
    assert before is not None
    began = time.monotonic()
    held = journal.append(1, Held(rollout=1, build="b-1", attempt=1))
    assert held is not None
    acknowledged = job.wait_for(
        lambda: (found := project.frontier("b-1")) is not None and found.hold == 1 and found
    )
    assert isinstance(acknowledged, Frontier)
    assert acknowledged.offsets.equals(before.offsets)
    story.produce(30, into=range(5))
    released = job.wait_for(lambda: journal.get(2))

    assert isinstance(released, type(held))
    assert isinstance(released.event, Released)
    assert released.event.hold == 1
    assert time.monotonic() - began >= 3
    frontier = project.wait_until_folded("b-1", job)
    assert frontier.hold is None
    assert served(project, "b-1", frontier) == story.expected()


def _the_stream_of_a_torn_checkpoint_begins_anew(
    project: Project, story: Story, jobs: list[JobProcess]
) -> None:
    """After a torn checkpoint, as a power loss leaves it, the frontier decides what is folded."""
    for file in project.store.path("builds/b-1/checkpoint").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    story.produce(20, into=range(5))

    again = project.start("b-1")
    jobs.append(again)
    frontier = project.wait_until_folded("b-1", again)

    assert served(project, "b-1", frontier) == story.expected()
    assert again.stop() == 0


def _session(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(entry.name))
    return members
