"""The state of all builds and rollouts. Pure.

fold.py computes the state from the journal's records, one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.projections import Pauses, Retirements


@dataclass(frozen=True, slots=True)
class State:
    """All builds and rollouts of the journal up to record `last`.

    `serving` and `idle` map a pipeline to a build. The idle build served before and continues to
    consume, so that an undo is a switch to the idle build. `served` contains the records that
    created generations. `versions` and `pipelines` map every build that was ever staged to its
    version and its pipeline. `overlays` maps every overlay to the build whose tables the overlay
    serves. `proofs` are the Proved records, passed or not. The keys of `paused` and `retirements`
    are pipelines. `service` contains the records of pauses, resumptions, retirements and redrives.
    """

    last: int = 0
    generation: int = 0
    serving: Mapping[str, str] = field(default_factory=dict)
    idle: Mapping[str, str] = field(default_factory=dict)
    rollouts: tuple[Rollout, ...] = ()
    served: tuple[JournalRecord, ...] = ()
    retired: frozenset[str] = frozenset()
    versions: Mapping[str, str] = field(default_factory=dict)
    pipelines: Mapping[str, str] = field(default_factory=dict)
    overlays: Mapping[str, str] = field(default_factory=dict)
    proofs: tuple[JournalRecord, ...] = ()
    paused: Pauses = field(default_factory=dict)
    retirements: Retirements = field(default_factory=dict)
    service: tuple[JournalRecord, ...] = ()

    def active(self, pipeline: str) -> Rollout | None:
        """Returns the active rollout of the pipeline, or None.

        A pipeline has at most one active rollout.
        """
        return next(
            (rollout for rollout in self.active_rollouts if rollout.pipeline == pipeline), None
        )

    @property
    def active_rollouts(self) -> tuple[Rollout, ...]:
        """Returns all rollouts that have not ended, oldest first."""
        return tuple(rollout for rollout in self.rollouts if rollout.active)

    def rollout(self, id_: int) -> Rollout:
        """Returns the rollout with the id `id_`. Raises KeyError if there is none."""
        for rollout in self.rollouts:
            if rollout.id == id_:
                return rollout
        raise KeyError(id_)

    def folded_by(self, build: str) -> str:
        """Returns the build that folds the tables of `build`.

        If `build` is an overlay, this is the build whose tables the overlay serves. Otherwise, it
        is `build` itself.
        """
        return self.overlays.get(build, build)

    def serves_the_same(self, build: str, other: str | None) -> bool:
        """Returns True if both builds serve the same tables. `other` may be None."""
        return other is not None and self.folded_by(build) == self.folded_by(other)

    @property
    def roles(self) -> dict[str, str]:
        """Returns the role of each build that is needed, by build: "live", "idle" or "candidate".

        If an idle build is the candidate of a rollout, its role is "idle".
        """
        return {
            **dict.fromkeys((each.build for each in self.active_rollouts), "candidate"),
            **dict.fromkeys(self.idle.values(), "idle"),
            **dict.fromkeys(self.serving.values(), "live"),
        }

    def wanted_builds(self) -> frozenset[str]:
        """Returns the builds that are needed: serving builds, idle builds and active candidates."""
        return frozenset(self.roles)

    def wanted_jobs(self) -> frozenset[str]:
        """Returns the builds whose jobs should run.

        These are the builds that fold the tables of live, idle and candidate builds. If a pipeline
        is paused, only its builds with an active rollout count.
        """
        at_rest = {
            build
            for roles in (self.serving, self.idle)
            for pipeline, build in roles.items()
            if pipeline in self.paused
        } - {rollout.build for rollout in self.active_rollouts}
        return frozenset(map(self.folded_by, self.wanted_builds() - at_rest))

    def kept_jobs(self) -> frozenset[str]:
        """Returns the builds whose jobs run only to keep an undo possible."""
        needed = frozenset(self.serving.values()) | {each.build for each in self.active_rollouts}
        return self.wanted_jobs() - frozenset(map(self.folded_by, needed))

    def overlaid_builds(self) -> frozenset[str]:
        """Returns the builds whose tables an overlay serves that is live, idle or a candidate."""
        return frozenset(
            self.overlays[build] for build in self.wanted_builds() & self.overlays.keys()
        )

    def unneeded_builds(self) -> frozenset[str]:
        """Returns the builds that are no longer needed but are not retired yet."""
        return (
            frozenset(self.versions) - self.wanted_builds() - self.overlaid_builds() - self.retired
        )

    def retirable_builds(self) -> frozenset[str]:
        """Returns the builds that a record may retire: unneeded builds, and idle builds.

        An idle build may not be retired if it is the candidate of a rollout, or if an overlay
        serves its tables.
        """
        kept = {rollout.build for rollout in self.active_rollouts} | self.overlaid_builds()
        return self.unneeded_builds() | (frozenset(self.idle.values()) - kept)

    def idle_since(self, pipeline: str) -> datetime | None:
        """Returns the time at which the pipeline's idle build stopped serving.

        Returns None if there is no idle build.
        """
        idle = self.idle.get(pipeline)
        for before, record in reversed(tuple(pairwise(self.served))):
            if idle is not None and _build_in(before, pipeline) == idle != _build_in(
                record, pipeline
            ):
                return datetime.fromisoformat(record.at).astimezone(UTC)
        return None

    def served_in(self, rollout: int) -> JournalRecord | None:
        """Returns the record with which a rollout began to serve, or None if it has not served.

        `rollout` is the rollout's id. The rollout may have switched alone or in a group.
        """
        return next(
            (
                record
                for record in self.served
                if isinstance(record.event, GenerationMade)
                and any(each.rollout == rollout for each in record.event.switched)
            ),
            None,
        )

    def switched_by(self, pipeline: str) -> str:
        """Returns the user who requested the pipeline's last switch or retirement."""
        if pipeline in self.retirements:
            return self.retirements[pipeline].by
        last = self.last_switch(pipeline)
        return "somebody" if last is None else last.asked_by

    def last_switch(self, pipeline: str) -> Rollout | None:
        """Returns the pipeline's last rollout that served, or None if none has served."""
        return next(
            (
                rollout
                for rollout in reversed(self.rollouts)
                if rollout.pipeline == pipeline and rollout.phase is Phase.SERVED
            ),
            None,
        )

    def newer_rollout(self, rollout: Rollout) -> Rollout | None:
        """Returns the newest rollout of the same pipeline, or None if it is `rollout` itself.

        A failed rollout with a newer rollout is superseded: nobody needs to act on the failure.
        """
        newest = next(
            (each for each in reversed(self.rollouts) if each.pipeline == rollout.pipeline), rollout
        )
        return None if newest.id == rollout.id else newest

    def served_before(self, pipeline: str) -> str | None:
        """Returns the last build that served a pipeline before the present one, or None.

        The result may be a build that is already retired.
        """
        builds = [_build_in(record, pipeline) for record in self.served]
        return next(
            (
                build
                for build in reversed(builds)
                if build is not None and build != self.serving.get(pipeline)
            ),
            None,
        )


def soak_end(state: State, pipeline: str, soak_seconds: float) -> datetime | None:
    """Returns the time at which the soak of the pipeline's idle build ends.

    Returns None if there is no idle build, or while an overlay serves the idle build's tables. If
    the pipeline is retired, the record of the retirement determines how long the build is kept.
    """
    since = state.idle_since(pipeline)
    if since is None or state.idle.get(pipeline) in state.overlaid_builds():
        return None
    retirement = state.retirements.get(pipeline)
    return since + timedelta(seconds=soak_seconds) if retirement is None else retirement.kept_until


def soaked_builds(state: State, now: datetime, soak_seconds: float) -> frozenset[str]:
    """Returns the idle builds that may be retired because their soak is over."""
    over = (
        build
        for pipeline, build in state.idle.items()
        if (end := soak_end(state, pipeline, soak_seconds)) is not None and end <= now
    )
    return frozenset(over) & state.retirable_builds()


def _build_in(record: JournalRecord, pipeline: str) -> str | None:
    return record.event.serving.get(pipeline) if isinstance(record.event, GenerationMade) else None
