"""Laws of rest: no record is unread for longer than a topic promises; no build rests early.

A build is simulated second by second: records come, and a job folds while there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twins import FLIGHTS, make_build

from kappa.base.clock import now as clock_now
from kappa.base.errors import KappaError, Unreachable
from kappa.engine.job.legs import Leg, LegKind, Legs
from kappa.replay.platform.idle_builds import BuildLook, Rests, RestState, TopicPromise, after_look
from kappa.state.build import TopicBirth
from kappa.state.build_status import ask_turn, turns_asked
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

REST_AFTER = 5.0
MANY = 20


def at(offset: int) -> Offsets:
    return Offsets({"t": {0: offset}})


class SimulatedBuild:
    """A build of one topic with its job, observed once a second."""

    def __init__(self, promise: TopicPromise) -> None:
        self.promise = promise
        self.now = 0.0
        self.end = self.folded = 0
        self.runs = self.kept = False
        self.heard_at = 0.0
        self.repose: RestState | None = None
        # When each offset that is not folded came.
        self.came: list[float] = []

    def second(self, records: int, *, kept: bool) -> None:
        self.now += 1
        self.end += records
        self.came += [self.now] * records
        self.kept = kept
        if self.runs:
            self.folded, self.came, self.heard_at = self.end, [], self.now
        silent = self.now - self.heard_at
        look = BuildLook(at(self.folded), at(self.end), silent, kept=kept, runs=self.runs)
        rules = {"now": self.now, "rest_after": REST_AFTER, "many": MANY}
        self.repose = after_look(self.repose, look, self.promise, **rules)
        self.runs = not self.repose.rests


# For a while, so many records come every so many seconds, to a build that is kept or not.
counts = st.sampled_from([0, 0, 1, 3, 50])
phase = st.tuples(st.integers(1, 50), counts, st.integers(1, 20), st.booleans())
phases = st.lists(phase, min_size=1, max_size=4)


@pytest.mark.law
@given(phases, st.sampled_from([5.0, 8.0, 30.0]), st.booleans(), st.booleans())
def test_nobody_waits_for_a_build_that_rests(
    spans: list[tuple[int, int, int, bool]], turn: float, hears: bool, by_size: bool
) -> None:
    build = SimulatedBuild(TopicPromise(turn, hears, by_size))
    quiet = 0
    steps = [
        (records if number % every == 0 else 0, kept)
        for length, records, every, kept in spans
        for number in range(length)
    ]
    for records, kept in steps:
        ran = build.runs
        build.second(records, kept=kept)
        quiet = 0 if records else quiet + 1
        # A record that readers wait for wakes at the first look.
        if not kept and build.end > build.folded:
            assert build.runs
        # One that is kept leaves little unread, and never for longer than the topic keeps it.
        assert build.end - build.folded < MANY or build.runs
        assert build.end == build.folded or build.runs or not by_size
        if build.came and not build.runs:
            assert build.now - build.came[0] <= turn + 1
        # It hears of deletions in time.
        if hears:
            assert build.now - build.heard_at <= turn + 1
        # One that serves goes to rest only after a while without records.
        if ran and not build.runs and not kept:
            assert quiet >= REST_AFTER


@pytest.mark.law
@given(st.booleans(), st.integers(0, 200))
def test_without_records_every_build_rests_in_the_end(kept: bool, records: int) -> None:
    build = SimulatedBuild(TopicPromise())
    build.second(records, kept=kept)
    for _ in range(9):
        build.second(0, kept=kept)

    assert not build.runs


def test_an_undo_wakes_the_build_that_was_kept_for_it() -> None:
    build = SimulatedBuild(TopicPromise())
    for _ in range(9):
        build.second(0, kept=True)
    assert not build.runs

    build.second(0, kept=False)

    assert build.runs


def test_a_topic_that_keeps_too_little_lets_no_build_rest() -> None:
    build = SimulatedBuild(TopicPromise(turn_seconds=REST_AFTER - 1, hears=True))
    for _ in range(30):
        build.second(0, kept=False)

    assert build.runs


EIGHT = {"delete.retention.ms": "8000"}


@pytest.mark.parametrize(
    ("config", "promise"),
    [
        ({}, TopicPromise()),
        ({"cleanup.policy": "delete", "retention.ms": "-1"}, TopicPromise()),
        ({"cleanup.policy": "delete", "retention.ms": "604800000"}, TopicPromise()),
        ({"cleanup.policy": "delete", "retention.ms": "60000"}, TopicPromise(15.0)),
        ({"retention.bytes": "1000"}, TopicPromise(by_size=True)),
        ({"retention.bytes": "-1"}, TopicPromise()),
        (
            {"cleanup.policy": "compact", **EIGHT, "retention.ms": "4"},
            TopicPromise(2.0, hears=True),
        ),
        (
            {"cleanup.policy": "compact,delete", **EIGHT, "retention.ms": "4000"},
            TopicPromise(1.0, hears=True),
        ),
    ],
)
def test_topic_settings_say_its_promise(config: dict[str, str], promise: TopicPromise) -> None:
    assert TopicPromise.of_topics([{}, config]) == promise


NONE, BOTH = frozenset[str](), frozenset("ab")


class FewTopics:
    """A log whose topics have one partition with the given numbers of records."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.error: KappaError | None = None
        self.asked = 0

    def end(self, topics: Iterable[str]) -> Offsets:
        self.asked += 1
        if self.error is not None:
            raise self.error
        gone = sorted(set(topics) - self.ends.keys())
        if gone:
            raise KappaError(f"there is no topic {gone[0]}", hint="make it")
        return Offsets({topic: {0: self.ends[topic]} for topic in topics})

    def config(self, name: str) -> Mapping[str, str]:
        if name not in self.ends:
            raise KappaError(f"there is no topic {name}", hint="make it")
        return {"cleanup.policy": "delete", "retention.ms": "-1"}


