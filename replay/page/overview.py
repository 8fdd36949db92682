"""Computes the data of the overview page: pipelines with live, idle and candidate builds. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kappa.replay.page.build_rates import (
    WINDOW,
    HistoryPoint,
    joined_points,
    rate_of,
    rates_over_time,
)
from kappa.replay.page.states import BEHIND, TONES, Health, health_of
from kappa.replay.rollout.state import State
from kappa.replay.status.status import BuildStatus, Status
from kappa.serving.http.page.formatting import amount, duration, number, per
from kappa.state.journal.events import Difference, GenerationMade
from kappa.state.journal.projections import Retirement
from kappa.state.kept_frontiers import parse_moment

# So many pipelines are shown as cards; more are rows of a list.
_MOST_CARDS = 3
_OLDEST = datetime.min.replace(tzinfo=UTC)
# By the name in the address: the key by which the list is sorted.
_SORT_KEYS: Mapping[str, Callable[[PipelineCard, BuildStatus], Any]] = {
    "state": lambda card, live: urgency(card.health, live.lag, waits=card.waits),
    "last": lambda _, live: -(live.last_record_at or _OLDEST).timestamp(),
    "rate": lambda card, _: -(card.rate or 0.0),
    "lag": lambda _, live: -(live.lag or 0),
    "folded": lambda _, live: -live.folded,
    "rejected": lambda card, _: -card.open_rejects,
}


@dataclass(frozen=True, slots=True)
class PipelineCard:
    """A pipeline with its builds.

    `rate` is the number of offsets per second that the serving builds have folded. `chart` contains
    the rates over time, across promotes. `rate` and `chart` cover the last `span_seconds`.
    `open_rejects` is the number of rejects that no redriven record has corrected. `arrivals` is the
    number of new offsets per second in the topics of the live build, or None if it is not known.
    """

    pipeline: str
    live: BuildStatus | None
    idle: BuildStatus | None
    candidate: BuildStatus | None
    health: Health | None
    rate: float | None
    chart: Mapping[str, Sequence[float]]
    span_seconds: float
    generation: int | None
    served_at: str | None
    open_rejects: int = 0
    arrivals: float | None = None

    @property
    def trend(self) -> str:
        """Returns how the lag changes if the pipeline is behind, otherwise ""."""
        if self.live is None or self.health is None or self.health.word != BEHIND:
            return ""
        return lag_trend(self.live.lag or 0, self.rate, self.arrivals)

    @property
    def retirement(self) -> Retirement | None:
        """Returns the retirement if the pipeline's build is kept for an undo, otherwise None."""
        return None if self.idle is None else self.idle.retirement

    @property
    def waits(self) -> bool:
        """Returns True if a rollout of the pipeline waits for a person."""
        rollout = None if self.candidate is None else self.candidate.rollout
        return rollout is not None and rollout.waits

    @property
    def is_healthy(self) -> bool:
        """Returns True if the pipeline is well, and no rollout of the pipeline is under way."""
        return self.health is not None and self.health.tone == "ok" and self.candidate is None


def urgency(health: Health | None, lag: int | None, *, waits: bool) -> tuple[int, int]:
    """Returns the key by which pipelines are sorted, the most urgent first.

    Stopped pipelines come first, then late pipelines, then pipelines whose rollout waits for a
    person, and then the rest. Within each of these groups, the largest lag in offsets comes first.
    """
    rank = 2 * (len(TONES) if health is None else TONES.index(health.tone))
    # A rollout that waits stands between the tones `warn` and `unknown`.
    return min(rank, 3) if waits else rank, -(lag or 0)


def pipeline_cards(
    status: Status,
    state: State,
    trails: Callable[[str], Sequence[HistoryPoint]],
    now: datetime,
    open_rejects: Mapping[str, int],
    arrivals: Mapping[str, float | None],
    *,
    supervised: bool = True,
) -> tuple[PipelineCard, ...]:
    """Creates a card for each pipeline that has a build, sorted by name.

    `trails` returns the history of a build. `open_rejects` maps a pipeline to the number of its
    rejects that no redriven record has corrected. `arrivals` maps a serving build to the number of
    new offsets per second in its topics, or to None if this number is not known yet. `supervised`
    is True if a supervisor is running.
    """
    found: dict[str, dict[str, BuildStatus]] = {}
    for build in status.builds:
        found.setdefault(build.pipeline, {})[build.role] = build
    return tuple(
        _pipeline_card(
            *(pipeline, roles, state, trails, now, open_rejects, arrivals), supervised=supervised
        )
        for pipeline, roles in sorted(found.items())
    )


@dataclass(frozen=True, slots=True)
class PipelineList:
    """The serving pipelines for the list of the overview.

    `dense` is True if the page shows the pipelines as rows of a list instead of cards. `rows` are
    the pipelines whose names contain the text `search`, in the order `sort`. `total` is the number
    of all serving pipelines. The last `folded` rows are healthy pipelines, which the page shows as
    one row that unfolds.
    """

    rows: tuple[PipelineCard, ...]
    total: int
    dense: bool
    search: str
    sort: str
    folded: int = 0


