"""Laws of the supervisor's children: when a job is started again, and what is left of a process that is ended."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kappa.journal import now
from kappa.process import ensure_session_gone, process_id
from kappa.stopped import Stopped
from replay.processes import Course, after_death, deaths_of, open_log
from replay.underway import Deaths


@given(st.lists(st.floats(0, 59), min_size=2, max_size=30))
def test_a_job_that_dies_in_a_row_is_started_again_later_each_time_up_to_half_a_minute(runs: list[float]) -> None:
    course, pauses = Course(), []
    for ran in runs:
        course = after_death(course, ran_seconds=ran, now=100.0)
        pauses.append(course.not_before - 100.0)

    assert pauses[0] == 0.5
    assert all(later == min(30.0, 2 * sooner) for sooner, later in pairwise(pauses))
    assert course.deaths == len(runs)


def test_a_job_that_ran_well_for_a_minute_is_started_again_at_once() -> None:
    worn = Course(deaths=9, not_before=7.0)

    assert after_death(worn, ran_seconds=60.0, now=100.0) == Course(deaths=1, not_before=100.5)


def test_a_death_forgets_neither_the_leg_nor_why_it_stopped() -> None:
    course = Course(caught_up=True, stopped=Stopped("no", "", now()))

    after = after_death(course, ran_seconds=1.0, now=0.0)

    assert (after.caught_up, after.stopped) == (course.caught_up, course.stopped)


def test_deaths_are_told_until_the_job_runs_well_again() -> None:
    course = Course(deaths=3, died_of="exit code 1")

    assert deaths_of(course, runs_seconds=59.9) == Deaths(3, "exit code 1")
    assert deaths_of(course, runs_seconds=60.0) is None
    assert deaths_of(Course(), runs_seconds=0.0) is None


def test_a_large_log_is_moved_aside_and_one_older_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "b.log"
    for text in ("first", "second"):
        open_log(log).write_text(text)
        os.truncate(log, 10_000_001)

    open_log(log).write_text("third")

    assert log.read_text() == "third"
    assert [path.name for path in sorted(log.parent.iterdir())] == ["b.log", "b.old.log"]


def test_what_a_session_has_left_behind_is_gone_whatever_groups_it_made() -> None:
    script = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import os, signal; os.setpgid(0, 0); signal.pause()']).pid, flush=True)"
    leader = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert leader.stdout is not None
    left = process_id(int(leader.stdout.readline()))
    leader.stdout.close()
    leader.wait()
    assert left is not None

    assert ensure_session_gone(leader.pid)

    assert not left.alive()
