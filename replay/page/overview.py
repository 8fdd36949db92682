"""The overview as values: each pipeline with its live, idle and candidate builds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kappa.replay.page.build_rates import HistoryPoint, rate_of, rates_over_time
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.state import State
from kappa.replay.status.status import BuildStatus, Status
from kappa.state.journal.projections import Retirement

# A job that has published within this time is at work on the missing records.
_AT_WORK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a build in a word; `tone` is ok, busy, warn, bad or unknown.

    Each tone has its own shape on the page.
    """

    word: str
    tone: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PipelineCard:
    """A pipeline with its builds.

    `rate` is the offsets a second that the live build folds, `chart` the rates over the last
    hour.
    """

    pipeline: str
    live: BuildStatus | None
    idle: BuildStatus | None
    candidate: BuildStatus | None
    health: Health | None
    rate: float | None
    chart: Mapping[str, Sequence[float]]
    generation: int | None
    served_at: str | None

    @property
    def retirement(self) -> Retirement | None:
        """The retirement of a pipeline whose build is kept for an undo of the retirement."""
        return None if self.idle is None else self.idle.retirement


def pipeline_cards(
    status: Status, state: State, trails: Callable[[str], Sequence[HistoryPoint]], now: datetime
) -> tuple[PipelineCard, ...]:
    """Makes a card of each pipeline with a build, by name.

    `trails` returns the history of a build.
    """
    found: dict[str, dict[str, BuildStatus]] = {}
    for build in status.builds:
        found.setdefault(build.pipeline, {})[build.role] = build
    return tuple(
        _pipeline_card(pipeline, roles, state, trails, now)
        for pipeline, roles in sorted(found.items())
    )


def health_of(build: BuildStatus, now: datetime, *, supervised: bool = True) -> Health:
    """Returns the health of a build."""
    age = build.age_seconds(now)
    if build.stopped is not None:
        return Health("Stopped", "bad", build.stopped.text)
    if build.pause is not None:
        return Health("Paused", "warn", build.pause.text)
    if build.trouble:
        return Health("In trouble", "bad", build.trouble)
    if not supervised:
        return Health("Not running", "warn", "kappa is not up: kappa up -d")
    if build.lag is None:
        return Health("Lag unknown", "unknown", "the broker was not asked")
    if build.held_back:
        return Health("Held back", "warn", "by a transaction that is open")
    if build.lag <= 0:
        return Health("Up to date", "ok")
    if build.rests:
        return Health("At rest", "ok", "it folds in turns, and at once for an undo")
    return (
        Health("Following", "ok")
        if age is not None and age < _AT_WORK_SECONDS
        else Health("Behind", "warn")
    )


def phase_health(build: BuildStatus) -> Health:
    """Returns the health of a rollout, by the phase."""
    assert build.rollout is not None, "a candidate has one"
    if build.stopped is not None or build.trouble:
        return Health(
            "In trouble",
            "bad",
            build.stopped.text if build.stopped is not None else build.trouble,
        )
    match build.rollout.phase:
        case Phase.READY if build.rollout.waits:
            return Health("Ready", "busy", "it waits for your yes")
        case Phase.HOLDING | Phase.READY:
            return Health("Switching", "busy")
        case phase:
            return Health(str(phase).capitalize(), "busy")


def _pipeline_card(
    pipeline: str,
    roles: Mapping[str, BuildStatus],
    state: State,
    trails: Callable[[str], Sequence[HistoryPoint]],
    now: datetime,
) -> PipelineCard:
    live = roles.get("live")
    steps = () if live is None else trails(live.build)
    idle = roles.get("idle")
    # An idle build that is switched back is a candidate too.
    candidate = roles.get("candidate") or (
        idle if idle is not None and idle.rollout is not None else None
    )
    times, offsets = rates_over_time(steps, now)
    record, generation = _serving_since(state, pipeline)
    return PipelineCard(
        pipeline,
        live,
        idle,
        candidate,
        None if live is None else health_of(live, now),
        rate_of(steps, now),
        {"x": times, "y": offsets},
        generation,
        record,
    )


def _serving_since(state: State, pipeline: str) -> tuple[str | None, int | None]:
    """Returns the time and the generation in which a pipeline's build began to serve."""
    for chapter in reversed(state.rollouts):
        if chapter.pipeline == pipeline and (record := state.served_in(chapter.id)) is not None:
            return record.at, getattr(record.event, "generation", None)
    return None, None
