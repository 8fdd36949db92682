"""The child processes that work on builds: jobs, and verifications of rollouts.

There is at most one job per build, and one verification per rollout. This module starts, ends and
restarts these processes. The controller decides from the journal which processes are needed
(controller.py). A catch-up and a verification run at a low priority, so that the live job stays
fresh.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from kappa.base.process import LOW_PRIORITY
from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.engine.job.legs import LegKind, has_tail
from kappa.replay.platform.child import (
    WELL_SECONDS,
    BackOff,
    ChildProcess,
    HandOver,
    end_all,
    ended_message,
)
from kappa.replay.platform.messages import failure, warning
from kappa.replay.platform.spares import Spares
from kappa.replay.rollout.supervisor_report import Deaths
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import folder_of_build
from kappa.state.build_status import Stopped, last_beat, read_stopped
from kappa.state.lock import is_held
from kappa.state.store import Store
from kappa.tables.branch import stands_before_base

# A slice that is being committed may be large.
_PATIENCE_SECONDS = 30.0
# So long a job's start takes most of the machine, and so long that of a job that a spare becomes.
_START_SECONDS, _WARM_START_SECONDS = 8.0, 2.5
_VERIFICATION_DEATHS = 3
# A job beats each second: people are told of a job that has missed some beats.
SILENT_SECONDS = 3.0
# A job imports its modules before the first beat, and may wait half a minute for the end of
# processes that a dead job has left (kappa/state/lock.py). On a busy machine, a shorter time would
# end every job before its first beat.
_FIRST_BEAT_SECONDS = 45.0


@dataclass(frozen=True, slots=True)
class JobCourse:
    """The history of a build's job processes.

    `died_of` is the cause of the last death. `stopped` is the reason why the job has stopped for
    good. `caught_up` is True once a catch-up has succeeded.
    """

    back_off: BackOff = field(default_factory=BackOff)
    died_of: str = ""
    stopped: Stopped | None = None
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The exit of a job's process.

    `stopped` is the reason that the job itself has written to a file, or None. `error` is the
    message of the last error in the log.
    """

    code: int
    leg: LegKind
    asked_to_end: bool
    stopped: Stopped | None
    ran_seconds: float
    error: str = ""


def after_end(course: JobCourse, end: JobEnd, *, now: float) -> JobCourse:
    """Returns the history of a job after one of its processes has exited. Pure."""
    match end:
        case JobEnd(asked_to_end=True):
            return replace(course, back_off=BackOff())
        case JobEnd(code=0, leg=LegKind.BASE):
            return JobCourse()
        case JobEnd(code=0, leg=LegKind.CATCH_UP):
            return JobCourse(caught_up=True)
        case JobEnd(stopped=Stopped() as stopped):
            return replace(course, stopped=stopped)
        case JobEnd(code=code):
            return replace(
                course,
                back_off=course.back_off.after_death(ran_seconds=end.ran_seconds, now=now),
                died_of=signal.Signals(-code).name
                if code < 0
                else f"exit code {code}{f': {end.error}' if end.error else ''}",
            )


def deaths_of(
    course: JobCourse, *, runs_seconds: float, silent_seconds: float = 0.0
) -> Deaths | None:
    """Returns the deaths of a job for display, or None if the job runs well. Pure.

    The result contains the number of deaths in a row. If the job has been silent for so long that
    it may be killed, the result also contains the seconds of silence.
    """
    died = course.back_off.deaths if runs_seconds < WELL_SECONDS else 0
    silent = int(silent_seconds) if silent_seconds >= SILENT_SECONDS else 0
    return Deaths(died, course.died_of, silent) if died or silent else None


class Pulse:
    """Measures for how long a child has been silent, by repeated observations.

    The child regularly changes a number, its beat; a child whose beat does not change is silent.
    The start of the child does not count as silence. Only changes of the beat are observed, so the
    clocks of the two processes are not compared. If the machine sleeps for a night, no silence is
    counted.
    """

    def __init__(self, look: Callable[[], int | None], clock: Callable[[], float]) -> None:
        """Begins the measurement with the child's present beat.

        `look` returns the present beat, or None if there is none yet. `clock` returns seconds that
        never move back, and that do not advance while the machine sleeps.
        """
        self._look = look
        self._clock = clock
        self._seen = look()
        self._changed_at = clock() + _FIRST_BEAT_SECONDS

    def silent_seconds(self) -> float:
        """Observes the child's beat, and returns the seconds since its last observed change."""
        seen = self._look()
        if seen != self._seen:
            self._seen, self._changed_at = seen, self._clock()
        return max(0.0, self._clock() - self._changed_at)