def pipeline_list(cards: Sequence[PipelineCard], search: str, sort: str) -> PipelineList:
    """Returns the serving pipelines whose names contain `search`, in the order `sort`. Pure.

    If `sort` is not a known order, rows of a list are sorted by state, and cards by name. In the
    order by state, healthy pipelines are folded if there are others, and nothing is searched.
    """
    live = [(card, card.live) for card in cards if card.live is not None]
    is_dense = len(live) > _MOST_CARDS
    if is_dense and sort not in {*_SORT_KEYS, "name"}:
        sort = "state"
    key = _SORT_KEYS.get(sort)
    shown = [each for each in live if search.casefold() in each[0].pipeline.casefold()]
    if key is not None:
        shown.sort(key=lambda each: key(*each))
    healthy = sum(card.is_healthy for card, _ in shown)
    is_folded = is_dense and sort == "state" and not search and 1 < healthy < len(shown)
    if is_folded:
        shown.sort(key=lambda each: each[0].is_healthy)
    return PipelineList(
        tuple(card for card, _ in shown),
        len(live),
        is_dense,
        search,
        sort if key is not None else "name",
        healthy if is_folded else 0,
    )


def changes_text(differences: Sequence[Difference], *, past: bool = False) -> str:
    """Describes a promote: `7 rows change, 1 is removed: 40 → 39 rows of hits`. Pure.

    If `past` is True, the promote is over: `7 rows changed, 1 removed`. Several tables that differ
    are counted together. Returns "" if no table was compared.
    """
    compared = [each for each in differences if each.compared]
    moved = [each for each in compared if not each.equal]
    if not moved:
        return "" if not compared else "no row changed" if past else "no row changes"
    counted = (
        (sum(each.changed for each in moved), "changes", "change", "changed"),
        (sum(each.added for each in moved), "is added", "are added", "added"),
        (sum(each.removed for each in moved), "is removed", "are removed", "removed"),
    )
    parts = [
        (count, done if past else one if count == 1 else many)
        for count, one, many, done in counted
        if count
    ]
    told = ", ".join(
        f"{number(count) if place else amount(count, 'row')} {verb}"
        for place, (count, verb) in enumerate(parts)
    )
    before = number(sum(each.rows_before or 0 for each in moved))
    after = amount(sum(each.rows_after or 0 for each in moved), "row")
    where = f"of {moved[0].table}" if len(moved) == 1 else f"in {amount(len(moved), 'table')}"
    # A narrow page does not break the line beside the arrow.
    arrow = "\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}"
    return f"{told or 'only columns differ'}: {before}{arrow}{after} {where}"


def _pipeline_card(
    pipeline: str,
    roles: Mapping[str, BuildStatus],
    state: State,
    trails: Callable[[str], Sequence[HistoryPoint]],
    now: datetime,
    open_rejects: Mapping[str, int],
    arrivals: Mapping[str, float | None],
    *,
    supervised: bool,
) -> PipelineCard:
    live = roles.get("live")
    steps = () if live is None else joined_points(_served_spans(state, pipeline, trails, now))
    idle = roles.get("idle")
    # An idle build that is switched back is a candidate too.
    candidate = roles.get("candidate") or (
        idle if idle is not None and idle.rollout is not None else None
    )
    times, rates = rates_over_time(steps, now)
    record, generation = _serving_since(state, pipeline)
    rate = rate_of(steps, now)
    return PipelineCard(
        pipeline,
        live,
        idle,
        candidate,
        None if live is None else health_of(live, now, rate=rate, supervised=supervised),
        rate,
        {"x": times, "y": rates},
        0.0 if not steps else min(WINDOW, now - steps[0].at).total_seconds(),
        generation,
        record,
        0 if live is None else open_rejects.get(pipeline, live.rejected),
        None if live is None else arrivals.get(live.build),
    )


def lag_trend(lag: int, rate: float | None, arrivals: float | None) -> str:
    """Describes how a lag changes: `grows by 120/s`, or `3 min left`. Pure.

    `rate` is the number of offsets that the build folds per second, and `arrivals` is the number of
    new offsets per second. Returns "" if one of them is unknown, or if nothing changes.
    """
    growth = 0.0 if rate is None or arrivals is None else arrivals - rate
    if growth < 0:
        return f"{duration(lag / -growth)} left"
    unit, seconds, _ = per(growth)
    return f"grows by {number(growth * seconds)}{unit}" if growth else ""


def _served_spans(
    state: State,
    pipeline: str,
    trails: Callable[[str], Sequence[HistoryPoint]],
    now: datetime,
) -> list[tuple[datetime, Sequence[HistoryPoint]]]:
    """Returns the builds that have served a pipeline, the oldest first.

    Each element consists of the time at which the build began to serve, and the build's history.
    Builds that stopped serving before the period of the charts, or before a retirement, are left
    out.
    """
    begun: list[tuple[datetime, str]] = []
    for record in reversed(state.served):
        assert isinstance(record.event, GenerationMade), "no other record makes a generation"
        at, build = parse_moment(record.at), record.event.serving.get(pipeline)
        if build is None:
            break
        if begun and begun[-1][1] == build:
            begun.pop()
        begun.append((at, build))
        if now - at > WINDOW:
            break
    return [(at, trails(build)) for at, build in reversed(begun)]


def _serving_since(state: State, pipeline: str) -> tuple[str | None, int | None]:
    """Returns the time of a pipeline's last switch, and the generation that began then.

    Both are None if the pipeline never served.
    """
    for chapter in reversed(state.rollouts):
        if chapter.pipeline == pipeline and (record := state.served_in(chapter.id)) is not None:
            return record.at, getattr(record.event, "generation", None)
    return None, None
