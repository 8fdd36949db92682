"""Words the facts that need a person, for notices and for the lists of open matters. Pure.

Notices report these facts once, and pages show the facts as long as they are true. Both take the
kind, the sentence and the hint from here.
"""

from __future__ import annotations

from typing import NamedTuple

from kappa.replay.rollout.rollout import Rollout
from kappa.state.build_status import Stopped
from kappa.state.drift import Drift


class Fact(NamedTuple):
    """A fact that is wrong, or that waits for a person.

    `kind` is a word for programs, such as `rollout_failed`. `text` is a sentence without a full
    stop, and `hint` is the next step. `rollout` is the number of a rollout as commands show it.
    """

    kind: str
    text: str
    hint: str = ""
    pipeline: str = ""
    build: str = ""
    rollout: int | None = None


def waiting_rollout(rollout: Rollout) -> Fact:
    """Returns the fact that a rollout waits for an approval."""
    return _rollout_fact(
        "rollout_waits",
        rollout,
        f"is {rollout.phase_text}",
        f"kappa promote {rollout.pipeline}, or kappa abandon {rollout.pipeline}",
    )


def failed_rollout(rollout: Rollout) -> Fact:
    """Returns the fact that a rollout has failed."""
    return _rollout_fact("rollout_failed", rollout, f"failed: {rollout.reason}", rollout.hint)


def _rollout_fact(kind: str, rollout: Rollout, what: str, hint: str) -> Fact:
    text = f"rollout {rollout.number} of pipeline {rollout.pipeline} {what}"
    return Fact(kind, text, hint, rollout.pipeline, rollout.build, rollout.number)


def stopped_job(pipeline: str, build: str, stopped: Stopped) -> Fact:
    """Returns the fact that the job of a build has stopped for good."""
    text = f"the job of build {build} has stopped: {stopped.message}"
    return Fact("build_stopped", text, stopped.hint, pipeline, build)


def crashing_job(pipeline: str, build: str, trouble: str) -> Fact:
    """Returns the fact that the job of a build does not run well.

    `trouble` describes the job's deaths or silence, as the supervisor's report does.
    """
    hint = f"kappa logs {build}; the job is started again, later each time"
    return Fact("build_crashes", f"build {build}: {trouble}", hint, pipeline, build)


def differing_proof(pipeline: str, build: str) -> Fact:
    """Returns the fact that a proof has computed other rows from the log than the tables have."""
    text = f"the log gives other rows than the tables of pipeline {pipeline}"
    hint = f"kappa history {pipeline}; kappa replay {pipeline} makes a new build"
    return Fact("proof_differs", text, hint, pipeline, build)


def drifted_topic(pipeline: str, build: str, drift: Drift) -> Fact:
    """Returns the fact that the events of a topic no longer match their declaration."""
    hint = f"kappa topics tail {drift.topic}, or kappa rejects list {pipeline}"
    return Fact("drift", drift.text, hint, pipeline, build)


def full_disk(why: str) -> Fact:
    """Returns the fact that jobs do not run because the disk is full. `why` is the sentence."""
    return Fact("disk_full", why, "free space on the disk of the root")