class Supervised:
    """A supervisor of the builds a and b, each of which has folded ten records of a topic."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.log = FewTopics()
        self.log.ends[FLIGHTS.name] = 10
        self.now = 0.0
        self.said: list[str] = []
        self.runs = NONE
        self.rests = self.new_rests()
        for build in BOTH:
            self.make(build, FLIGHTS)
            Legs(self.store, build).begin(Leg(1, LegKind.TAIL, Offsets()))

    def new_rests(self, rest_after: float = 10) -> Rests:
        how = {"say": self.said.append, "clock": lambda: self.now}
        return Rests(self.store, rest_after=rest_after, many=100, **how)

    def make(self, build: str, topic: TopicBirth) -> None:
        make_build(self.store, build, {}, topics=(topic,))
        self.fold(build, topic)

    def fold(self, build: str, topic: TopicBirth = FLIGHTS) -> None:
        frontiers = Frontiers(self.store, build)
        newest = frontiers.newest()
        number, end = newest.number + 1, Offsets({topic.name: {0: self.log.ends[topic.name]}})
        frontiers.publish(replace(newest, number=number, offsets=end, heard_at=clock_now()))

    def rest(self, after: float = 1.0, kept: frozenset[str] = NONE) -> str:
        """Looks once, `after` some seconds; returns the builds that rest now."""
        self.now += after
        resting = self.rests.update_resting(BOTH, kept, self.runs, self.log)
        self.runs = BOTH - resting
        return "".join(sorted(resting))


@pytest.fixture
def desk(tmp_path: Path) -> Supervised:
    return Supervised(tmp_path)


def test_a_build_with_nothing_to_fold_has_no_job_from_the_start(desk: Supervised) -> None:
    desk.log.ends[FLIGHTS.name] = 11
    assert desk.rest() == ""
    desk.fold("a")
    desk.fold("b")
    desk.runs = NONE

    desk.rests = desk.new_rests()

    assert desk.rest() == "ab"


def test_idle_job_rests_and_a_record_wakes_it(desk: Supervised) -> None:
    desk.runs = BOTH
    assert [desk.rest() for _ in range(10)] == [""] * 10
    assert desk.rest() == "ab"

    desk.log.ends[FLIGHTS.name] += 1

    assert desk.rest(0.6) == ""
    assert desk.said[-2:] == ["build a wakes", "build b wakes"]
    desk.fold("a")
    # The other one has not folded it, so it is at work.
    assert [desk.rest() for _ in range(12)][-1] == "a"


def test_the_log_is_not_asked_for_a_build_that_folds(desk: Supervised) -> None:
    desk.runs = BOTH
    desk.rest()
    asked = desk.log.asked
    for _ in range(30):
        desk.log.ends[FLIGHTS.name] += 1
        desk.fold("a")
        desk.fold("b")
        assert desk.rest() == ""

    assert desk.log.asked == asked


def test_a_log_that_does_not_answer_changes_nothing(desk: Supervised) -> None:
    desk.rest()
    desk.log.error = Unreachable("no broker answers", hint="start it")
    desk.log.ends[FLIGHTS.name] += 1

    assert desk.rest(60) == "ab"

    desk.log.error = None
    assert desk.rest() == ""


def test_one_whose_topic_is_gone_is_woken_to_say_so(desk: Supervised) -> None:
    other = replace(FLIGHTS, name="others")
    desk.log.ends["others"] = 10
    desk.make("c", other)
    Legs(desk.store, "c").begin(Leg(1, LegKind.TAIL, Offsets()))
    three = BOTH | {"c"}
    assert desk.rests.update_resting(three, NONE, NONE, desk.log) == three

    del desk.log.ends["others"]
    desk.now += 1

    assert desk.rests.update_resting(three, NONE, NONE, desk.log) == BOTH


def test_a_build_that_has_not_caught_up_never_rests(desk: Supervised) -> None:
    desk.make("c", FLIGHTS)

    assert desk.rests.update_resting(BOTH | {"c"}, NONE, NONE, desk.log) == BOTH


def test_zero_seconds_let_none_rest(desk: Supervised) -> None:
    desk.rests = desk.new_rests(rest_after=0)

    assert desk.rest(1e6) == ""
    assert desk.log.asked == 0


def test_the_log_is_looked_at_often_at_first_and_then_twice_a_second(desk: Supervised) -> None:
    assert desk.rest() == "ab"

    def asked(seconds: float) -> int:
        before, until = desk.log.asked, desk.now + seconds
        while desk.now < until:
            assert desk.rest(after=0.1) == "ab"
        return desk.log.asked - before

    assert asked(5) == pytest.approx(50, abs=2)
    desk.now = 20.0
    assert asked(5) == pytest.approx(10, abs=2)


def test_asked_for_kept_build_folds_and_rests(desk: Supervised) -> None:
    kept = frozenset("a")
    desk.log.ends[FLIGHTS.name] += 1
    while desk.rest(kept=kept) != "a":
        desk.fold("b")
    assert desk.rest(kept=kept) == "a"

    ask_turn(desk.store, "a")

    assert desk.rest(kept=kept) == ""
    assert turns_asked(desk.store) == NONE
    assert desk.rests.woken["a"] <= clock_now()
    desk.fold("a")
    assert "a" in desk.rest(kept=kept)
    # One that has nothing to fold goes on resting, and the asking is over.
    ask_turn(desk.store, "a")
    assert "a" in desk.rest(kept=kept)
    assert turns_asked(desk.store) == NONE