def is_starting(child: ChildProcess) -> bool:
    """Returns True if a job's process is still starting.

    The supervisor starts no spare while a job's process starts.
    """
    seconds = _WARM_START_SECONDS if child.was_handed_over else _START_SECONDS
    return child.ran_seconds < seconds


@dataclass(frozen=True, slots=True)
class _Job:
    """A process of a build's job, with facts from the time at which the process was started."""

    child: ChildProcess
    pulse: Pulse
    leg: LegKind
    stopped_before: Stopped | None
    last_alignment: Alignment | None


class Processes:
    """Starts, ends and observes all child processes that work on builds."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates an object without child processes.

        `say` prints a message for the operator. `clock` returns seconds that never move back.
        """
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._spares = Spares(store, settings, say=say, clock=clock)
        self._bootstrap_servers = ""
        self._jobs: dict[str, _Job] = {}
        # Builds that are to be aligned before their tail goes on.
        self._aligning: set[str] = set()
        self._courses: dict[str, JobCourse] = {}
        self._verifications: dict[int, ChildProcess] = {}
        self._verification_deaths: dict[int, int] = {}

    def reconcile_jobs(
        self, wanted: frozenset[str], bootstrap_servers: str, *, serves: bool = True
    ) -> None:
        """Reaps children that have exited, starts missing jobs, and ends jobs that are not wanted.

        `wanted` are the builds that need a job. `serves` is True if any build serves. If no build
        serves, a catch-up runs at normal priority, because it delays no live job.
        """
        moved = bootstrap_servers != self._bootstrap_servers
        self._bootstrap_servers = bootstrap_servers
        self._reap_verifications()
        for build, job in tuple(self._jobs.items()):
            code = job.child.reap_exit_code()
            if code is not None:
                self._reap_job(build, job, code)
            elif (silent := job.pulse.silent_seconds()) > self._settings.engine.hung_seconds:
                told = f"{job.child.what} shows no sign of life for {silent:.0f} s: it is ended"
                self._say(warning(told))
                job.child.kill()
            elif (
                build not in wanted
                or moved
                or build in self._aligning
                # The job was asked to end at an earlier tick, and is killed once the patience ends.
                or job.child.asked_to_end
            ):
                job.child.ask_to_end()
        for build in sorted(wanted - set(self._jobs)):
            course = self._course_of(build)
            if course.stopped is None and self._clock() >= course.back_off.not_before:
                self._start_job(build, catch_up_nice=LOW_PRIORITY if serves else 0)
        if not any(is_starting(job.child) for job in self._jobs.values()):
            self._spares.ensure_ready()

    def ensure_aligned_again(self, build: str) -> None:
        """Ends the build's tail and starts an alignment, unless a new alignment runs already."""
        job = self._jobs.get(build)
        last = Alignments(self._store, build).last()
        if job is None or job.leg is not LegKind.ALIGNMENT or job.last_alignment != last:
            self._aligning.add(build)

    @property
    def is_calm(self) -> bool:
        """Returns True if no process waits for the start of a JVM.

        This is the case if a spare is warm, no job is starting, and no build is catching up, being
        aligned or being verified.
        """
        return (
            self._spares.is_any_warm
            and not self._verifications
            and all(
                job.leg is LegKind.TAIL and not is_starting(job.child)
                for job in self._jobs.values()
            )
        )

    @property
    def jobs(self) -> frozenset[str]:
        """Returns the builds whose jobs run."""
        return frozenset(self._jobs)

    @property
    def aligning(self) -> frozenset[str]:
        """Returns the builds that must be aligned before their tail continues."""
        return frozenset(self._aligning)

    def job_runs(self, build: str) -> bool:
        """Returns True while a process of the build's job exists.

        The process may be a child of an earlier supervisor.
        """
        return build in self._jobs or is_held(
            self._store.local.path(f"{folder_of_build(build)}/lock")
        )

    def job_stopped(self, build: str) -> Stopped | None:
        """Returns the reason why the build's job is not started again, or None if it may start."""
        return self._course_of(build).stopped

    def job_deaths(self, build: str) -> int:
        """Returns how many times in a row the build's job has died."""
        return self._course_of(build).back_off.deaths

    def deaths_of_job(self, build: str) -> Deaths | None:
        """Returns the number of deaths in a row of the build's job, and its silence, for display.

        Returns None if the job runs well.
        """
        job = self._jobs.get(build)
        return deaths_of(
            self._course_of(build),
            runs_seconds=0.0 if job is None else job.child.ran_seconds,
            silent_seconds=0.0 if job is None else job.pulse.silent_seconds(),
        )

    def ensure_verifying(self, rollout: int) -> str | None:
        """Starts the verification of a rollout, unless it runs already.

        Returns None in both cases. If the verification has died too often to be started again,
        returns the reason instead.
        """
        # A verification that has just ended is reaped before the journal, with its verdict, is
        # read.
        if rollout in self._verifications:
            return None
        if self._verification_deaths.get(rollout, 0) >= _VERIFICATION_DEATHS:
            return f"the verification died {_VERIFICATION_DEATHS} times in a row"
        child = self._make_child(
            "verification",
            f"the verification of the rollout of record {rollout}",
            nice=LOW_PRIORITY,
        )
        self._start_child(child, "kappa.replay.rollout.verify.verify", "--rollout", str(rollout))
        self._verifications[rollout] = child
        return None

    def end_all(self) -> None:
        """Asks all children to end, waits, and kills those that do not end in time."""
        end_all([*(job.child for job in self._jobs.values()), *self._verifications.values()])
        self._jobs.clear()
        self._verifications.clear()
        self._spares.end()

    def _course_of(self, build: str) -> JobCourse:
        return self._courses.get(build, JobCourse())

    def _next_leg(self, build: str) -> LegKind:
        if stands_before_base(self._store, build):
            return LegKind.BASE
        # The process of the tail records the tail; until then only this process knows that the
        # catch-up has ended.
        if not (self._course_of(build).caught_up or has_tail(self._store, build)):
            return LegKind.CATCH_UP
        return LegKind.ALIGNMENT if build in self._aligning else LegKind.TAIL

    def _start_job(self, build: str, *, catch_up_nice: int) -> None:
        leg = self._next_leg(build)
        job = _Job(
            self._make_child(
                build, f"the job of build {build} ({leg})", hand_over=self._spares.hand_over
            ),
            Pulse(partial(last_beat, self._store, build), self._clock),
            leg,
            read_stopped(self._store, build),
            Alignments(self._store, build).last(),
        )
        self._start_child(
            job.child,
            "kappa.engine.job.job",
            *("--build", build, "--leg", leg, "--nice", str(catch_up_nice)),
        )
        self._jobs[build] = job
        self._aligning.discard(build)

    def _make_child(
        self, log: str, what: str, *, nice: int = 0, hand_over: HandOver | None = None
    ) -> ChildProcess:
        return ChildProcess(
            what,
            self._store.local.path(f"logs/{log}.log"),
            say=self._say,
            clock=self._clock,
            patience_seconds=_PATIENCE_SECONDS,
            nice=nice,
            hand_over=hand_over,
        )

    def _start_child(self, child: ChildProcess, module: str, *arguments: str) -> None:
        child.start(
            module,
            *project_options(self._settings),
            *("--bootstrap", self._bootstrap_servers, *arguments),
        )
        self._say(f"{child.what} begins, process {child.pid}")

    def _reap_verifications(self) -> None:
        for rollout, child in tuple(self._verifications.items()):
            code = child.reap_exit_code()
            if code is not None:
                del self._verifications[rollout]
                self._say(ended_message(child.what, code))
                deaths = self._verification_deaths.pop(rollout, 0)
                if code != 0:
                    self._verification_deaths[rollout] = deaths + 1

    def _reap_job(self, build: str, job: _Job, code: int) -> None:
        del self._jobs[build]
        stopped, now = read_stopped(self._store, build), self._clock()
        course = after_end(
            self._course_of(build),
            JobEnd(
                code,
                job.leg,
                job.child.asked_to_end,
                stopped if stopped != job.stopped_before else None,
                job.child.ran_seconds,
                job.child.last_error(),
            ),
            now=now,
        )
        self._courses[build] = course
        if course.stopped is not None:
            self._say(failure(f"{job.child.what} stopped: {course.stopped.message}"))
            return
        pause = course.back_off.not_before - now
        again = f"; it is started again in {pause:.1f} s" if pause > 0 else ""
        self._say(ended_message(job.child.what, code, again))
