"""Laws of the supervisor's children: when a job is started again, and what is left at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from house import HOUSE
from hypothesis import given
from hypothesis import strategies as st
from journals import staged
from msgspec import structs
from plans import A_SERVES, birth, declared
from twins import align, folded, make_build

from kappa.base.process import ensure_session_gone, process_id, start_tied
from kappa.base.settings import Settings, load_settings
from kappa.engine.job.legs import LegKind
from kappa.replay.platform.child import BackOff, ChildProcess, open_log
from kappa.replay.platform.processes import (
    JobCourse,
    JobEnd,
    Processes,
    Pulse,
    after_end,
    deaths_of,
    is_starting,
)
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.supervisor_report import Deaths
from kappa.state.build import Base, Birth, put_birth
from kappa.state.build_status import Stopped, last_beat
from kappa.state.journal.events import CaughtUp, Verified, VerifyAsked
from kappa.state.journal.journal import Journal
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# test_spares.py has the processes that wait.
WITHOUT_SPARES = "[engine]\nspares = 0\n"
FAILPOINTS = [
    *("child.before_start", "child.after_start", "child.before_end", "child.after_end"),
    *("child.before_reap", "child.after_reap"),
]

# A supervisor's steps with a job that ends by itself: no broker answers it, or its build is
# missing.
_SUPERVISOR = """
import sys, time
from pathlib import Path
from kappa.base.settings import load_settings
from kappa.state.store import Store
from kappa.replay.platform.processes import Processes
settings = load_settings(Path(sys.argv[1]))
processes = Processes(Store(settings.root_url), settings, say=lambda text: print(text, flush=True))
while True:
    processes.reconcile_jobs(frozenset(["b"]), "127.0.0.1:1")
    if sys.argv[2] == "end":
        processes.end_all()
        sys.exit(0)
    time.sleep(0.02)
"""


@given(st.lists(st.floats(0, 59), min_size=2, max_size=30))
def test_deaths_in_a_row_delay_the_next_start_up_to_half_a_minute(runs: list[float]) -> None:
    back_off, pauses = BackOff(), []
    for ran in runs:
        back_off = back_off.after_death(ran_seconds=ran, now=100.0)
        pauses.append(back_off.not_before - 100.0)

    assert pauses[0] == 0.25
    assert all(later == min(30.0, 2 * sooner) for sooner, later in pairwise(pauses))
    assert back_off.deaths == len(runs)


def test_a_death_after_a_good_minute_counts_as_the_first() -> None:
    worn = BackOff(deaths=9, not_before=7.0)

    first = BackOff(deaths=1, not_before=100.25)
    assert worn.after_death(ran_seconds=60.0, now=100.0) == first
    assert BackOff().after_death(ran_seconds=0.0, now=100.0) == first


@pytest.mark.parametrize(("is_warm", "seconds"), [(False, 8.0), (True, 2.5)])
def test_a_start_has_the_machine_for_as_long_as_it_takes(is_warm: bool, seconds: float) -> None:
    """A start counts as under way for its usual time, so that no spare boots meanwhile."""
    now = [100.0]
    child = ChildProcess("a job", Path("log"), say=print, clock=lambda: now[0], patience_seconds=1)
    child.was_handed_over, child._begun_at = is_warm, 100.0  # no process is started

    assert is_starting(child)
    now[0] += seconds
    assert not is_starting(child)


DIED = JobEnd(1, LegKind.TAIL, asked_to_end=False, stopped=None, ran_seconds=1.0)
BEFORE = JobCourse(BackOff(2, 7.0), "SIGKILL", caught_up=True)
WORN = JobCourse(BackOff(3, 11.0), "exit code 1", caught_up=True)
STOPPED = Stopped("no", "", "then")


@pytest.mark.parametrize(
    ("end", "after"),
    [
        (DIED, WORN),
        (replace(DIED, error="no rule"), replace(WORN, died_of="exit code 1: no rule")),
        (replace(DIED, code=-9), replace(WORN, died_of="SIGKILL")),
        (replace(DIED, asked_to_end=True), JobCourse(BackOff(), "SIGKILL", caught_up=True)),
        (replace(DIED, code=0, leg=LegKind.CATCH_UP), JobCourse(caught_up=True)),
        (replace(DIED, code=0, leg=LegKind.BASE), JobCourse()),
        (replace(DIED, stopped=STOPPED), replace(BEFORE, stopped=STOPPED)),
    ],
)
def test_the_end_of_a_job_decides_when_it_starts_again(end: JobEnd, after: JobCourse) -> None:
    assert after_end(BEFORE, end, now=10.0) == after


def to_verify(folder: Path, settings: str = "") -> tuple[Store, Processes, list[str]]:
    """Returns a store whose rollout 5 has to be verified, its processes, and their messages."""
    (folder / "kappa.toml").write_text(WITHOUT_SPARES + settings)
    loaded = load_settings(folder)
    store = Store(loaded.root_url)
    for build, count in (("a", 1), ("b", 2)):
        make_build(store, build, {folded(): [{"carrier": "UA", "on_time": count}]})
    align(store, "b", "a")
    journal = Journal(store)
    for number, event in enumerate((*A_SERVES, staged("b"), CaughtUp(5, Offsets())), start=1):
        assert journal.append(number, event)
    said: list[str] = []
    processes = Processes(store, loaded, say=said.append)
    processes.reconcile_jobs(frozenset(), "127.0.0.1:1")
    return store, processes, said


def verified_once(processes: Processes, said: list[str]) -> str | None:
    """Runs a verification to its end. Returns the reason if it is not started."""
    before = len(said)
    why_not = processes.ensure_verifying(5)
    while why_not is None and len(said) < before + 2:
        time.sleep(0.02)
        processes.reconcile_jobs(frozenset(), "127.0.0.1:1")
    return why_not


def verified_by_a_process(folder: Path, settings: str) -> tuple[list[str], Verified | None]:
    """Verifies with these settings; returns the supervisor's messages and the verdict."""
    store, processes, said = to_verify(folder, settings)
    assert verified_once(processes, said) is None
    return said, fold_records(Journal(store).after(0)).rollout(5).verified


