"""Alignment: a candidate reaches exactly a frontier of the live build (law 13).

This is so whatever happens meanwhile. Both builds can be compared at that frontier.
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
from served import serve_build

from kappa.engine.job.legs import LegKind, Legs, has_tail
from kappa.kafka.client import Log
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build_status import read_progress
from kappa.state.frontier import Frontier
from kappa.state.lease import ensure_released, ensure_renewed

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault]

# Small slices, so that a catch-up has many.
SMALL = "[engine]\nslice_records = 150\ntail_records = 200\n"
# Upkeep at every turn: what is not pinned is gone soon.
LARGE = "[engine]\nslice_records = 5000\ntail_records = 5000\nmaintenance_seconds = 0.2\n"
BETWEEN = "job.between_tables:kill"


@contextmanager
def producing(story: Story, *, every_seconds: float) -> Iterator[None]:
    """Produces events until the end of the block, one slice for each job at a time."""
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


def aligned(project: Project, build: str) -> Alignment:
    last = Alignments(project.store, build).last()
    assert last is not None
    return last


def folds_its_tail(project: Project, build: str) -> bool:
    """Returns True if a batch of the build's tail has been published."""
    leg, frontier = Legs(project.store, build).last(), project.frontier(build)
    return (
        leg is not None
        and leg.kind is LegKind.TAIL
        and frontier is not None
        and frontier.leg == leg.number
    )


def assert_equal_there(project: Project, alignment: Alignment) -> None:
    """Asserts that both builds have equal offsets, kept files, and the same rows."""
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


def test_a_candidate_reaches_frontiers_of_the_live_build_though_jobs_are_killed(
    project: Project, log: Log, topic_name: str, start: Callable[..., JobProcess], broker: Any
) -> None:
    """Once a lease has ended, a newer frontier is the aim. A tail can be aligned again."""
    for build in ("old", "new"):
        project.bear(build, source(topic_name), OUTPUTS)
    (project.folder / "kappa.toml").write_text(SMALL)
    story = Story(log, topic_name)
    story.produce(600)
    leave_holes(broker.bootstrap_servers, f"{topic_name}.events")
    live = start("old")
    begin = project.wait_until_folded("old", live)
    serve_build(project.store, "counted", "old")
    with producing(story, every_seconds=3):
        a_catch_up_killed_in_mid_leg_goes_on_as_planned(project, begin, start)
    # What is left now is no catch-up, however much it is, but one slice of an alignment.
    (project.folder / "kappa.toml").write_text(LARGE)
    story.produce(20)
    project.wait_until_folded("old", live)

    # Two slices bring it to its alignment, and a later one of its tail is to kill it.
    aim, candidate = a_killed_alignment_goes_on(project, story, start, KAPPA_FAIL=f"{BETWEEN}:8")
    first = aligned(project, "new")
    # The live job does not pause for a candidate that starts: what is aligned with is newer.
    assert first.live.number > aim.number
    assert first.live.offsets.distance(aim.offsets) > 0
    assert first.live.offsets.covers(begin.offsets)
    assert ensure_renewed(project.store, first.lease, now=time.time(), seconds=600)
    assert_equal_there(project, first)
    live.kill()
    # It is past the live build in some partitions then, and has folded a batch into some tables.
    with producing(story, every_seconds=0.3):
        assert candidate.ended() == -signal.SIGKILL, candidate.said()
    assert folds_its_tail(project, "new")

    again = start("new", "alignment")
    again.wait_for(lambda: "waiting for build old to reach" in again.said())
    assert aligned(project, "new").number == 1
    story.produce(40)
    live = start("old")
    again.wait_for(lambda: aligned(project, "new").number > 1)

    second = aligned(project, "new")
    assert second.number == 2
    assert second.live.number > first.live.number
    # The live job goes on, and its upkeep with it, far past what is pinned.
    assert ensure_renewed(project.store, second.lease, now=time.time(), seconds=600)
    with producing(story, every_seconds=0.3):
        live.wait_for(
            lambda: (
                (now := project.frontier("old")) is not None and now.number > second.live.number + 8
            )
        )
    assert_equal_there(project, first)
    assert_equal_there(project, second)
    assert served(project, "new", project.wait_until_folded("new", again)) == story.expected()
    assert has_tail(project.store, "new")


def a_catch_up_killed_in_mid_leg_goes_on_as_planned(
    project: Project, live: Frontier, start: Callable[..., JobProcess]
) -> None:
    """The job is killed twice in its third slice: between two tables, and at the slice's begin."""
    killed = start("new", "catch-up", KAPPA_FAIL=f"{BETWEEN}:3")
    assert killed.ended() == -signal.SIGKILL, killed.said()
    half = project.frontier("new")
    assert half is not None
    # It has said how far it was.
    within = read_progress(project.store, "new", half)
    assert within is not None
    assert within.text == f"slice 3 of {within.of}: {within.offsets} records read, folding"
    assert not half.offsets.covers(live.offsets)
    killed = start("new", "catch-up", KAPPA_FAIL="slice.after_begin:kill")
    assert killed.ended() == -signal.SIGKILL, killed.said()

    # It is folded in pieces then, by tables that do not have it whole (law 12).
    caught_up = start("new", "catch-up")
    assert caught_up.ended() == 0, caught_up.said()
    assert "was begun 2 times and not ended" in caught_up.log.read_text(errors="replace")
    assert Alignments(project.store, "new").last() is None
    assert not has_tail(project.store, "new")


def a_killed_alignment_goes_on(
    project: Project, story: Story, start: Callable[..., JobProcess], **environment: str
) -> tuple[Frontier, JobProcess]:
    """Kills the job before it has folded anything, and ends its lease.

    Returns the frontier that it had to reach, and the job of the aligned candidate, which gets this
    `environment`.
    """
    killed = start("new", KAPPA_FAIL="job.before_first_commit:kill")
    assert killed.ended() == -signal.SIGKILL, killed.said()
    leg = Legs(project.store, "new").last()
    assert leg is not None
    assert leg.kind is LegKind.ALIGNMENT
    assert leg.aim is not None
    ensure_released(project.store, leg.aim.lease)
    with producing(story, every_seconds=1):
        candidate = start("new", **environment)
        candidate.wait_for(lambda: Alignments(project.store, "new").last())
    return leg.aim.live, candidate


def leave_holes(bootstrap_servers: str, topic: str) -> None:
    """Produces transactions and aborts them, which leaves offsets without a record."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(4):
        producer.begin_transaction()
        producer.produce(topic, json.dumps({"kind": "aborted", "n": 1}).encode(), partition=1)
        producer.flush()
        producer.abort_transaction()
