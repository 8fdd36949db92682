"""Decides what is wrong or waits for a person now: the open matters of a project. Pure.

The navigation counts them, the overview begins with them, and the page of alerts lists them. So the
three always agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from kappa.replay.page.states import role_word
from kappa.replay.rollout.history import proof_records
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State
from kappa.replay.status.alerts import ShownNotice
from kappa.replay.status.facts import (
    crashing_job,
    differing_proof,
    drifted_topic,
    failed_rollout,
    full_disk,
    stopped_job,
    waiting_rollout,
)
from kappa.replay.status.status import BuildStatus, FailingOutlet, Status, Unread
from kappa.state.drift import Drift
from kappa.state.kept_frontiers import parse_moment

# A failed rollout is news for so long.
_NEWS = timedelta(days=1)
# Matters of these kinds can wait; all others stop rows, or say that rows are wrong.
_WARNINGS = frozenset({"not_up", "rollout_waits", "topic_unread", "drift", "paused"})
_ROLES = ("live", "candidate", "idle")
# Matters of these kinds are of builds whose job does not run.
JOB_MATTERS = ("build_stopped", "build_crashes")


@dataclass(frozen=True, slots=True)
class OpenMatter:
    """A fact that is wrong now, or that waits for a person.

    `kind` is the kind of the notice that tells the fact, such as `rollout_failed`, or another word
    if no notice does. `text` is a sentence without a full stop, and `hint` is the next step. `at`
    is the time at which the fact began, or "" if it is unknown. `of` is the object with the fact.
    """

    kind: str
    text: str
    hint: str = ""
    pipeline: str = ""
    build: str = ""
    rollout: int | None = None
    at: str = ""
    of: BuildStatus | FailingOutlet | Rollout | Unread | Drift | None = None

    @property
    def is_critical(self) -> bool:
        """Returns True if rows stop or are wrong, and False if the fact can wait."""
        return self.kind not in _WARNINGS

    @property
    def alert(self) -> str:
        """Returns the name of the alert that cannot send, or "" for any other fact."""
        if isinstance(self.of, FailingOutlet) and self.of.kind == "alert":
            return self.of.name
        return ""

    def is_told_by(self, notice: ShownNotice) -> bool:
        """Returns True if a notice is about this fact."""
        if notice.kind != self.kind:
            return False
        match self.kind:
            case "rollout_failed" | "rollout_waits":
                return notice.rollout == self.rollout
            case "build_stopped" | "build_crashes" | "proof_differs":
                return notice.build == self.build
            case "drift":
                return (notice.pipeline, notice.text) == (self.pipeline, self.text)
            case _:
                return True


def open_matters(
    status: Status, state: State, now: datetime, *, supervised: bool
) -> tuple[OpenMatter, ...]:
    """Lists all open matters: critical ones first, and otherwise in the order of the overview.

    `supervised` is True if a supervisor is running.
    """
    found = [
        *_platform_matters(status, supervised=supervised),
        *_job_matters(status),
        *(_outlet_matter(each) for each in status.failing),
        *_table_matters(status),
        *_proof_matters(state),
        *_rollout_matters(state, now),
        *(
            OpenMatter("topic_unread", each.text, each.mended_by, each.pipeline, of=each)
            for each in status.unread
        ),
        *_live_matters(status),
    ]
    return tuple(sorted(found, key=lambda each: not each.is_critical))


def _platform_matters(status: Status, *, supervised: bool) -> Iterator[OpenMatter]:
    # Without a build, nothing stands still; the overview tells a new project what to type.
    if not supervised and status.builds:
        yield OpenMatter("not_up", "kappa is not up, so the tables stay as they are", "kappa up -d")
    if status.disk:
        yield OpenMatter(*full_disk(status.disk))
    if status.broker_error:
        yield OpenMatter("broker", status.broker_error)


def _job_matters(status: Status) -> Iterator[OpenMatter]:
    """Yields the builds whose job has stopped or dies again and again, serving builds first."""
    for build in sorted(status.builds, key=lambda each: _ROLES.index(each.role)):
        names = (build.pipeline, build.build)
        if build.stopped is not None:
            fact = stopped_job(*names, build.stopped)
            yield OpenMatter(*fact, at=build.stopped.at, of=build)
        elif build.trouble:
            yield OpenMatter(*crashing_job(*names, build.trouble), of=build)


def _outlet_matter(outlet: FailingOutlet) -> OpenMatter:
    return OpenMatter("outlet_fails", outlet.text, outlet.shown_by, at=outlet.since, of=outlet)


def _table_matters(status: Status) -> Iterator[OpenMatter]:
    for build in status.builds:
        names = (build.pipeline, build.build)
        if build.beyond:
            text = f"build {build.build} ({role_word(build.role)}) has {build.beyond}"
            hint = f"kappa rejects list --build {build.build}"
            yield OpenMatter("rejects_beyond", text, hint, *names, of=build)
        if build.role == "live":
            for why in build.broken:
                yield OpenMatter("table_broken", why, "fix it, and deploy again", *names, of=build)


def _proof_matters(state: State) -> Iterator[OpenMatter]:
    """Yields a matter for each serving build whose last proof has found a difference.

    The proof has computed other rows from the log than the build's tables have.
    """
    last = {each.found.build: each for each in proof_records(state)}
    for pipeline, build in sorted(state.serving.items()):
        if build in last and not last[build].found.equal:
            yield OpenMatter(*differing_proof(pipeline, build), at=last[build].record.at)


def _rollout_matters(state: State, now: datetime) -> Iterator[OpenMatter]:
    """Yields rollouts that wait for approval or have failed, the newest first.

    A failed rollout is open for a day, unless a later rollout of its pipeline begins.
    """
    last = {each.pipeline: each for each in state.rollouts}
    for each in sorted(last.values(), key=lambda rollout: -rollout.id):
        if each.waits or _is_new_failure(each, now):
            yield _rollout_matter(each)


def superseded_failures(state: State, now: datetime) -> tuple[tuple[Rollout, Rollout], ...]:
    """Lists superseded failed rollouts that began within the last day, newest first. Pure.

    Each element is the failed rollout and the pipeline's newest rollout.
    """
    pairs = (
        (each, state.newer_rollout(each))
        for each in reversed(state.rollouts)
        if _is_new_failure(each, now)
    )
    return tuple((each, newer) for each, newer in pairs if newer is not None)


def _is_new_failure(rollout: Rollout, now: datetime) -> bool:
    return rollout.phase is Phase.FAILED and now - parse_moment(rollout.at) < _NEWS


def _rollout_matter(rollout: Rollout) -> OpenMatter:
    if rollout.waits:
        return OpenMatter(*waiting_rollout(rollout), of=rollout)
    return OpenMatter(*failed_rollout(rollout), at=rollout.ended_at, of=rollout)


def _live_matters(status: Status) -> Iterator[OpenMatter]:
    """Yields the drifts and the pauses of the serving builds."""
    for build in status.builds:
        if build.role != "live":
            continue
        names = (build.pipeline, build.build)
        for drift in build.drifts:
            yield OpenMatter(*drifted_topic(*names, drift), at=drift.at, of=drift)
        if build.pause is not None:
            text = f"pipeline {build.pipeline} is {build.pause.text}"
            hint = f"kappa resume {build.pipeline}"
            yield OpenMatter("paused", text, hint, *names, at=build.pause.at, of=build)
