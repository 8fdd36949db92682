"""Laws of the builds that rest: the log decides, and a log that is not seen decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace
from twins import FLIGHTS, make_build

from kappa.base.clock import now as clock_now
from kappa.base.errors import KappaError, Unreachable
from kappa.engine.job.legs import Leg, LegKind, Legs
from kappa.replay.platform.rests import Rests
from kappa.state.build import TopicBirth
from kappa.state.build_status import ask_turn, turns_asked
from kappa.state.frontier import Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

NONE, BOTH = frozenset[str](), frozenset("ab")


class FewTopics:
    """A log whose topics have so many records in their one partition."""

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


class Desk:
    """A supervisor over the builds a and b, which have folded ten records of a topic each."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self.log = FewTopics()
        self.log.ends[FLIGHTS.name] = 10
        self.now = 0.0
        self.said: list[str] = []
        self.runs = NONE
        self.rests = Rests(
            self.store, rest_after=10, many=100, say=self.said.append, clock=lambda: self.now
        )
        for build in BOTH:
            self.make(build, FLIGHTS)
            Legs(self.store, build).begin(Leg(1, LegKind.TAIL, Offsets()))

    def make(self, build: str, topic: TopicBirth) -> None:
        make_build(self.store, build, {}, topics=(topic,))
        self.fold(build, topic)

    def fold(self, build: str, topic: TopicBirth = FLIGHTS) -> None:
        frontiers = Frontiers(self.store, build)
        newest = frontiers.newest()
        assert newest is not None
        end = Offsets({topic.name: {0: self.log.ends[topic.name]}})
        frontiers.publish(
            replace(newest, number=newest.number + 1, offsets=end, heard_at=clock_now())
        )

    def rest(self, after: float = 1.0, kept: frozenset[str] = NONE) -> str:
        """Looks once; returns the builds that rest now."""
        self.now += after
        resting = self.rests.resting(BOTH, kept, self.runs, self.log)
        self.runs = BOTH - resting
        return "".join(sorted(resting))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_build_with_nothing_to_fold_has_no_job_from_the_start(desk: Desk) -> None:
    desk.log.ends[FLIGHTS.name] = 11
    assert desk.rest() == ""
    desk.fold("a")
    desk.fold("b")
    desk.runs = NONE

    desk.rests = Rests(
        desk.store, rest_after=10, many=100, say=desk.said.append, clock=lambda: desk.now
    )

    assert desk.rest() == "ab"


def test_one_that_has_begun_rests_after_a_while_and_the_next_record_wakes_it(desk: Desk) -> None:
    desk.runs = BOTH
    assert [desk.rest() for _ in range(10)] == [""] * 10
    assert desk.rest() == "ab"

    desk.log.ends[FLIGHTS.name] += 1

    assert desk.rest(0.6) == ""
    assert desk.said[-2:] == ["build a wakes", "build b wakes"]
    desk.fold("a")
    # The other one has not folded it, so it is at work.
    assert [desk.rest() for _ in range(12)][-1] == "a"


def test_the_log_is_not_asked_for_a_build_that_folds(desk: Desk) -> None:
    desk.runs = BOTH
    desk.rest()
    asked = desk.log.asked
    for _ in range(30):
        desk.log.ends[FLIGHTS.name] += 1
        desk.fold("a")
        desk.fold("b")
        assert desk.rest() == ""

    assert desk.log.asked == asked


def test_a_log_that_does_not_answer_changes_nothing(desk: Desk) -> None:
    desk.rest()
    desk.log.error = Unreachable("no broker answers", hint="start it")
    desk.log.ends[FLIGHTS.name] += 1

    assert desk.rest(60) == "ab"

    desk.log.error = None
    assert desk.rest() == ""


def test_one_whose_topic_is_gone_is_woken_to_say_so(desk: Desk) -> None:
    other = replace(FLIGHTS, name="others")
    desk.log.ends["others"] = 10
    desk.make("c", other)
    Legs(desk.store, "c").begin(Leg(1, LegKind.TAIL, Offsets()))
    three = BOTH | {"c"}
    assert desk.rests.resting(three, NONE, NONE, desk.log) == three

    del desk.log.ends["others"]
    desk.now += 1

    assert desk.rests.resting(three, NONE, NONE, desk.log) == BOTH


def test_a_build_that_has_not_caught_up_never_rests(desk: Desk) -> None:
    desk.make("c", FLIGHTS)

    assert desk.rests.resting(BOTH | {"c"}, NONE, NONE, desk.log) == BOTH


def test_zero_seconds_let_none_rest(desk: Desk) -> None:
    desk.rests = Rests(
        desk.store, rest_after=0, many=100, say=desk.said.append, clock=lambda: desk.now
    )

    assert desk.rest(1e6) == ""
    assert desk.log.asked == 0


def test_the_log_is_looked_at_often_at_first_and_then_twice_a_second(desk: Desk) -> None:
    assert desk.rest() == "ab"

    def asked(seconds: float) -> int:
        before, until = desk.log.asked, desk.now + seconds
        while desk.now < until:
            assert desk.rest(after=0.1) == "ab"
        return desk.log.asked - before

    assert asked(5) == pytest.approx(50, abs=2)
    desk.now = 20.0
    assert asked(5) == pytest.approx(10, abs=2)


def test_a_kept_build_that_is_asked_for_folds_what_there_is_and_rests_again(desk: Desk) -> None:
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
