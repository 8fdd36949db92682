"""The status of the platform: the builds, their folded offsets, and their lag behind the log.

This module only observes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from kappa.base.errors import Damaged, KappaError
from kappa.base.units import seconds_left
from kappa.declare.reject_limit import beyond_text, is_beyond, rejected_of
from kappa.declare.topic_patterns import matching_topics
from kappa.declare.values.tally import Tally
from kappa.replay.rollout.current_state import readable_state
from kappa.replay.rollout.libraries import changed_libraries, installed_libraries
from kappa.replay.rollout.rollout import Phase, Rollout
from kappa.replay.rollout.state import State, soak_end
from kappa.replay.rollout.supervisor_report import RolloutWait, SupervisorReport
from kappa.state.build import Birth
from kappa.state.build_status import (
    SliceProgress,
    StepTimes,
    Stopped,
    ViewCost,
    read_progress,
    read_step_times,
    read_stopped,
    read_view_check,
    read_view_costs,
)
from kappa.state.disk_space import why_jobs_rest
from kappa.state.drift import Drift, read_drifts
from kappa.state.frontier import Frontier
from kappa.state.journal.projections import Pause, Retirement
from kappa.state.offsets import Offsets
from kappa.state.record_cache import ReadMemory
from kappa.state.root import why_silent
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.kafka.client import Log
    from kappa.serving.query.overflows import Overflow
    from kappa.serving.query.reader.errors import BrokenRelation

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Found = TypeVar("_Found")


class SlowLook(Protocol):
    """A function that makes a slow observation, or returns a recent result.

    The recent result is that of an observation with the same name.
    """

    def __call__(self, name: str, look: Callable[[], _Found], /) -> _Found:
        """Returns the result of `look`, or a recent result for the same `name`.

        Raises the error that `look` raises.
        """


def look_now(_name: str, look: Callable[[], _Found], /) -> _Found:
    """Calls `look` and returns its result, without a cache.

    Commands use this function, because a command observes only once.
    """
    return look()


@dataclass(frozen=True, slots=True)
class HeldBack:
    """The offsets of a partition that readers cannot read yet, because a transaction is open.

    `offset` is the first of these offsets, at which the transaction began. `count` is the number of
    these offsets.
    """

    topic: str
    partition: int
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A topic that matches a pattern of a pipeline, but is not read by the pipeline."""

    pipeline: str
    pattern: str
    topic: str

    @property
    def text(self) -> str:
        """Returns a sentence for display. The sentence does not name the command `mended_by`."""
        return (
            f"topic {self.topic} matches the pattern {self.pattern} of pipeline {self.pipeline}, "
            "and is not read"
        )

    @property
    def mended_by(self) -> str:
        """Returns the command that lets the topic join the pattern.

        A deploy after this command reads the topic.
        """
        return f"kappa topics join '{self.pattern}'"


