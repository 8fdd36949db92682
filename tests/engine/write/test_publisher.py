"""Frontiers advance only without a hold, and only by a build's newest process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from clocks import Clock
from commits import make_commits
from msgspec.structs import replace
from writers import make_mark

from kappa.base.errors import Broken
from kappa.engine.write.publisher import Publisher, Stopping
from kappa.replay.rollout.promote import acknowledge_for_dead_job
from kappa.state.build import Birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Abandoned, Held, Released
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.mark import Mark
from kappa.state.offsets import Offsets
from kappa.state.store import Store

BIRTH = Birth("b", "p", "v", {}, 1, {}, "m", (), (), {}, {}, {}, "", "")
FIRST = Frontier(1, "b", 1, Offsets(), {"t": 0}, "")


def mark(offset: int) -> Mark:
    return make_mark(offset - 1, number=offset)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path, syncs=False)
    make_commits(store, "b", "t", 8)
    return store


def begun(
    store: Store, clock: Clock | None = None, stop: threading.Event | None = None
) -> Publisher:
    publisher = Publisher(store, BIRTH, hold_seconds=10, stop=stop, clock=clock or Clock())
    publisher.begin(FIRST)
    return publisher


def held(store: Store, number: int, build: str = "b") -> JournalRecord:
    record = Journal(store).append(number, Held(rollout=1, build=build, attempt=1))
    assert record is not None
    return record


def test_a_new_process_says_the_same_again_under_its_own_epoch(store: Store) -> None:
    begun(store).publish(mark(5), {"t": 1})

    newest = begun(store).newest

    assert (newest.number, newest.epoch) == (3, 2)
    assert (newest.offsets, newest.versions) == (mark(5).end, {"t": 1})


def test_when_all_was_heard_is_said_by_who_has_read_it_and_kept_by_everybody_else(
    store: Store,
) -> None:
    publisher = begun(store)
    born = publisher.newest.heard_at
    assert publisher.publish(mark(5), {"t": 1}).heard_at == born

    assert (
        publisher.publish(mark(6), {"t": 2}, heard_at="2026-11-01T00:00:00Z").heard_at
        == "2026-11-01T00:00:00Z"
    )
    held(store, 1)
    publisher.follow_journal()
    assert (publisher.newest.hold, publisher.newest.heard_at) == (1, "2026-11-01T00:00:00Z")
    again = begun(store)
    assert again.newest.heard_at == "2026-11-01T00:00:00Z"
    Journal(store).append(2, Released(1, "b", 1, "enough"))
    assert again.republish({"t": 3}).heard_at == "2026-11-01T00:00:00Z"
    assert again.publish_heard_at("2026-11-02T00:00:00Z").heard_at == "2026-11-02T00:00:00Z"


def test_a_late_word_of_a_dead_process_is_refused(store: Store) -> None:
    dead = begun(store)
    begun(store)

    with pytest.raises(Broken, match="put by another process"):
        dead.publish(mark(5), {"t": 1})

    assert (_newest(store).epoch, _newest(store).offsets) == (2, Offsets())


class Late(Store):
    """A store in which a dead process's pending put lands just before the next frontier's put."""

    late: Frontier | None = None

    def put_new(self, name: str, content: bytes) -> bool:
        if "/frontier/" in name and self.late is not None:
            landing, self.late = self.late, None
            Frontiers(self, "b").publish(landing)
        return super().put_new(name, content)


@pytest.fixture
def late(tmp_path: Path) -> Late:
    """A store of a dead process, whose last put has not landed yet."""
    store = Late(tmp_path, syncs=False)
    make_commits(store, "b", "t", 8)
    dead = begun(store).publish(mark(5), {"t": 1})
    store.late = replace(dead, number=dead.number + 1, offsets=mark(6).end, versions={"t": 2})
    return store


def test_a_put_that_a_dead_process_left_behind_may_land_while_the_next_one_begins(
    late: Late,
) -> None:
    newest = begun(late).newest

    assert (newest.number, newest.epoch) == (4, 2)
    assert (newest.offsets, newest.versions) == (mark(6).end, {"t": 2})


def test_who_acts_for_a_dead_job_acknowledges_what_it_had_under_way_too(late: Late) -> None:
    acknowledge_for_dead_job(late, "b", 8)

    newest = _newest(late)
    assert (newest.number, newest.epoch, newest.hold) == (4, 2, 8)
    assert (newest.offsets, newest.versions) == (mark(6).end, {"t": 2})


def test_a_hold_is_acknowledged_once_at_the_offsets_that_stand(store: Store) -> None:
    publisher = begun(store)
    publisher.publish(mark(5), {"t": 1})
    hold = held(store, 1)

    publisher.follow_journal()
    publisher.follow_journal()

    assert publisher.is_held()
    assert _newest(store) == replace(
        publisher.newest, number=3, hold=hold.number, offsets=Offsets({"x": {0: 5}})
    )


def test_nothing_is_published_until_the_hold_ends(store: Store) -> None:
    publisher = begun(store)
    held(store, 1)
    publisher.follow_journal()
    publishing = threading.Thread(target=publisher.publish, args=(mark(6), {"t": 2}))
    publishing.start()
    publishing.join(0.3)
    assert publishing.is_alive()
    assert _newest(store).offsets == Offsets()

    Journal(store).append(2, Abandoned(rollout=1, reason="enough"))
    publishing.join(10)

    assert not publishing.is_alive()
    assert (_newest(store).offsets, _newest(store).hold) == (Offsets({"x": {0: 6}}), None)


def test_a_hold_that_lasts_too_long_is_released_by_a_record(store: Store) -> None:
    clock = Clock()
    publisher = begun(store, clock)
    held(store, 1)
    publisher.follow_journal()
    clock.now = 9.9
    publisher.follow_journal()
    assert Journal(store).get(2) is None

    clock.now = 10.0
    publisher.follow_journal()

    record = Journal(store).get(2)
    assert record is not None
    assert isinstance(record.event, Released)
    assert record.event.hold == 1
    assert not publisher.is_held()


def test_a_release_whose_number_is_taken_looks_at_what_stands_there(store: Store) -> None:
    clock = Clock()
    publisher = begun(store, clock)
    held(store, 1)
    publisher.follow_journal()
    Journal(store).append(2, Abandoned(rollout=1, reason="just in time"))

    clock.now = 60
    publisher.follow_journal()

    assert Journal(store).get(3) is None
    assert not publisher.is_held()


def test_a_hold_of_another_build_is_no_hold(store: Store) -> None:
    publisher = begun(store)
    held(store, 1, build="another")

    assert publisher.publish(mark(5), {"t": 1}).number == 2


def test_a_process_that_begins_while_a_hold_is_open_acknowledges_it(store: Store) -> None:
    begun(store)
    held(store, 1)

    assert begun(store).newest.hold == 1


def test_who_is_asked_to_stop_while_held_publishes_nothing(store: Store) -> None:
    stop = threading.Event()
    publisher = begun(store, stop=stop)
    held(store, 1)
    stop.set()

    with pytest.raises(Stopping):
        publisher.publish(mark(5), {"t": 1})

    assert _newest(store).offsets == Offsets()


def _newest(store: Store) -> Frontier:
    newest = Frontiers(store, "b").newest()
    assert newest is not None
    return newest
