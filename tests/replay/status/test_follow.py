"""Laws of progress: a few lines say everything; without a terminal, each state has one line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

from clocks import Clock
from journals import NOWHERE, at, numbered, staged, verified
from msgspec import structs
from rich.console import Console

from kappa.base.errors import Unreachable
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.rollout import Rollout
from kappa.replay.rollout.supervisor_report import RolloutWait
from kappa.replay.status.follow import (
    RolloutProgress,
    progress_lines,
    rollout_news,
    show_progress,
    verification_text,
)
from kappa.state.build import Base
from kappa.state.build_status import SliceProgress, table_step
from kappa.state.journal.events import CaughtUp, Check, Event
from kappa.state.offsets import Offsets

LINE = "rollout 1 of pipeline flights"


def rollout(*after: Event) -> Rollout:
    return fold_records(numbered(staged("b"), *after)).rollout(1)


def replaying(
    folded: int, *, waits_for: str = "the rest of the log", rate: float | None = 50.0
) -> RolloutProgress:
    waiting = RolloutWait(waits_for, rate)
    return RolloutProgress(rollout(), at(0), at(folded), waiting, live="a", shown=at(90))


def told(steps: Iterator[RolloutProgress], clock: Clock, *, terminal: bool) -> str:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=200, color_system=None)
    show_progress(steps, at(1_000), console, end_now=lambda: at(100), clock=clock)
    return said.getvalue()


def test_it_tells_phase_share_rate_time_left_reason_and_the_live_build() -> None:
    assert progress_lines(replaying(250), at(1_000), at(100)) == (
        f"{LINE}: replaying, 250 of 1,000 records read (25 %), 50/s, 15 s left",
        "waits for the rest of the log",
        "live build a is 10 records behind the log",
    )


def test_what_is_read_of_a_long_slice_counts_before_the_slice_ends() -> None:
    within = SliceProgress(1, 0, 4, 250, "read", 100)

    assert progress_lines(replace(replaying(0), slice=within), at(1_000), None) == (
        f"{LINE}: replaying, 100 of 1,000 records read (10 %), 50/s, 18 s left",
        "slice 1 of 4: 100 of 250 records read",
    )


def test_a_verification_names_the_table_that_it_looks_at() -> None:
    step = table_step("comparing", "delays", 2, 4)

    _, told = progress_lines(replace(replaying(1_000), verifying=step), at(1_000), None)
    assert told == "comparing table delays (2 of 4)"


def test_trouble_and_checks_are_told() -> None:
    checks = tuple(Check("delays", check, 3, 0) for check in ("n > 0", "n < 9"))
    waits = rollout(CaughtUp(1, NOWHERE), structs.replace(verified(1), checks=checks))
    waiting = RolloutWait("build a to acknowledge the hold")
    progress = RolloutProgress(waits, at(0), at(10), waiting, live="a", shown=at(100))
    progress = replace(progress, trouble="build b: its job died 3 times")

    assert progress_lines(progress, at(10), at(100)) == (
        "rollout 1 of pipeline flights: ready",
        "waits for build a to acknowledge the hold",
        "build b: its job died 3 times",
        "live build a is at the end of the log",
        "verification passed, 2 of 2 checks",
    )
    # The supervisor's report is older than the phase.
    stale = replace(progress, waiting=RolloutWait("its verification to start", phase="verifying"))
    assert not any("to start" in line for line in progress_lines(stale, at(10), at(100)))


def test_failing_rows_stand_below_their_check() -> None:
    samples = (("UA", None), ("[b]AA", "-1"))
    failed = Check("delays", "n > 0", 3, 2, columns=("carrier", "n"), samples=samples)
    checks = (failed, Check("delays", "n < 9", 3, 0))
    seen = structs.replace(verified(1), verdict="failed", checks=checks)

    assert verification_text(rollout(CaughtUp(1, NOWHERE), seen)).splitlines()[2:] == [
        "  delays: n > 0: 2 of 3 rows fail",
        "    carrier=UA, n=null",
        "    carrier=[b]AA, n=-1",
        "  delays: n < 9: 3 rows pass",
    ]


def test_a_branch_is_told_as_one_and_its_share_is_of_what_its_job_reads() -> None:
    base = Base("a", "v0", at(800).plain(), 3, at(600).plain())
    branch = fold_records(numbered(structs.replace(staged("b"), base=base))).rollout(1)

    (news,) = rollout_news(None, branch)
    of_a = "is a branch of build a (version v0) at flights:0=800"
    assert news == f"rollout 1: build b of pipeline flights {of_a}"
    progress = RolloutProgress(branch, at(600), at(700), RolloutWait("", 10.0))
    (line,) = progress_lines(progress, at(1_000), None)
    assert line.endswith("replaying, 100 of 400 records read (25 %), 10/s, 30 s left")


def test_what_is_not_known_is_not_told() -> None:
    assert progress_lines(RolloutProgress(rollout(), at(0), None), at(0), None) == (
        "rollout 1 of pipeline flights: replaying, 0 of 0 records read",
    )


def test_topics_that_the_live_build_does_not_read_are_none_of_its_lag() -> None:
    log_end = Offsets({"flights": {0: 100}, "airlines": {0: 7_000}})

    last = progress_lines(replaying(1), at(1), log_end)[-1]
    assert last == "live build a is 10 records behind the log"


def test_without_a_terminal_each_state_and_tenth_has_one_line() -> None:
    def steps() -> Iterator[RolloutProgress]:
        for _ in range(50):
            yield replaying(0, waits_for="its Spark to start", rate=None)
        for folded in range(0, 250, 5):
            yield replaying(folded)
            # Between two slices the job says nothing for a moment.
            yield replace(replaying(folded), slice=SliceProgress(1, 0, 4, 250, "read", 1))
        yield RolloutProgress(rollout(CaughtUp(1, at(350))), at(0), at(350))

    def line(read: int) -> str:
        share = f"{read} of 1,000 records read ({read // 10} %)"
        return f"{LINE}: replaying, {share}, 50/s, {(1_000 - read) / 50:.0f} s left"

    live = "live build a is 10 records behind the log"
    said = told(steps(), Clock(), terminal=False).splitlines()
    assert said[:3] == [
        "rollout 1: build b of pipeline flights replays from the beginning",
        f"{LINE}: replaying, 0 of 1,000 records read (0 %); waits for its Spark to start; {live}",
        f"{line(0)}; waits for the rest of the log; {live}",
    ]
    assert [each for each in said if "waits for the rest of the log" in each] == [
        f"{line(read)}; waits for the rest of the log; {live}" for read in (0, 100, 200)
    ]
    assert len([each for each in said if "slice 1 of 4" in each]) == 3
    assert said[-1] == "rollout 1 of pipeline flights: verifying"
    assert said[-2] == "caught up at flights:0=350"


def test_a_quiet_command_follows_and_shows_nothing() -> None:
    def steps() -> Iterator[RolloutProgress]:
        yield replaying(5)
        yield RolloutProgress(rollout(CaughtUp(1, at(350))), at(0), at(350))

    assert show_progress(steps(), at(10), None).caught_up == at(350)


def test_what_a_switch_sends_is_shown_once_with_the_verification_that_passed() -> None:
    said, asked = io.StringIO(), []

    def sends(passed: Rollout) -> list[str]:
        asked.append(passed.phase)
        return ["312 updates to carriers"]

    caught_up = CaughtUp(1, NOWHERE)
    steps = (
        RolloutProgress(rollout(*each), at(0), at(350))
        for each in ((), (caught_up,), (caught_up, verified(1)), (caught_up, verified(1)))
    )
    show_progress(steps, at(10), Console(file=said, width=200), sends=sends, clock=Clock())

    assert asked == ["ready"]
    assert "passed\n  sends: 312 updates to carriers\n" in said.getvalue()


def test_on_a_terminal_the_lines_move_and_leave_nothing_behind() -> None:
    said = told(iter([replaying(1), replaying(2)]), Clock(), terminal=True)

    assert "waits for the rest of the log" in said
    assert "2 of 1,000 records" in said
    # Cursor up and erase: the lines of before are removed at the end.
    assert said.rstrip().endswith("\x1b[2K") or "\x1b[1A" in said.rpartition("waits")[2]


def test_a_broker_that_is_away_stops_nobody_from_watching() -> None:
    said, clock = io.StringIO(), Clock()

    def away() -> Offsets:
        raise Unreachable("no broker")

    def steps() -> Iterator[RolloutProgress]:
        for clock.now in (0.0, 11.0):
            yield replaying(5)

    show_progress(steps(), at(10), Console(file=said, width=200), end_now=away, clock=clock)

    assert "5 of 10 records" in said.getvalue()
    assert "live build" not in said.getvalue()
