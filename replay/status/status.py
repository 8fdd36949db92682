"""The status: what runs, how far each build is, and how far behind the log. It only looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from kappa.base.errors import Damaged, KappaError
from kappa.base.units import seconds_left
from kappa.declare.breaker import beyond_text, is_beyond, rejected_of
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.current import readable_state
from kappa.replay.rollout.libraries import changed_libraries, installed_libraries
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State, soak_end
from kappa.replay.rollout.underway import Underway, Waiting
from kappa.replay.status.held_back import HeldBack, held_back
from kappa.replay.status.unread import Unread, unread_topics
from kappa.state.build import Birth, read_birth
from kappa.state.build_status import (
    SliceProgress,
    Stopped,
    read_progress,
    read_stopped,
    read_view_check,
)
from kappa.state.disk_space import why_jobs_rest
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.projections import Pause, Retirement
from kappa.state.offsets import Offsets
from kappa.state.root import why_silent
from kappa.state.store import Store

if TYPE_CHECKING:
    # At run time it would import DuckDB.
    from kappa.serving.query.overflows import Overflow


class Ends(Protocol):
    """The part of the broker's client that a status needs."""

    def end(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def high_watermark(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def topics(self) -> Mapping[str, object]: ...  # noqa: D102  # as in Log


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """One build that is wanted, as live, idle or candidate; a candidate has a `rollout`.

    `lag` counts offsets up to the log's end (None: the broker was not asked). `held_back` counts
    those among them that an open transaction keeps from every reader. `fresh_at` is when its
    frontier was published. `folded` counts offsets since its origin; of a branch, `begun_with` of
    them were in its tables when it began. `rejected` counts records (`late` are some of them), as
    does `duplicate`. `beyond` is set if it has rejected more than its pipeline allows a candidate.
    `kept_until` is the end of the soak of an idle build. `waits_for`, `rate` (offsets a second) and
    `trouble` are the supervisor's words. `libraries` are those that are installed in another
    version than at its birth. It reads `topics` from `reads_from` on; `base` is that of a branch,
    `tables_of` the build whose tables an overlay serves. `slice` is how far its job is in the slice
    that comes next, if it is replayed. `broken` are the live build's tables and views that cannot
    be read, and any build's views that fail over its rows, a sentence each; `overflows` are its
    sums that do not fit their types now. Its job `rests`, or not. `pause`, `retirement`: of its
    pipeline.
    """

    pipeline: str
    role: str
    build: str
    version: str
    offsets: Offsets
    lag: int | None
    fresh_at: datetime | None
    folded: int
    rejected: int
    rollout: Rollout | None = None
    stopped: Stopped | None = None
    kept_until: datetime | None = None
    waits_for: str = ""
    rate: float | None = None
    trouble: str = ""
    libraries: tuple[str, ...] = ()
    held_back: tuple[HeldBack, ...] = ()
    beyond: str = ""
    late: int = 0
    duplicate: int = 0
    topics: frozenset[str] = frozenset()
    base: str = ""
    tables_of: str | None = None
    begun_with: int = 0
    reads_from: Offsets = field(default_factory=Offsets)
    broken: tuple[str, ...] = ()
    overflows: tuple[Overflow, ...] = ()
    slice: SliceProgress | None = None
    rests: bool = False
    pause: Pause | None = None
    retirement: Retirement | None = None

    @property
    def read(self) -> tuple[int, int] | None:
        """Counts the offsets that its job has folded, and all up to the log's end.

        None if the end is not known.
        """
        folded = self.folded - self.begun_with
        return None if self.lag is None else (folded, folded + self.lag)

    @property
    def reached(self) -> tuple[int, int] | None:
        """Counts as `read` does, with the records read of the slice that is not folded yet."""
        if self.read is None or self.slice is None:
            return self.read
        folded, total = self.read
        return min(total, folded + self.slice.read), total

    @property
    def eta_seconds(self) -> float | None:
        """The seconds that a candidate still needs at its rate. None if not known."""
        if self.rollout is None or self.reached is None:
            return None
        return seconds_left(*self.reached, self.rate)

    def age_seconds(self, now: datetime) -> float | None:
        """Returns the age of its readers' rows: 0 if nothing is behind it, else its frontier's age.

        None if it has no frontier. Of an unknown lag the frontier's age is the most it can be.
        """
        if self.fresh_at is None:
            return None
        caught_up = self.lag is not None and self.lag <= 0
        return 0.0 if caught_up else (now - self.fresh_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Status:
    """The generation that is served, and the builds that are wanted, by pipeline and role.

    `broker_error` is why lags are not known; `end` is the log's end, if the broker was asked.
    `disk` is why jobs rest, if the disk is full. `unread` are the topics that match a pattern which
    a build reads by, and have not joined it. `damaged` is what cannot be read, a sentence each,
    with what to do: the rest is as far as it can be read. `silent` is why nothing is sent, if so.
    """

    generation: int
    builds: tuple[BuildStatus, ...]
    broker_error: str = ""
    end: Offsets | None = None
    disk: str = ""
    unread: tuple[Unread, ...] = ()
    damaged: tuple[str, ...] = ()
    silent: str = ""


def observe_status(
    store: Store,
    log: Ends | None,
    *,
    soak_seconds: float = 3600.0,
    underway: Underway | None = None,
    reserve: int = 0,
) -> Status:
    """Looks at journal, frontiers and the log's end; `log` is None if there is no broker.

    A broker that does not answer leaves the lags open, and a record that is damaged leaves out what
    it tells. `underway` is the supervisor's report, if there is one, `reserve` the bytes that it
    keeps of the disk.
    """
    state, why = readable_state(store)
    damaged = {} if why is None else {str(why): None}
    births: dict[str, Birth] = {}
    for build in sorted(state.wanted_builds()):
        with _noting(damaged):
            births[build] = read_birth(store, build)
    topics = frozenset(topic.name for birth in births.values() for topic in birth.topics)
    end, broker_error = None, ""
    held: tuple[HeldBack, ...] = ()
    unread: tuple[Unread, ...] = ()
    try:
        if log is not None and topics:
            # In this order: what is appended between the two questions is not held back.
            high = log.high_watermark(topics)
            committed = log.end(topics)
            end, held = committed.highest(high), held_back(committed, high)
            unread = unread_topics(births.values(), log)
    except KappaError as error:
        broker_error = error.message
    seen = [_seen(store, each, births, end, held, state, damaged) for each in _roles(state)]
    broken: dict[str, tuple[str, ...]] = {}
    found: tuple[Overflow, ...] = ()
    with _noting(damaged):
        broken = _broken(store, state, births)
    with _noting(damaged):
        found = _overflows(store, state, births)
    silent = ""
    with _noting(damaged):
        silent = why_silent(store)

    def unlike(build: str) -> tuple[str, ...]:
        """Lists the views of a build that a check has found not to be their texts."""
        check = None
        with _noting(damaged):
            check = read_view_check(store, build)
        return () if check is None else check.unlike

    builds = (
        replace(
            _with_state(each, state, underway or Underway(), soak_seconds),
            broken=(*each.broken, *broken.get(each.pipeline, ()), *unlike(each.build))
            if each.role == "live"
            else each.broken,
            overflows=tuple(one for one in found if one.pipeline == each.pipeline)
            if each.role == "live"
            else (),
        )
        for each in seen
    )
    return Status(
        state.generation,
        tuple(sorted(builds, key=lambda build: build.pipeline)),
        broker_error,
        end,
        why_jobs_rest(store, reserve),
        unread,
        tuple(damaged),
        silent,
    )


@contextmanager
def _noting(damaged: dict[str, None]) -> Iterator[None]:
    """Notes what is damaged, and goes on without it."""
    try:
        yield
    except Damaged as error:
        damaged[str(error)] = None


def _seen(
    store: Store,
    role: tuple[str, str, str, Rollout | None],
    births: Mapping[str, Birth],
    end: Offsets | None,
    held: tuple[HeldBack, ...],
    state: State,
    damaged: dict[str, None],
) -> BuildStatus:
    """Returns the status of a build, or what the journal alone says of one that is damaged."""
    pipeline, name, build, rollout = role
    if build in births:
        with _noting(damaged):
            return _build_status(store, *role, births[build], end, held)
    return BuildStatus(
        *(pipeline, name, build, state.versions[build]),
        offsets=Offsets(),
        lag=None,
        fresh_at=None,
        folded=0,
        rejected=0,
        rollout=rollout,
        broken=("its records are damaged",),
    )


def _broken(store: Store, state: State, births: Mapping[str, Birth]) -> dict[str, tuple[str, ...]]:
    """Lists the relations that cannot be made, by pipeline; only if views serve: they break."""
    if not any(births[build].views for build in state.serving.values() if build in births):
        return {}
    # It takes DuckDB, which most looks do without.
    from kappa.serving.query.tables import broken_relations  # noqa: PLC0415  # as said above

    found: dict[str, tuple[str, ...]] = {}
    for each in broken_relations(store):
        found[each.pipeline] = (*found.get(each.pipeline, ()), each.refusal().message)
    return found


def _overflows(store: Store, state: State, births: Mapping[str, Birth]) -> tuple[Overflow, ...]:
    """Counts the sums that do not fit now; only if a served table has sums."""
    # It takes DuckDB, which most looks do without.
    from kappa.serving.query.overflows import overflow_marks, overflows  # noqa: PLC0415  # as said above

    if not any(
        overflow_marks(births[build]) for build in state.serving.values() if build in births
    ):
        return ()
    try:
        return overflows(store)
    except KappaError:
        # The status shows all else, and whoever reads the table is told why it cannot be read.
        return ()


def _with_state(
    build: BuildStatus, state: State, underway: Underway, soak_seconds: float
) -> BuildStatus:
    """Adds the supervisor's report, and what the journal says of its pipeline."""
    waiting = underway.rollouts.get(0 if build.rollout is None else build.rollout.id, Waiting())
    serves = build.role == "live"
    return replace(
        build,
        kept_until=soak_end(state, build.pipeline, soak_seconds) if build.role == "idle" else None,
        waits_for=waiting.waits_for,
        rate=waiting.rate,
        trouble=underway.trouble(build.build),
        rests=build.build in underway.resting,
        fresh_at=underway.fresh_at(build.build, build.fresh_at) if serves else build.fresh_at,
        pause=state.paused.get(build.pipeline),
        retirement=state.retirements.get(build.pipeline),
    )


def _roles(state: State) -> Iterator[tuple[str, str, str, Rollout | None]]:
    """Yields (pipeline, role, build, rollout). A build on its way back keeps its role."""
    active = {rollout.build: rollout for rollout in state.active_rollouts}
    for pipeline, build in state.serving.items():
        yield pipeline, "live", build, None
    for pipeline, build in state.idle.items():
        yield pipeline, "idle", build, active.pop(build, None)
    for build, rollout in active.items():
        yield rollout.pipeline, "candidate", build, rollout


def _build_status(
    store: Store,
    pipeline: str,
    role: str,
    build: str,
    rollout: Rollout | None,
    birth: Birth,
    end: Offsets | None,
    held: tuple[HeldBack, ...],
) -> BuildStatus:
    frontier = Frontiers(store, build).newest()
    tally = _tally(frontier)
    offsets = birth.origin_offsets if frontier is None else frontier.offsets
    return BuildStatus(
        pipeline,
        role,
        build,
        birth.version,
        offsets,
        None if end is None else end.only(set(birth.topic_ids)).highest(offsets).distance(offsets),
        None if frontier is None else datetime.fromisoformat(frontier.published_at).astimezone(UTC),
        offsets.distance(birth.origin_offsets),
        tally.rejected,
        rollout,
        read_stopped(store, birth.folded_by),
        libraries=changed_libraries(birth.libraries, installed_libraries()),
        held_back=tuple(each for each in held if each.topic in birth.topic_ids),
        beyond=_beyond(birth, frontier),
        broken=() if frontier is None else tuple(frontier.failing.values()),
        late=tally.late,
        duplicate=tally.duplicate,
        topics=frozenset(birth.topic_ids),
        base="" if birth.base is None else str(birth.base),
        tables_of=birth.tables_of,
        begun_with=birth.reads_from.distance(birth.origin_offsets),
        reads_from=birth.reads_from,
        slice=None
        if rollout is None or rollout.phase is not Phase.REPLAYING
        else read_progress(store, build, frontier),
    )


def _beyond(birth: Birth, frontier: Frontier | None) -> str:
    counted = (0, 0) if frontier is None else rejected_of(frontier.tally)
    return (
        beyond_text(birth.max_rejects, *counted) if is_beyond(birth.max_rejects, *counted) else ""
    )


def _tally(frontier: Frontier | None) -> Tally:
    """Sums the tallies of all offsets of a build."""
    return (
        Tally()
        if frontier is None
        else sum((tally for parts in frontier.tally.values() for tally in parts.values()), Tally())
    )
