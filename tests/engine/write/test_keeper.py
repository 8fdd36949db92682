"""Laws of kept frontiers: one at each switch, and one per interval while a build serves."""

from __future__ import annotations

from pathlib import Path

import pytest
from births import make_birth
from clocks import Clock
from commits import make_commits
from writers import make_mark

from kappa.engine.write.publisher import Publisher
from kappa.state.frontier import Frontier
from kappa.state.journal.events import Event, Held, Receipt, Served
from kappa.state.journal.journal import Journal
from kappa.state.kept_frontiers import kept_frontiers_of
from kappa.state.offsets import Offsets
from kappa.state.store import Store

FIRST = Frontier(1, "b", 1, Offsets(), {"t": 0}, "")


class Job:
    """A build's job, reduced to its publishing."""

    def __init__(self, store: Store, build: str, clock: Clock) -> None:
        self.publisher = Publisher(
            store, make_birth(build), hold_seconds=10, keep_every_seconds=60, clock=clock
        )
        self.publisher.begin(FIRST)

    def fold_to(self, offset: int) -> int:
        mark = make_mark(offset - 1, number=offset)
        return self.publisher.publish(mark, {"t": offset}).number


def append(store: Store, *events: Event) -> None:
    journal = Journal(store)
    last = sum(1 for _ in journal.after(0))
    for number, event in enumerate(events, start=last + 1):
        assert journal.append(number, event)


def served(generation: int, **serving: str) -> Served:
    return Served(1, generation, serving, Receipt("p", "", "", Offsets(), None, None))


def told(store: Store, build: str) -> list[tuple[int, tuple[int, ...], bool]]:
    return [
        (kept.frontier.number, kept.generations, kept.stays)
        for kept in kept_frontiers_of(store, build)
    ]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path, syncs=False)
    make_commits(store, "b", "t", 600)
    return store


def test_a_build_that_does_not_serve_keeps_nothing(store: Store) -> None:
    clock = Clock()
    job = Job(store, "b", clock)
    append(store, served(1, p="another"))
    for clock.now in range(0, 600, 60):
        job.fold_to(int(clock.now) + 1)

    assert told(store, "b") == []


def test_what_readers_see_first_is_kept_before_anything_else_is_published(store: Store) -> None:
    job = Job(store, "b", Clock())
    shown = job.fold_to(5)
    append(store, served(1, p="b"))

    job.fold_to(6)

    assert told(store, "b") == [(shown, (1,), True)]


def test_what_readers_saw_last_is_what_acknowledged_the_hold(store: Store) -> None:
    clock = Clock()
    job = Job(store, "b", clock)
    append(store, served(1, p="b"), Held(1, "b", 1))
    job.publisher.follow_journal()
    acknowledged = job.publisher.newest
    append(store, served(2, p="another"))

    job.fold_to(6)

    assert acknowledged.hold == 2
    assert told(store, "b")[-1] == (acknowledged.number, (2,), True)


def test_while_it_serves_one_is_kept_every_so_often_and_none_twice(store: Store) -> None:
    clock = Clock()
    append(store, served(1, p="b"))
    job = Job(store, "b", clock)
    numbers = {}
    for clock.now in range(0, 301, 10):
        job.publisher.follow_journal()
        # Nothing new in the middle of it.
        if not 100 < clock.now < 200:
            numbers[clock.now] = job.fold_to(int(clock.now) + 1)
    clock.now = 10_000
    job.publisher.follow_journal()
    job.publisher.follow_journal()

    assert [number for number, _, _ in told(store, "b")] == [
        1,
        numbers[50],
        numbers[100],
        numbers[200],
        numbers[260],
        numbers[300],
    ]


def test_what_was_last_published_is_kept_though_nothing_follows(store: Store) -> None:
    clock = Clock()
    append(store, served(1, p="b"))
    job = Job(store, "b", clock)
    job.publisher.follow_journal()
    clock.now = 30
    last = job.fold_to(1)
    clock.now = 60
    job.publisher.follow_journal()

    assert told(store, "b")[-1][0] == last


def test_what_readers_saw_while_no_job_was_there_is_kept_when_one_is_again(store: Store) -> None:
    append(store, served(1, p="b"))
    clock = Clock()
    Job(store, "b", clock).publisher.follow_journal()
    job = Job(store, "b", clock)
    clock.now = 5
    shown = job.fold_to(3)

    Job(store, "b", clock)

    assert shown in [number for number, _, _ in told(store, "b")]


def test_a_switch_of_another_pipeline_is_kept_for_a_while_only(store: Store) -> None:
    append(store, served(1, p="b"))
    job = Job(store, "b", Clock())
    shown = job.fold_to(3)
    append(store, served(2, p="b", q="c"))
    job.publisher.follow_journal()

    assert told(store, "b")[-1] == (shown, (2,), False)


def test_a_job_that_was_away_at_a_switch_keeps_it_when_it_begins_again(store: Store) -> None:
    first = Job(store, "b", Clock())
    shown = first.fold_to(3)
    append(store, served(1, p="b"), served(2, p="b", q="c"))

    again = Job(store, "b", Clock())
    again.fold_to(4)
    once_more = Job(store, "b", Clock())

    assert told(store, "b")[0] == (shown, (1, 2), True)
    assert all(not generations for number, generations, _ in told(store, "b") if number != shown)
    assert once_more.publisher.newest.number > shown