@pytest.mark.slow
@pytest.mark.fault
def test_verification_is_given_up_at_3rd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification is given up when it has died three times in a row, and not earlier."""
    store, processes, said = to_verify(tmp_path)
    journal = Journal(store)

    def verify(point: str = "") -> str | None:
        monkeypatch.setenv("KAPPA_FAIL", f"{point}:kill" if point else "")
        return verified_once(processes, said)

    assert verify("lease.before_put") is None
    assert verify("journal.before_verified") is None
    assert verify() is None
    state = fold_records(journal.after(0))
    assert state.rollout(5).phase is Phase.READY
    assert journal.append(state.last + 1, VerifyAsked(5, 0))
    assert verify("lease.after_put") is None
    assert verify("lease.before_release") is None
    assert verify("journal.before_verified") is None

    assert verify() == "the verification died 3 times in a row"
    assert sum("SIGKILL" in each for each in said) == 5


@pytest.mark.slow
def test_verification_process_has_projects_settings(tmp_path: Path) -> None:
    said, verdict = verified_by_a_process(tmp_path, '[verify]\nmemory = "200m"\ntemp = "spilled"\n')

    assert said[1].endswith("ended with exit code 0")
    assert verdict.verdict == "passed"
    assert [difference.changed for difference in verdict.differences] == [1]
    assert (tmp_path / ".kappa" / "spilled").is_dir()


@pytest.mark.slow
def test_a_verification_that_takes_too_long_concludes_nothing(tmp_path: Path) -> None:
    said, verdict = verified_by_a_process(tmp_path, "[verify]\ntimeout_seconds = 0.001\n")

    assert said[1].endswith("ended with exit code 0")
    assert verdict.verdict == "inconclusive"
    assert verdict.reason == "the verification did not end within 0.001 s (verify.timeout_seconds)"


def settings_in(folder: Path, more: str = "") -> Settings:
    """Returns the settings of a project that has build b and no spares."""
    (folder / "kappa.toml").write_text(WITHOUT_SPARES + more)
    settings = load_settings(folder)
    put_birth(Store(settings.root_url), birth("b", declared()))
    return settings


def ensure_b(processes: Processes, port: int = 1, **how: bool) -> None:
    """Makes a supervisor ensure that build b has a job, with a broker at `port`."""
    processes.reconcile_jobs(frozenset(["b"]), f"127.0.0.1:{port}", **how)


BRANCH = structs.replace(birth("b", declared()), base=Base("a", "v0", {"orders": {"0": 7}}))


@pytest.mark.parametrize(("born", "leg"), [(birth("b", declared()), "catch-up"), (BRANCH, "base")])
@pytest.mark.parametrize(("serves", "nice"), [(True, 3), (False, 0)])
def test_a_catch_up_and_the_base_of_a_branch_give_way_where_something_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serves: bool, nice: int, born: Birth, leg: str
) -> None:
    (tmp_path / "kappa.toml").write_text(WITHOUT_SPARES)
    settings = load_settings(tmp_path)
    put_birth(Store(settings.root_url), born)
    begun: list[list[str]] = []

    def start(command: list[str], **_: object) -> subprocess.Popen[bytes]:
        begun.append(command[-4:])
        return subprocess.Popen(["true"], start_new_session=True)

    monkeypatch.setattr("kappa.replay.platform.child.start_tied", start)
    processes = Processes(Store(settings.root_url), settings, say=lambda _text: None)

    ensure_b(processes, serves=serves)
    processes.end_all()

    # It takes its niceness itself, once it knows that it will take long.
    assert begun == [["--leg", leg, "--nice", str(nice)]]


def test_deaths_are_told_until_the_job_runs_well_again() -> None:
    course = JobCourse(BackOff(deaths=3), died_of="exit code 1")

    assert deaths_of(course, runs_seconds=59.9) == Deaths(3, "exit code 1")
    assert deaths_of(course, runs_seconds=60.0) is None
    assert deaths_of(JobCourse(), runs_seconds=0.0) is None


def test_a_large_log_is_moved_aside_and_one_older_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "b.log"
    for text in ("first", "second"):
        open_log(log).write_text(text)
        os.truncate(log, 10_000_001)

    open_log(log).write_text("third")

    assert log.read_text() == "third"
    assert [path.name for path in sorted(log.parent.iterdir())] == ["b.log", "b.old.log"]


def test_what_a_session_has_left_behind_is_gone_whatever_groups_it_made() -> None:
    script = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', "
        "'import os, signal; os.setpgid(0, 0); signal.pause()']).pid, flush=True)"
    )
    leader = piped(script)
    left = process_id(int(leader.stdout.readline()))
    leader.stdout.close()
    leader.wait()

    assert ensure_session_gone(leader.pid)

    assert not left.alive()


def test_a_nice_process_gives_way_to_other_sessions_too(tmp_path: Path) -> None:
    group = "'/proc/self/autogroup'"
    told = f"open({group}).read() if os.path.exists({group}) else 'nice 7'"
    script = f"import os; print(os.nice(0)); print({told})"
    with (tmp_path / "said").open("wb") as output:
        start_tied([sys.executable, "-c", script], output=output, nice=7).wait()

    niceness, group = (tmp_path / "said").read_text().split("\n", 1)
    # The highest niceness is 19, and the process of the tests may have it already.
    assert int(niceness) == min(19, os.nice(0) + 7)
    assert group.rstrip().endswith("nice 7")


def piped(script: str) -> subprocess.Popen[bytes]:
    """Starts a script in its own session; its output comes through a pipe."""
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


IN_SHARES = {"child.after_start", "child.before_end", "child.before_reap"}


# A kill around each of the three steps; the other side of each is in `make faults`.
@pytest.mark.fault
@pytest.mark.parametrize(
    "point",
    [
        point if point in IN_SHARES else pytest.param(point, marks=pytest.mark.sweep)
        for point in FAILPOINTS
    ],
)
def test_killed_supervisor_leaves_no_job(point: str, tmp_path: Path) -> None:
    """A supervisor that is killed at any step leaves no job, and the next one starts a job."""
    (tmp_path / "kappa.toml").write_text(WITHOUT_SPARES)

    def supervise(what: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", _SUPERVISOR, str(tmp_path), what]
        given = {**os.environ, "PYTHONPATH": str(HOUSE), **environment}
        return subprocess.run(command, env=given, capture_output=True, text=True, check=False)

    what = "end" if point.endswith("_end") else "reap"
    killed = supervise(what, KAPPA_FAIL=f"{point}:kill")

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert f"failpoint {point}: killed" in killed.stderr
    _see_none_left(tmp_path)
    again = supervise("end")
    assert again.returncode == 0, again.stderr
    assert "the job of build b (catch-up) begins" in again.stdout
    _see_none_left(tmp_path)


@pytest.mark.slow
def test_a_job_that_is_stopped_is_told_ended_and_started_again(tmp_path: Path) -> None:
    settings, said = settings_in(tmp_path, "hung_seconds = 4\n"), []
    store = Store(settings.root_url)
    processes = Processes(store, settings, say=said.append)
    deadline = time.monotonic() + 180

    def ensure_until(true: Callable[[], bool]) -> None:
        while not true():
            assert time.monotonic() < deadline, said
            ensure_b(processes)
            time.sleep(0.05)

    try:
        # It waits for a broker, and beats meanwhile.
        ensure_until(lambda: last_beat(store, "b") is not None)
        (job,) = processes._jobs.values()
        pid = job.child.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        ensure_until(lambda: "no sign of life" in _trouble(processes))
        assert processes.job_runs("b")
        ensure_until(lambda: process_id(pid) is None)
        ensure_until(lambda: sum("begins" in line for line in said) == 2)
    finally:
        processes.end_all()

    told = re.compile(r"shows no sign of life for \d+ s: it is ended")
    assert any(map(told.search, said)), said


def _trouble(processes: Processes) -> str:
    deaths = processes.deaths_of_job("b")
    return "" if deaths is None else deaths.text("b")


def pulse(now: list[float], beat: list[int]) -> Pulse:
    """Returns a pulse whose clock and beat are the single values of these lists."""
    return Pulse(lambda: beat[0], lambda: now[0])


def test_a_start_has_its_time_before_silence_counts() -> None:
    """A start may be silent for longer, because imports take long on a busy machine."""
    now, beat = [0.0], [1]
    seen = pulse(now, beat)
    # One that hangs as it starts is silent in the end.
    steps = ((40.0, 1, 0.0), (60.0, 1, 15.0), (60.0, 2, 0.0), (64.0, 2, 4.0))
    for now[0], beat[0], silent in steps:
        assert seen.silent_seconds() == silent


def test_a_machine_that_slept_has_silenced_nobody() -> None:
    now, beat = [0.0], [1]
    seen = pulse(now, beat)
    # Its clocks stood still for a night, and the beat's time is a night older.
    for now[0], beat[0], silent in ((0.5, 2, 0.0), (4.5, 2, 4.0), (4.5, 3, 0.0)):
        assert seen.silent_seconds() == silent


def _see_none_left(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while found := [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _is_job_of(entry, folder)
    ]:
        assert time.monotonic() < deadline, f"processes {found} are left"
        time.sleep(0.02)


def _is_job_of(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"kappa.engine.job.job" in words and str(folder).encode() in words


def test_job_ignoring_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ignores SIGTERM is killed after the broker has moved."""
    settings = settings_in(tmp_path)
    deaf = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print(flush=True); signal.pause()"
    )
    begun: list[subprocess.Popen[bytes]] = []

    def start(_command: list[str], **_: object) -> subprocess.Popen[bytes]:
        job = piped(deaf)
        job.stdout.readline()
        job.stdout.close()
        begun.append(job)
        return job

    monkeypatch.setattr("kappa.replay.platform.child.start_tied", start)
    time_passed = [0.0]
    processes = Processes(
        Store(settings.root_url), settings, say=lambda _text: None, clock=lambda: time_passed[0]
    )
    ensure_b(processes, port=1)
    ensure_b(processes, port=2)
    try:
        assert begun[0].poll() is None

        time_passed[0] = 31.0
        ensure_b(processes, port=2)

        assert begun[0].poll() == -signal.SIGKILL
    finally:
        for job in begun:
            job.kill()
            job.wait()
