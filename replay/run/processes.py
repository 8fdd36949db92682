"""The supervisor's child processes: a job per wanted build, a verification per rollout that needs one.

It decides when a process is started, ended and started again, and never what is in the journal. Each runs in a session of
its own that dies with the supervisor (kappa/base/process.py), a catch-up and a verification at a low priority, so that the
live job keeps its freshness. Must be used from the main thread alone: the kernel ties a child to the thread that made it.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from kappa.base.failpoint import failpoint
from kappa.base.lock import is_held
from kappa.base.process import ensure_session_gone, start_tied
from kappa.base.settings import Settings
from kappa.engine.job.legs import LegKind, has_tail
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import folder
from kappa.state.stopped import Stopped, read_stopped
from kappa.state.store import Store
from kappa.tables.branch import stands_before_base
from replay.rollout.underway import Deaths

_BACK_OFF_SECONDS = 0.5
_LONGEST_BACK_OFF_SECONDS = 30.0
# A job that ran for so long was well: its next death counts as the first.
_WELL_SECONDS = 60.0
# A slice that is being committed may be large.
_PATIENCE_SECONDS = 30.0
# A third of what the live job may take, where both want all of the machine: it is hardly felt, and a replay that starves (a
# tenth, by 10) is felt for longer.
_NICE = 5
_VERIFICATION_DEATHS = 3
_LOG_BYTES = 10_000_000
_NAP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Course:
    """How it has gone with one build's job so far: `deaths` in a row, the last of `died_of`; `caught_up` once a catch-up has come to its end."""

    deaths: int = 0
    died_of: str = ""
    not_before: float = 0.0
    stopped: Stopped | None = None
    caught_up: bool = False


@dataclass(slots=True)
class _Child:
    """A running process; `killed_at` is when patience with it ends. Of a job also what was there when it began."""

    process: subprocess.Popen[bytes]
    what: str
    begun_at: float
    leg: LegKind | None = None
    stopped_before: Stopped | None = None
    last_alignment: Alignment | None = None
    killed_at: float | None = None


