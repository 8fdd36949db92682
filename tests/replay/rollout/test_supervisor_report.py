"""Laws of the supervisor's report: what is waited for, the rate, deaths; put only if changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from clocks import Clock
from journals import at, numbered, staged

from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.step import (
    Acknowledge,
    AlignAgain,
    Append,
    RolloutStep,
    StartVerification,
    Wait,
    waits_for,
)
from kappa.replay.rollout.supervisor_report import (
    Deaths,
    Pace,
    ReportWriter,
    RolloutWait,
    SupervisorReport,
    ensure_no_report,
    read_supervisor_report,
)
from kappa.state.build_status import DECODED, read_counter, watch_slice
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import Failed, Held
from kappa.state.slices import Slice
from kappa.state.store import Store


class Counting(Store):
    """A store that counts its puts."""

    puts = 0

    def put_json(self, name: str, document: object, *, synced: bool = True) -> None:
        # Not those of the journal's note.
        self.puts += name.startswith("run/")
        super().put_json(name, document, synced=synced)


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (Wait("the rest of the log"), "the rest of the log"),
        (StartVerification(), "its verification to start"),
        (AlignAgain("b"), "the exact offsets of the live build, at which rows are compared"),
        (Append(Held(1, "a", 1)), ""),
        (Acknowledge("a", 3), ""),
    ],
)
def test_what_a_step_waits_for_is_told_in_its_words(step: RolloutStep, told: str) -> None:
    assert waits_for(step) == told


def test_a_pace_is_of_the_last_seconds() -> None:
    pace = Pace()

    assert [pace.rate(0, 0.0), pace.rate(40, 0.5)] == [None, None]
    assert pace.rate(100, 1.0) == 100
    assert pace.rate(1_000, 10.0) == 100
    # The records of the first second no longer count.
    assert pace.rate(1_000, 20.0) == 0


def test_the_pace_of_work_that_began_again_is_measured_anew() -> None:
    pace = Pace()
    pace.rate(0, 0.0), pace.rate(900, 2.0)

    assert pace.rate(100, 4.0) is None
    assert pace.rate(300, 6.0) == 100


def test_what_is_said_is_read_and_taken_back(store: Counting) -> None:
    clock, deaths = Clock(), {"a": Deaths(3, "exit code 1")}
    reporter = ReportWriter(store, deaths.get, clock=clock)
    state = fold_records(numbered(staged("a")))

    reporter.report(state, {1: "the rest of the log"}, frozenset({"a", "of another"}))

    found = read_supervisor_report(store)
    waits = {1: RolloutWait("the rest of the log", phase="replaying")}
    assert found == SupervisorReport(waits, deaths, ("a",))
    assert found.trouble("a") == "its job died 3 times, last: exit code 1; see kappa logs a"
    assert found.trouble("b") == ""
    ensure_no_report(store)
    assert read_supervisor_report(store) == SupervisorReport()


def test_a_rate_is_known_before_the_first_slice_ends(store: Counting) -> None:
    clock = Clock()
    reporter = ReportWriter(store, lambda _: None, clock=clock)
    state = fold_records(numbered(staged("a")))
    Frontiers(store, "a").publish(Frontier(1, "a", 1, at(0), {}, "then"))
    tasks = store.path(f"builds/a/{DECODED}/0")
    tasks.mkdir(parents=True)
    for clock.now, count in ((0.0, 100), (2.0, 300)):
        with watch_slice(store, "a", Slice(1, 0, at(0), at(1_000)), 1).step("read"):
            read_counter(tasks, "0")(count)
        reporter.report(state, {1: "the rest of the log"})

    assert read_supervisor_report(store).rollouts[1].rate == 100.0


def test_change_of_what_is_waited_for_is_told_at_once(store: Counting) -> None:
    """A changed wait is reported at once, other changes now and then."""
    clock = Clock()
    reporter = ReportWriter(store, lambda _: None, clock=clock)
    state = fold_records(numbered(staged("a")))
    for number, clock.now in enumerate((0.0, 0.2, 0.4, 0.9), start=1):
        Frontiers(store, "a").publish(Frontier(number, "a", 1, at(number * 100), {}, "then"))
        reporter.report(state, {1: "the rest of the log"})
    assert store.puts == 1

    clock.now = 2.0
    reporter.report(state, {1: "the rest of the log"})
    assert (store.puts, read_supervisor_report(store).rollouts[1].rate) == (2, 150.0)
    reporter.report(state, {1: "its verification"})
    assert store.puts == 3
    assert read_supervisor_report(store).rollouts[1].waits_for == "its verification"
    clock.now = 9.0
    ended = fold_records(numbered(staged("a"), Failed(1, "no")))
    reporter.report(ended, {})
    reporter.report(ended, {})
    assert (store.puts, read_supervisor_report(store).rollouts) == (4, {})
