"""Alignment: a candidate reaches exactly a frontier of the live build (law 13).

This is so whatever happens meanwhile, and both can be compared at that frontier.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from builds import JobProcess, Project
from counted import OUTPUTS, Story, served, source

from kappa.engine.legs.legs import LegKind, Legs, has_tail
from kappa.journal.events import Served
from kappa.journal.journal import Journal
from kappa.journal.receipt import Receipt
from kappa.log.client import Log
from kappa.state.job.alignment import Alignment, Alignments
from kappa.state.lease import ensure_released, ensure_renewed
from kappa.state.offsets import Offsets

pytestmark = [pytest.mark.jvm, pytest.mark.fault]

# Small slices, so that there are many; upkeep at every turn: what is not pinned is gone soon.
SETTINGS = "[engine]\nslice_records = 150\ntail_records = 200\nmaintenance_seconds = 0.2\n"


@contextmanager
def producing(story: Story, *, every_seconds: float) -> Iterator[None]:
    """Events keep arriving, until the end: each time a slice for each job."""
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(every_seconds):
            story.produce(20)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def serve(project: Project, build: str) -> None:
    """Records in the journal that a build serves."""
    receipt = Receipt("counted", build, "v", Offsets(), None, None, first=True)
    assert Journal(project.store).append(1, Served(1, 1, {"counted": build}, receipt))


def aligned(project: Project, build: str) -> Alignment:
    last = Alignments(project.store, build).last()
    assert last is not None
    return last


def folds_its_tail(project: Project, build: str) -> bool:
    """True where a batch of the tail is published."""
    leg, frontier = Legs(project.store, build).last(), project.frontier(build)
    return (
        leg is not None
        and leg.kind is LegKind.TAIL
        and frontier is not None
        and frontier.leg == leg.number
    )


def assert_equal_there(project: Project, alignment: Alignment) -> None:
    """Both stand at equal offsets, their files are kept, and they hold the same rows."""
    assert alignment.candidate.offsets.equals(alignment.live.offsets)
    assert served(project, alignment.candidate.build, alignment.candidate) == served(
        project, alignment.live.build, alignment.live
    )


@pytest.fixture
def start(project: Project, jobs: list[JobProcess]) -> Callable[..., JobProcess]:
    def started(build: str, leg: str = "tail", **environment: str) -> JobProcess:
        job = project.start(build, leg, **environment)
        jobs.append(job)
        return job

    return started


def test_a_candidate_reaches_a_frontier_of_the_live_build_though_jobs_are_killed(
    project: Project, log: Log, topic_name: str, start: Callable[..., JobProcess], broker: Any
) -> None:
    for build in ("old", "new"):
        project.bear(build, source(topic_name), OUTPUTS)
    (project.folder / "kappa.toml").write_text(SETTINGS)
    story = Story(log, topic_name)
    story.produce(600)
    leave_holes(broker.bootstrap_servers, f"{topic_name}.events")
    live = start("old")
    first = project.wait_until_folded("old", live)
    serve(project, "old")

    with producing(story, every_seconds=1.5):
        killed = start("new", "catch-up", KAPPA_FAIL="job.between_tables:kill:2")
        assert killed.ended() == -signal.SIGKILL, killed.said()
        live.kill()
        stood = project.frontier("old")
        assert stood is not None
        live = start("old")
        # A holder publishes what it found first; after two more it is as quick as the candidate.
        live.wait_for(
            lambda: (now := project.frontier("old")) is not None and now.number > stood.number + 2
        )
        assert start("new", "catch-up").ended() == 0
        assert Alignments(project.store, "new").last() is None
    before = project.frontier("old")
    assert before is not None
    # Often enough that the live job publishes something while the candidate starts.
    with producing(story, every_seconds=0.3):
        candidate = start("new")
        candidate.wait_for(lambda: Alignments(project.store, "new").last())
    with producing(story, every_seconds=1.5):
        alignment = aligned(project, "new")
        # It does not pause for a candidate that starts, either: what is aligned with is newer.
        assert alignment.live.number > before.number
        assert alignment.live.offsets.distance(before.offsets) > 0
    # The live job goes on, and its upkeep with it, far past what is pinned.
    with producing(story, every_seconds=0.3):
        live.wait_for(
            lambda: (
                (now := project.frontier("old")) is not None
                and now.number > alignment.live.number + 8
            )
        )
    with producing(story, every_seconds=1.5):
        assert ensure_renewed(project.store, alignment.lease, now=time.time(), seconds=60)
        assert_equal_there(project, alignment)
        assert alignment.live.offsets.covers(first.offsets)
    assert served(project, "new", project.wait_until_folded("new", candidate)) == story.expected()
    assert has_tail(project.store, "new")


def test_after_its_lease_a_newer_frontier_is_aimed_at_and_a_tail_is_aligned_again(
    project: Project, log: Log, topic_name: str, start: Callable[..., JobProcess]
) -> None:
    for build in ("old", "new"):
        project.bear(build, source(topic_name), OUTPUTS)
    (project.folder / "kappa.toml").write_text(SETTINGS)
    story = Story(log, topic_name, seed=2)
    story.produce(60)
    live = start("old")
    project.wait_until_folded("old", live)
    serve(project, "old")
    killed = start("new", KAPPA_FAIL="job.before_first_commit:kill")
    assert killed.ended() == -signal.SIGKILL, killed.said()
    leg = Legs(project.store, "new").last()
    assert leg is not None
    assert leg.kind is LegKind.ALIGNMENT
    assert leg.aim is not None
    ensure_released(project.store, leg.aim.lease)
    story.produce(30)
    project.wait_until_folded("old", live)

    candidate = start("new")
    # Spark's first batch may be empty: a crash shall cut a later one in two, so it must be folded.
    candidate.wait_for(lambda: folds_its_tail(project, "new"))

    first = aligned(project, "new")
    assert first.live.number > leg.aim.live.number
    assert_equal_there(project, first)
    assert candidate.stop() == 0
    # It is past the live build in some partitions then, and has folded a batch into one table only.
    live.process.send_signal(signal.SIGSTOP)
    story.produce(40)
    killed = start("new", KAPPA_FAIL="job.between_tables:kill")
    assert killed.ended() == -signal.SIGKILL, killed.said()

    again = start("new", "alignment")
    again.wait_for(lambda: "waiting for build old to reach" in again.said())
    assert aligned(project, "new").number == 1
    story.produce(40)
    live.process.send_signal(signal.SIGCONT)
    again.wait_for(lambda: aligned(project, "new").number > 1)

    second = aligned(project, "new")
    assert second.number == 2
    assert second.live.number > first.live.number
    assert_equal_there(project, second)
    assert served(project, "new", project.wait_until_folded("new", again)) == story.expected()


def leave_holes(bootstrap_servers: str, topic: str) -> None:
    """Transactions, every second one aborted: offsets that hold no record."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(4):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"kind": "aborted", "n": 1}).encode(), partition=1)
        producer.flush()
        producer.abort_transaction()
