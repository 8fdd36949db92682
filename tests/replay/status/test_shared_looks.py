"""Laws of shared looks: one look serves all requests while it is current.

A new generation causes a new look. A failure is reported to all requests, without a try for each.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clocks import Clock

from kappa.base.errors import UsageError
from kappa.replay.status.context import ProjectContext
from kappa.replay.status.status import BuildStatus, HeldBack, Status
from kappa.replay.status.status_cache import SharedLooks, moving_parts
from kappa.serving.query.reader.client import Client, ClientLeft
from kappa.state.build_status import Stopped
from kappa.state.offsets import Offsets


@pytest.fixture
def clock() -> Clock:
    return Clock(100.0)


@pytest.fixture
def desk(tmp_path: Path, clock: Clock) -> SharedLooks:
    (tmp_path / "kappa.toml").touch()
    return SharedLooks(ProjectContext(tmp_path, None), clock=clock)


def test_requests_share_a_look_for_a_while(desk: SharedLooks, clock: Clock) -> None:
    """A look is shared for a second, or for ten times as long as a slow look takes."""
    looks: list[float] = []

    def look() -> int:
        looks.append(clock.now)
        clock.now += 0.5
        return len(looks)

    assert [desk.shared_look(name, look) for name in ("a", "a", "b")] == [1, 1, 2]
    clock.now += 5.1
    assert desk.shared_look("a", look) == 3


def test_who_leaves_waits_for_no_look_and_ends_none_of_others(desk: SharedLooks) -> None:
    """A client that leaves stops waiting and ends no look of others.

    If a look ends because its client left, the next waiting client repeats it.
    """
    begun, first, second = threading.Event(), Client(), Client()

    def look() -> str:
        begun.set()
        while True:
            first.ensure_here()

    with ThreadPoolExecutor(3) as threads:
        looking = threads.submit(desk.shared_look, "a", look, client=first)
        begun.wait(20)
        leaving = threads.submit(desk.shared_look, "a", look, client=second)
        staying = threads.submit(desk.shared_look, "a", lambda: "seen")
        second.leave_now()
        assert isinstance(leaving.exception(20), ClientLeft)
        first.leave_now()

        assert isinstance(looking.exception(20), ClientLeft)
        assert staying.result(20) == "seen"


def test_nothing_is_a_finding_too(desk: SharedLooks) -> None:
    looks: list[int] = []
    assert [desk.shared_look("a", lambda: looks.append(1)) for _ in range(3)] == [None] * 3
    assert looks == [1]


def test_failing_look_is_told_and_tried_again(desk: SharedLooks, clock: Clock) -> None:
    looks: list[int] = []

    def fails() -> None:
        looks.append(1)
        clock.now += 20.0
        raise UsageError("no")

    for _ in range(3):
        with pytest.raises(UsageError, match="no") as told:
            desk.shared_look("a", fails)
    assert looks == [1]
    # The traceback would grow with each caller that it is raised in.
    assert len(told.traceback) < 4
    clock.now += 5.1
    assert desk.shared_look("a", lambda: 7) == 7


def test_status_without_broker_is_tried_again(desk: SharedLooks, clock: Clock) -> None:
    def without_its_broker() -> Status:
        clock.now += 4.0
        return Status(1, (), broker_error="no Kafka broker answers")

    assert desk.shared_look("status", without_its_broker).broker_error
    clock.now += 5.1
    assert not desk.shared_look("status", lambda: Status(1, ())).broker_error


def test_what_is_of_a_generation_is_not_told_as_that_of_the_next(desk: SharedLooks) -> None:
    assert desk.shared_look("tables", lambda: "old", generation=1) == "old"
    assert desk.shared_look("status", lambda: "same") == "same"

    assert desk.shared_look("tables", lambda: "new", generation=2) == "new"
    assert desk.shared_look("tables", lambda: "newer", generation=2) == "new"
    assert desk.shared_look("status", lambda: "other") == "same"


def test_it_remembers_no_more_than_so_much(desk: SharedLooks) -> None:
    for number in range(1000):
        desk.shared_look(f"rows of {number}", lambda: 1, generation=number // 300)
    assert len(desk._looks) <= 200


def test_whatever_a_page_tells_of_a_build_is_heard_when_it_changes() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    build = BuildStatus("web", "live", "b1", "v1", Offsets(), 0, None, 0, 0)
    changes = (
        {"folded": 1}, {"lag": 1}, {"lag": None}, {"fresh_at": now}, {"rate": 1.0},
        {"waits_for": "x"}, {"trouble": "x"}, {"role": "idle"}, {"rejected": 1},
        {"stopped": Stopped("it stopped", "", "")}, {"held_back": (HeldBack("t", 0, 1, 1),)},
        {"kept_until": now}, {"beyond": "too many"},
    )  # fmt: skip
    for change in changes:
        assert moving_parts(replace(build, **change)) != moving_parts(build), change  # type: ignore[arg-type]
    assert moving_parts(replace(build)) == moving_parts(build)