@dataclass(frozen=True, slots=True)
class FailingOutlet:
    """A sink or an alert that cannot send now, and the command that shows more.

    `kind` is `sink` or `alert`, and `name` is the sink's topic or the alert's name. `trouble`
    continues the sentence that the kind and the name begin. `since` is the time of the first
    attempt to send what waits now, or "" if it is unknown.
    """

    kind: str
    name: str
    trouble: str
    shown_by: str
    since: str = ""

    @property
    def text(self) -> str:
        """Returns a sentence that names the outlet and the trouble, without a full stop."""
        return f"{self.kind} {self.name} {self.trouble}"


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """The status of a live, idle or candidate build. A candidate has a `rollout`.

    `lag` is the number of offsets up to the log's end, or None if the broker was not asked.
    `held_back` is the part of the lag that an open transaction hides from every reader. `fresh_at`
    is the last time at which readers saw all records. `record_times` maps each topic to the log
    time of the newest record that was folded. `folded` is the number of offsets since the offsets
    at which the build began. For a branch, `begun_with` of these offsets were in the tables when
    the branch began. `rejected` and `duplicate` count records; `late` counts some of the rejected
    records. `beyond` is a message if the build has rejected more records than the pipeline allows a
    candidate, otherwise "". `kept_until` is the end of the soak of an idle build. `waits_for`,
    `rate` (offsets per second) and `trouble` come from the supervisor's report. `libraries` are the
    libraries whose installed version differs from the version when the build was created. The build
    reads `topics`, from the offsets `reads_from` on. `base` is the base of a branch. `tables_of` is
    the build whose tables an overlay serves. `slice` is the progress of the job in the next slice,
    during a replay. `broken` contains a sentence for each table and view of the live build that
    cannot be read, and for each view that fails over its rows. `overflows` are the folded values
    that do not fit their type now. `view_costs` maps each maintained view to its last cost. `rests`
    is True if the build rests. `pause` and `retirement` are the pipeline's pause and retirement, if
    any. `drifts` are the ways in which events no longer match their declaration. `step_times` are
    the times of the job's last slices by step, if the build follows the log.
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
    record_times: Mapping[str, datetime] = field(default_factory=dict)
    view_costs: Mapping[str, ViewCost] = field(default_factory=dict)
    drifts: tuple[Drift, ...] = ()
    step_times: StepTimes | None = None

    @property
    def last_record_at(self) -> datetime | None:
        """Returns the log time of the newest record that was folded, or None if it is unknown."""
        return max(self.record_times.values(), default=None)

    @property
    def read(self) -> tuple[int, int] | None:
        """Returns the number of offsets that the job has folded, and the number of all offsets.

        The second number includes the offsets up to the log's end that the job has not folded yet.
        Returns None if the end of the log is unknown.
        """
        folded = self.folded - self.begun_with
        return None if self.lag is None else (folded, folded + self.lag)

    @property
    def views_by_cost(self) -> list[tuple[str, ViewCost]]:
        """Returns the maintained views with their last costs, the most expensive first."""
        return sorted(self.view_costs.items(), key=lambda each: -each[1].seconds)

    @property
    def reached(self) -> tuple[int, int] | None:
        """Returns the number of offsets that the job has read, and the number of all offsets.

        Unlike in `read`, the first number includes records that are read and not yet folded.
        Returns None if the end of the log is unknown.
        """
        if self.read is None or self.slice is None:
            return self.read
        folded, total = self.read
        return min(total, folded + self.slice.read), total

    @property
    def eta_seconds(self) -> float | None:
        """Returns the seconds until a candidate has read all records, at the current rate.

        Returns None if the build has no rollout, if the rate or the end of the log is unknown, or
        if all records have been read.
        """
        if self.rollout is None or self.reached is None:
            return None
        return seconds_left(*self.reached, self.rate) or None

    def age_seconds(self, now: datetime) -> float | None:
        """Returns the age of the rows that readers see, in seconds.

        The age is 0 if there is no lag. Otherwise it is the time since `fresh_at`. If the lag is
        unknown, the age is an upper bound. Returns None if the build has no frontier.
        """
        if self.fresh_at is None:
            return None
        caught_up = self.lag is not None and self.lag <= 0
        return 0.0 if caught_up else (now - self.fresh_at).total_seconds()


@dataclass(frozen=True, slots=True)
class Status:
    """The generation that is served, and all live, idle and candidate builds.

    The builds are sorted by pipeline and role. `broker_error` is the reason why lags are unknown.
    `end` is the log's end, or None if the broker was not asked. `disk` is the reason why no job
    runs, if the disk is full. `unread` are the topics that match a pattern of a build and have not
    joined the pattern. `damaged` contains a sentence with a hint for each record that cannot be
    read. The status contains the facts of all other records. `silent` is the reason why no outlet
    sends anything, if there is one. `failing` are the sinks and alerts of the serving builds that
    cannot send now.
    """

    generation: int
    builds: tuple[BuildStatus, ...]
    broker_error: str = ""
    end: Offsets | None = None
    disk: str = ""
    unread: tuple[Unread, ...] = ()
    damaged: tuple[str, ...] = ()
    silent: str = ""
    failing: tuple[FailingOutlet, ...] = ()


def observe_status(
    store: Store,
    log: Log | None,
    *,
    soak_seconds: float = 3600.0,
    underway: SupervisorReport | None = None,
    reserve: int = 0,
    memory: ReadMemory | None = None,
    slow: SlowLook = look_now,
    broken_in: Callable[[Store], Iterable[BrokenRelation]] | None = None,
) -> Status:
    """Reads the journal, the frontiers and the log's end, and returns the status.

    Args:
        store: The root.
        log: The Kafka client, or None if there is no broker. If no broker answers, lags are
            unknown.
        soak_seconds: The duration of the soak of an idle build.
        underway: The supervisor's report, if there is one.
        reserve: The number of bytes on the disk that the supervisor keeps free.
        memory: The cache of a process that observes repeatedly.
        slow: Makes an observation that opens the served tables, or returns a recent result.
        broken_in: Lists the served tables and views that cannot be opened. The default opens all
            of them.

    The facts of damaged records are omitted.
    """
    state, why = readable_state(store)
    damaged = {} if why is None else {str(why): None}
    memory = ReadMemory(store) if memory is None else memory
    births: dict[str, Birth] = {}
    for build in sorted(state.wanted_builds()):
        with _note_damage(damaged):
            births[build] = memory.birth(build)
    memory.forget_other(frozenset((*births, *(each.folded_by for each in births.values()))))
    topics = frozenset(topic.name for birth in births.values() for topic in birth.topics)
    end, broker_error = None, ""
    held: tuple[HeldBack, ...] = ()
    unread: tuple[Unread, ...] = ()
    try:
        if log is not None and topics:
            # In this order: a record that is appended between the two questions is not held back.
            high = log.high_watermark(topics)
            committed = log.end(topics)
            end, held = committed.highest_with(high), held_back(committed, high)
            unread = unread_topics(births.values(), log)
    except KappaError as error:
        broker_error = error.message
    seen = [
        _status_or_damage(memory, store, each, births, end, held, state, damaged)
        for each in _build_roles(state)
    ]
    broken: dict[str, tuple[str, ...]] = {}
    found: tuple[Overflow, ...] = ()
    with _note_damage(damaged):
        broken = slow("broken relations", lambda: _broken_views(store, state, births, broken_in))
    with _note_damage(damaged):
        found = slow("overflows", lambda: _count_overflows(store, state, births))
    silent = ""
    failing: list[FailingOutlet] = []
    with _note_damage(damaged):
        silent = why_silent(store)
    for build in state.serving.values():
        with _note_damage(damaged):
            failing += _failing_outlets(store, births[build]) if build in births else ()

    def unlike(build: str) -> tuple[str, ...]:
        """Lists the views of a build that differed from their queries at the last check."""
        check = None
        with _note_damage(damaged):
            check = memory.beside_build(
                build, "check of views", lambda: read_view_check(store, build)
            )
        return () if check is None else check.unlike

    builds = (
        replace(
            _with_state(each, state, underway or SupervisorReport(), soak_seconds),
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
        tuple(failing),
    )


def held_back(end: Offsets, high_watermark: Offsets) -> tuple[HeldBack, ...]:
    """Returns the offsets that readers cannot read because of open transactions. Pure.

    These are the offsets between the end for readers of committed records and the high watermark.
    """
    return tuple(
        HeldBack(topic, partition, end.at(topic, partition), high - end.at(topic, partition))
        for topic, partition, high in high_watermark.items()
        if high > end.at(topic, partition)
    )


def unread_topics(births: Iterable[Birth], log: Log) -> tuple[Unread, ...]:
    """Lists topics that match a pattern of a pipeline, but that no build of the pipeline reads.

    `births` are the birth certificates of the live, idle and candidate builds. If there is no
    pattern, no request is sent to the broker.
    """
    known = tuple(births)
    patterns = {
        (birth.pipeline, topic.pattern)
        for birth in known
        for topic in birth.topics
        if topic.pattern is not None
    }
    if not patterns:
        return ()
    there = tuple(log.topics())
    sinks = {sink.topic for birth in known for sink in birth.sinks}
    read = {(birth.pipeline, name) for birth in known for name in birth.topic_ids}
    return tuple(
        Unread(pipeline, pattern, name)
        for pipeline, pattern in sorted(patterns)
        for name in matching_topics(pattern, there, sinks)
        if (pipeline, name) not in read
    )


@contextmanager
def _note_damage(damaged: dict[str, None]) -> Iterator[None]:
    """Catches a Damaged error of the `with` block, and adds its text to `damaged`."""
    try:
        yield
    except Damaged as error:
        damaged[str(error)] = None


def _status_or_damage(
    memory: ReadMemory,
    store: Store,
    role: tuple[str, str, str, Rollout | None],
    births: Mapping[str, Birth],
    end: Offsets | None,
    held: tuple[HeldBack, ...],
    state: State,
    damaged: dict[str, None],
) -> BuildStatus:
    """Returns the status of a build.

    If the build's files are damaged, the status contains only facts from the journal, and the error
    is added to `damaged`.
    """
    pipeline, name, build, rollout = role
    if build in births:
        with _note_damage(damaged):
            return _build_status(memory, store, *role, births[build], end, held)
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


def _broken_views(
    store: Store,
    state: State,
    births: Mapping[str, Birth],
    broken_in: Callable[[Store], Iterable[BrokenRelation]] | None,
) -> dict[str, tuple[str, ...]]:
    """Returns messages about the served tables and views that cannot be opened, by pipeline.

    If no view is served, returns an empty mapping without opening anything.
    """
    if not any(births[build].views for build in state.serving.values() if build in births):
        return {}
    # The import loads DuckDB, which most looks do without.
    from kappa.serving.query.tables import broken_relations  # noqa: PLC0415  # as said above

    found: dict[str, tuple[str, ...]] = {}
    for each in (broken_in or broken_relations)(store):
        found[each.pipeline] = (*found.get(each.pipeline, ()), each.refusal().message)
    return found


def _failing_outlets(store: Store, birth: Birth) -> Iterator[FailingOutlet]:
    """Yields each sink and alert that cannot send now."""
    if not birth.sinks and not birth.alerts:
        return
    # The imports load DuckDB, which most looks do without.
    from kappa.serving.outlets.alerts.message import time_as_text  # noqa: PLC0415  # as said above
    from kappa.serving.outlets.alerts.outbox import read_alert_progress  # noqa: PLC0415  # as said above
    from kappa.serving.outlets.sinks.sink_status import read_sink_state  # noqa: PLC0415  # as said above

    for sink in birth.sinks:
        known = read_sink_state(store, sink.topic)
        if known is not None and known.error:
            since = f" since {known.error_at}" if known.error_at else ""
            trouble = f"cannot send{since}: {known.error}"
            yield FailingOutlet("sink", sink.topic, trouble, "kappa sinks", known.error_at)
    for alert in birth.alerts:
        if (progress := read_alert_progress(store, alert.name)).error:
            trouble, first = f"cannot send: {progress.error}", progress.failing_since
            since = "" if first is None else time_as_text(first)
            yield FailingOutlet("alert", alert.name, trouble, "kappa alerts list", since)


def _count_overflows(
    store: Store, state: State, births: Mapping[str, Birth]
) -> tuple[Overflow, ...]:
    """Counts the served values that do not fit their type now.

    If no served table can have such values, returns () without opening any table.
    """
    # The import loads DuckDB, which most looks do without.
    from kappa.serving.query.overflows import count_overflows, overflow_marks  # noqa: PLC0415  # as said above

    if not any(
        overflow_marks(births[build]) for build in state.serving.values() if build in births
    ):
        return ()
    try:
        return count_overflows(store)
    except KappaError:
        # The status shows all else, and a reader of the table gets the reason.
        return ()


def _with_state(
    build: BuildStatus, state: State, underway: SupervisorReport, soak_seconds: float
) -> BuildStatus:
    """Returns a build's status with added facts from the journal and the supervisor's report."""
    waiting = underway.rollouts.get(0 if build.rollout is None else build.rollout.id, RolloutWait())
    serves = build.role == "live"
    return replace(
        build,
        kept_until=soak_end(state, build.pipeline, soak_seconds) if build.role == "idle" else None,
        # The slice says more.
        waits_for=""
        if build.slice is not None or build.rollout is None
        else waiting.cause_in(build.rollout.phase),
        rate=waiting.rate,
        trouble=underway.trouble(build.build),
        rests=build.build in underway.resting,
        fresh_at=underway.fresh_at(build.build, build.fresh_at) if serves else build.fresh_at,
        pause=state.paused.get(build.pipeline),
        retirement=state.retirements.get(build.pipeline),
    )


def _build_roles(state: State) -> Iterator[tuple[str, str, str, Rollout | None]]:
    """Yields (pipeline, role, build, rollout) for each live, idle and candidate build.

    If an idle build is the candidate of a rollout, its role is idle.
    """
    active = {rollout.build: rollout for rollout in state.active_rollouts}
    for pipeline, build in state.serving.items():
        yield pipeline, "live", build, None
    for pipeline, build in state.idle.items():
        yield pipeline, "idle", build, active.pop(build, None)
    for build, rollout in active.items():
        yield rollout.pipeline, "candidate", build, rollout


def _build_status(
    memory: ReadMemory,
    store: Store,
    pipeline: str,
    role: str,
    build: str,
    rollout: Rollout | None,
    birth: Birth,
    end: Offsets | None,
    held: tuple[HeldBack, ...],
) -> BuildStatus:
    frontier = memory.newest_frontier(build)
    stopped, costs, drifts, steps = memory.beside_build(
        birth.folded_by, "documents", lambda: _documents_beside(store, birth)
    )
    tally = _sum_tally(frontier)
    offsets = birth.origin_offsets if frontier is None else frontier.offsets
    return BuildStatus(
        pipeline,
        role,
        build,
        birth.version,
        offsets,
        None
        if end is None
        else end.only(set(birth.topic_ids)).highest_with(offsets).distance(offsets),
        None if frontier is None else datetime.fromisoformat(frontier.published_at).astimezone(UTC),
        offsets.distance(birth.origin_offsets),
        tally.rejected,
        rollout,
        stopped,
        libraries=changed_libraries(birth.libraries, installed_libraries()),
        held_back=tuple(each for each in held if each.topic in birth.topic_ids),
        beyond=_beyond_limit(birth, frontier),
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
        record_times=_record_times(frontier),
        view_costs=costs,
        drifts=drifts,
        step_times=steps,
    )


def _documents_beside(
    store: Store, birth: Birth
) -> tuple[Stopped | None, Mapping[str, ViewCost], tuple[Drift, ...], StepTimes | None]:
    """Reads the files that a build's job has written next to the birth certificate.

    Returns the reason why the job has stopped for good (or None), the costs of maintained views,
    the drifts, and the times of the last slices by step (or None).
    """
    build = birth.folded_by
    has_views = any(table.view is not None for table in birth.tables)
    return (
        read_stopped(store, build),
        read_view_costs(store, build) if has_views else {},
        read_drifts(store, build),
        read_step_times(store, build),
    )


def _record_times(frontier: Frontier | None) -> dict[str, datetime]:
    """Returns the log time of the newest folded record of each topic.

    A time that a `datetime` cannot represent is omitted, because a producer may send any time.
    """
    found: dict[str, datetime] = {}
    for topic, parts in () if frontier is None else frontier.log_time.items():
        # A producer may send any time.
        with suppress(OverflowError):
            found |= {topic: _EPOCH + timedelta(milliseconds=max(parts.values()))} if parts else {}
    return found


def _beyond_limit(birth: Birth, frontier: Frontier | None) -> str:
    counted = (0, 0) if frontier is None else rejected_of(frontier.tally)
    return (
        beyond_text(birth.max_rejects, *counted) if is_beyond(birth.max_rejects, *counted) else ""
    )


def _sum_tally(frontier: Frontier | None) -> Tally:
    """Returns the numbers of a build's records by outcome, summed over all partitions."""
    return (
        Tally()
        if frontier is None
        else sum((tally for parts in frontier.tally.values() for tally in parts.values()), Tally())
    )
