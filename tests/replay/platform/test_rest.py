"""Laws of rest: nothing is unread for longer than a topic promises, and none rests early.

A build is simulated second by second: records come, a job folds while there is one.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.replay.platform.rest import Looked, Promise, Repose, after_look
from kappa.state.offsets import Offsets

REST_AFTER = 5.0
MANY = 20


def at(offset: int) -> Offsets:
    return Offsets({"t": {0: offset}})


class World:
    """A build of one topic, its job, and a look at it each second."""

    def __init__(self, promise: Promise) -> None:
        self.promise = promise
        self.now = 0.0
        self.end = self.folded = 0
        self.runs = self.kept = False
        self.heard_at = 0.0
        self.repose: Repose | None = None
        # When each offset that is not folded came.
        self.came: list[float] = []

    def second(self, records: int, *, kept: bool) -> None:
        self.now += 1
        self.end += records
        self.came += [self.now] * records
        self.kept = kept
        if self.runs:
            self.folded, self.came, self.heard_at = self.end, [], self.now
        self.repose = after_look(
            self.repose,
            Looked(
                at(self.folded), at(self.end), self.now - self.heard_at, kept=kept, runs=self.runs
            ),
            self.promise,
            now=self.now,
            rest_after=REST_AFTER,
            many=MANY,
        )
        self.runs = not self.repose.rests


# For a while, so many records come every so many seconds, to a build that is kept or not.
phases = st.lists(
    st.tuples(
        st.integers(1, 50),
        st.sampled_from([0, 0, 1, 3, 50]),
        st.integers(1, 20),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.law
@given(phases, st.sampled_from([5.0, 8.0, 30.0]), st.booleans(), st.booleans())
def test_nobody_waits_for_a_build_that_rests(
    spans: list[tuple[int, int, int, bool]], turn: float, hears: bool, by_size: bool
) -> None:
    world = World(Promise(turn, hears, by_size))
    quiet = 0
    steps = [
        (records if number % every == 0 else 0, kept)
        for length, records, every, kept in spans
        for number in range(length)
    ]
    for records, kept in steps:
        ran = world.runs
        world.second(records, kept=kept)
        quiet = 0 if records else quiet + 1
        # A record that readers wait for wakes at the first look.
        if not kept and world.end > world.folded:
            assert world.runs
        # One that is kept leaves little unread, and never for longer than the topic keeps it.
        assert world.end - world.folded < MANY or world.runs
        assert world.end == world.folded or world.runs or not by_size
        if world.came and not world.runs:
            assert world.now - world.came[0] <= turn + 1
        # It hears of deletions in time.
        if hears:
            assert world.now - world.heard_at <= turn + 1
        # One that serves goes to rest only after a while without records.
        if ran and not world.runs and not kept:
            assert quiet >= REST_AFTER


@pytest.mark.law
@given(st.booleans(), st.integers(0, 200))
def test_without_records_every_build_rests_in_the_end(kept: bool, records: int) -> None:
    world = World(Promise())
    world.second(records, kept=kept)
    for _ in range(9):
        world.second(0, kept=kept)

    assert not world.runs


def test_an_undo_wakes_the_build_that_was_kept_for_it() -> None:
    world = World(Promise())
    for _ in range(9):
        world.second(0, kept=True)
    assert not world.runs

    world.second(0, kept=False)

    assert world.runs


def test_a_topic_that_keeps_too_little_lets_no_build_rest() -> None:
    world = World(Promise(turn_seconds=REST_AFTER - 1, hears=True))
    for _ in range(30):
        world.second(0, kept=False)

    assert world.runs


@pytest.mark.parametrize(
    ("config", "promise"),
    [
        ({}, Promise()),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, Promise()),
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, Promise()),
        ({"cleanup.policy": "delete", "retention.ms": "60000"}, Promise(15.0)),
        ({"retention.bytes": "1000"}, Promise(by_size=True)),
        ({"retention.bytes": "-1"}, Promise()),
        (
            {"cleanup.policy": "compact", "delete.retention.ms": "8000", "retention.ms": "4"},
            Promise(2.0, hears=True),
        ),
        (
            {
                "cleanup.policy": "compact,delete",
                "delete.retention.ms": "8000",
                "retention.ms": "4000",
            },
            Promise(1.0, hears=True),
        ),
    ],
)
def test_a_topics_settings_say_what_it_promises(config: dict[str, str], promise: Promise) -> None:
    assert Promise.of([{}, config]) == promise
