"""The course of a build's job: its deaths in a row, and why it is not started again. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace

from kappa.engine.job.legs import LegKind
from kappa.replay.platform.back_off import WELL_SECONDS, BackOff
from kappa.replay.rollout.supervisor_report import Deaths
from kappa.state.build_status import Stopped

# A job beats each second: people are told of one that has missed some.
SILENT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Course:
    """The course of one build's job processes so far.

    `died_of` is the cause of its last death; `caught_up` is true once a catch-up has ended well.
    """

    back_off: BackOff = field(default_factory=BackOff)
    died_of: str = ""
    stopped: Stopped | None = None
    caught_up: bool = False


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of one process of a job.

    `stopped` is what it wrote down itself, if it did; `error` is the last sentence in its log.
    """

    code: int
    leg: LegKind
    asked_to_end: bool
    stopped: Stopped | None
    ran_seconds: float
    error: str = ""


def after_end(course: Course, end: JobEnd, *, now: float) -> Course:
    """Returns the course of a job after one of its processes has ended."""
    match end:
        case JobEnd(asked_to_end=True):
            return replace(course, back_off=BackOff())
        case JobEnd(code=0, leg=LegKind.BASE):
            return Course()
        case JobEnd(code=0, leg=LegKind.CATCH_UP):
            return Course(caught_up=True)
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


def deaths_of(course: Course, *, runs_seconds: float, silent_seconds: float = 0.0) -> Deaths | None:
    """Returns what people should know of a job's deaths, and of the one that may come.

    Returns None if it runs well.
    """
    died = course.back_off.deaths if runs_seconds < WELL_SECONDS else 0
    silent = int(silent_seconds) if silent_seconds >= SILENT_SECONDS else 0
    return Deaths(died, course.died_of, silent) if died or silent else None


def ended_text(code: int) -> str:
    """Returns how a process has ended, in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