class Processes:
    """All child processes that work on builds."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is told what the operator should read; `clock` gives seconds that only go forward."""
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._bootstrap_servers = ""
        self._jobs: dict[str, _Child] = {}
        # Builds that are to be aligned before their tail goes on.
        self._aligning: set[str] = set()
        self._courses: dict[str, Course] = {}
        self._verifications: dict[int, _Child] = {}
        self._verification_deaths: dict[int, int] = {}

    def ensure_jobs(
        self, wanted: frozenset[str], bootstrap_servers: str, *, serves: bool = True
    ) -> None:
        """Reaps what has ended, starts the jobs that should run and do not, and asks those to end that should not run.

        Where nothing `serves` yet, a catch-up begins at a normal priority: there is nobody to give way to.
        """
        moved = bootstrap_servers != self._bootstrap_servers
        self._bootstrap_servers = bootstrap_servers
        self._reap_verifications()
        for build, job in tuple(self._jobs.items()):
            code = job.process.poll()
            if code is not None:
                self._reap_job(build, job, code)
            elif (
                build not in wanted
                or moved
                or build in self._aligning
                # It was asked to end at an earlier tick, and is killed once patience ends.
                or job.killed_at is not None
            ):
                self._end(job)
        for build in sorted(wanted - set(self._jobs)):
            course = self._courses.get(build, Course())
            if course.stopped is None and self._clock() >= course.not_before:
                self._start_job(build, catch_up_nice=_NICE if serves else 0)

    def ensure_aligned_again(self, build: str) -> None:
        """Ends the build's tail, if it runs, and starts it again by way of an alignment, unless one is on its way already."""
        job = self._jobs.get(build)
        last = Alignments(self._store, build).last()
        if job is None or job.leg is not LegKind.ALIGNMENT or job.last_alignment != last:
            self._aligning.add(build)

    def job_runs(self, build: str) -> bool:
        """True while a process of the build's job is there."""
        return build in self._jobs or is_held(self._store.path(f"{folder(build)}/lock"))

    def job_stopped(self, build: str) -> Stopped | None:
        """Why the build's job is not started again."""
        return self._courses.get(build, Course()).stopped

    def job_deaths(self, build: str) -> int:
        """How often in a row the build's job has died."""
        return self._courses.get(build, Course()).deaths

    def deaths(self, build: str) -> Deaths | None:
        """How often in a row the build's job has died and of what, for people; None where it has not."""
        job = self._jobs.get(build)
        return deaths_of(
            self._courses.get(build, Course()),
            runs_seconds=0.0 if job is None else self._clock() - job.begun_at,
        )

    def ensure_verifying(self, rollout: int) -> str | None:
        """Starts the verification of a rollout unless it runs; says why where it has died too often to be started again."""
        # One that has just ended is reaped before the journal is read again, where its verdict is.
        if rollout in self._verifications:
            return None
        if self._verification_deaths.get(rollout, 0) >= _VERIFICATION_DEATHS:
            return f"the verification died {_VERIFICATION_DEATHS} times"
        settings = self._settings
        where = (
            "--project",
            str(settings.project),
            "--root",
            settings.root_url,
            "--bootstrap",
            self._bootstrap_servers,
        )
        command = _python("replay.verify.verify", *where, "--rollout", str(rollout))
        self._verifications[rollout] = self._start(
            command, "verification", f"the verification of rollout {rollout}", nice=_NICE
        )
        return None

    def end_all(self) -> None:
        """Asks all of them to end, waits, and kills what does not go."""
        children = [*self._jobs.values(), *self._verifications.values()]
        for child in children:
            self._end(child)
        while any(child.process.poll() is None for child in children):
            for child in children:
                self._end(child)
            time.sleep(_NAP_SECONDS)
        for child in children:
            ensure_session_gone(child.process.pid)
        self._jobs.clear()
        self._verifications.clear()

    def _start_job(self, build: str, *, catch_up_nice: int) -> None:
        # The tail is written down by the tail's own process; between the end of the catch-up and that, only we know.
        tails = self._courses.get(build, Course()).caught_up or has_tail(self._store, build)
        leg = (
            LegKind.BASE
            if stands_before_base(self._store, build)
            else LegKind.CATCH_UP
            if not tails
            else LegKind.ALIGNMENT
            if build in self._aligning
            else LegKind.TAIL
        )
        settings = self._settings
        job = _python(
            *(
                "kappa.engine.job.job",
                "--project",
                str(settings.project),
                "--root",
                settings.root_url,
            ),
            *("--bootstrap", self._bootstrap_servers, "--build", build, "--leg", leg),
        )
        stopped_before, last_alignment = (
            read_stopped(self._store, build),
            Alignments(self._store, build).last(),
        )
        self._jobs[build] = self._start(
            job,
            build,
            f"the job of build {build} ({leg})",
            nice=catch_up_nice if leg in {LegKind.BASE, LegKind.CATCH_UP} else 0,
        )
        (
            self._jobs[build].leg,
            self._jobs[build].stopped_before,
            self._jobs[build].last_alignment,
        ) = leg, stopped_before, last_alignment
        self._aligning.discard(build)

    def _reap_verifications(self) -> None:
        for rollout, child in tuple(self._verifications.items()):
            code = child.process.poll()
            if code is not None:
                ensure_session_gone(child.process.pid)
                del self._verifications[rollout]
                self._say(f"{child.what} {_ended(code)}")
                self._verification_deaths[rollout] = self._verification_deaths.get(rollout, 0) + (
                    code != 0
                )

    def _reap_job(self, build: str, job: _Child, code: int) -> None:
        failpoint("processes.before_reap")
        ensure_session_gone(job.process.pid)
        failpoint("processes.after_reap")
        del self._jobs[build]
        stopped = read_stopped(self._store, build)
        news = stopped if stopped != job.stopped_before else None
        before, now = self._courses.get(build, Course()), self._clock()
        match (job.killed_at is not None, code, job.leg):
            case (True, _, _):
                course = replace(before, deaths=0, not_before=0.0)
            case (False, 0, LegKind.BASE):
                course = Course()
            case (False, 0, LegKind.CATCH_UP):
                course = Course(caught_up=True)
            case _ if news is not None:
                course = replace(before, stopped=news)
            case _:
                course = replace(
                    after_death(before, ran_seconds=now - job.begun_at, now=now),
                    died_of=signal.Signals(-code).name if code < 0 else f"exit code {code}",
                )
        self._courses[build] = course
        again = (
            f"; it is started again in {course.not_before - now:.1f} s"
            if course.not_before > now
            else ""
        )
        self._say(
            f"{job.what} {f'stopped: {course.stopped.message}' if course.stopped else _ended(code) + again}"
        )

    def _start(self, command: list[str], log: str, what: str, *, nice: int) -> _Child:
        failpoint("processes.before_start")
        path = self._store.path(f"logs/{log}.log")
        with open_log(path).open("ab") as output:
            process = start_tied(command, output=output, nice=nice)
        failpoint("processes.after_start")
        self._say(f"{what} begins, process {process.pid}")
        return _Child(process, what, self._clock())

    def _end(self, child: _Child) -> None:
        """Asks a process to end; kills it where it was asked long ago."""
        if child.process.poll() is not None:
            return
        if child.killed_at is None:
            child.killed_at = self._clock() + _PATIENCE_SECONDS
            failpoint("processes.before_end")
            child.process.terminate()
            failpoint("processes.after_end")
        elif self._clock() > child.killed_at:
            self._say(f"{child.what} does not end, and is killed")
            ensure_session_gone(child.process.pid)
            child.process.wait()


def after_death(course: Course, *, ran_seconds: float, now: float) -> Course:
    """The course of a job after an end that nobody asked for: it is started again, later each time. Pure."""
    deaths = 1 if ran_seconds >= _WELL_SECONDS else course.deaths + 1
    return replace(
        course,
        deaths=deaths,
        not_before=now + min(_LONGEST_BACK_OFF_SECONDS, _BACK_OFF_SECONDS * 2 ** (deaths - 1)),
    )


def deaths_of(course: Course, *, runs_seconds: float) -> Deaths | None:
    """What there is to tell of a job's deaths; nothing of one that has run well since. Pure."""
    return (
        Deaths(course.deaths, course.died_of)
        if course.deaths and runs_seconds < _WELL_SECONDS
        else None
    )


def open_log(path: Path) -> Path:
    """Makes room for a log: its folder, and the file moved aside where it has become large (one older one is kept)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".old.log"))
    return path


def _python(module: str, *arguments: str) -> list[str]:
    # -P: what lies in the user's folder must not be imported instead of a library of the same name.
    return [sys.executable, "-P", "-m", module, *arguments]


def _ended(code: int) -> str:
    return (
        f"was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"ended with exit code {code}"
    )
