"""Decides when a build needs no job and rests, and when a resting build is woken.

A job needs memory and a little CPU time even if no records arrive. A build whose frontier has
reached the end of the log rests after `engine.rest_after`, and the next record wakes the build. A
build that is only kept for an undo rests most of the time. Once many records are unread, or after
some time, it folds up to the present end of the log, and rests again; this is called a turn. A
build that reads a compacted topic is woken in time to read every tombstone before Kafka deletes the
tombstone. Otherwise the build might never learn that a key was deleted.

The supervisor observes the ends of the log for builds that rest (`Rests`). `after_look` decides
after each observation, as a pure function of the observation and the state before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from kappa.base.clock import now as clock_now
from kappa.base.errors import KappaError, Unreachable
from kappa.engine.job.legs import Legs
from kappa.state.build import read_birth
from kappa.state.build_status import end_turn, turns_asked
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# Of the time for which a topic keeps something, a turn takes this part; and at most an hour.
_PART = 4
_LONGEST_TURN_SECONDS = 3600.0
# The first record after a rest waits for a look. At first, when people watch, looks are frequent.
_LOOK_SECONDS = 0.5
_WATCHED_SECONDS = 10.0
# The settings of a topic may change.
_PROMISE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class TopicPromise:
    """The time for which a build's topics keep records that the build has not read yet.

    `turn_seconds` is the longest time for which the build may rest: the topics keep unread records
    for longer. `hears` is True if a topic is compacted, so the build must read its tombstones
    within that time. `by_size` is True if a topic may delete unread records at any time because of
    the topic's size.
    """

    turn_seconds: float = _LONGEST_TURN_SECONDS
    hears: bool = False
    by_size: bool = False

    @classmethod
    def of_topics(cls, topics: Iterable[Mapping[str, str]]) -> TopicPromise:
        """Computes the promise from the settings that are in force for each topic."""
        turn, hears, by_size = _LONGEST_TURN_SECONDS, False, False
        for config in topics:
            policy = config.get("cleanup.policy", "delete").split(",")
            if "compact" in policy:
                hears = True
                turn = min(turn, _config_seconds(config, "delete.retention.ms") / _PART)
            if "delete" in policy:
                by_size = by_size or int(config.get("retention.bytes", "-1")) >= 0
                turn = min(turn, _config_seconds(config, "retention.ms") / _PART)
        return cls(turn, hears, by_size)


@dataclass(frozen=True, slots=True)
class BuildLook:
    """An observation of a build: its folded offsets, and the ends of its topics in the log.

    `heard_seconds` is the time since the build was last known to have read all tombstones. `kept`
    is True if the build neither serves nor is a candidate. `runs` is True if the build's job runs.
    `asked` is True if somebody requested that the build folds the unread records now.
    """

    offsets: Offsets
    end: Offsets
    heard_seconds: float
    kept: bool
    runs: bool
    asked: bool = False


@dataclass(frozen=True, slots=True)
class RestState:
    """The state of a build between two observations.

    `rests` is True if the build needs no job. `since` is the time since which `offsets` have been
    the same. `target` is the offsets up to which a kept build folds before it rests again.
    """

    rests: bool
    since: float
    offsets: Offsets
    kept: bool = False
    target: Offsets | None = None


def after_look(
    before: RestState | None,
    seen: BuildLook,
    promise: TopicPromise,
    *,
    now: float,
    rest_after: float,
    many: int,
) -> RestState:
    """Decides from an observation whether a build should rest or run. Pure.

    Args:
        before: The state after the previous observation, or None before the first observation.
        seen: The observation.
        promise: How long the build's topics keep unread records.
        now: The time in seconds, of a clock that never moves back.
        rest_after: The number of seconds without a change after which the build rests.
        many: The number of unread records that also wakes a kept build.
    """
    known = before or RestState(not seen.runs, now, seen.offsets, seen.kept)
    late = promise.hears and seen.heard_seconds > promise.turn_seconds
    if promise.turn_seconds < rest_after or late or (known.kept and not seen.kept):
        return RestState(rests=False, since=now, offsets=seen.offsets, kept=seen.kept)
    in_turns = seen.kept and not promise.by_size
    if known.rests:
        waits = not seen.end.equals(seen.offsets)
        if in_turns:
            waits = waits and (
                seen.asked
                or seen.end.distance(seen.offsets) >= many
                or not seen.end.covers(seen.offsets)
                or now - known.since >= promise.turn_seconds
            )
        if not waits:
            return replace(known, kept=seen.kept)
        return RestState(
            rests=False, since=now, offsets=seen.offsets, kept=seen.kept, target=seen.end
        )
    if in_turns:
        target = known.target if known.kept and known.target is not None else seen.end
        done = seen.offsets.covers(target)
        return RestState(done, now, seen.offsets, kept=True, target=target)
    since = known.since if known.offsets == seen.offsets else now
    done = now - since >= rest_after and seen.end.equals(seen.offsets)
    return RestState(done, now if done else since, seen.offsets, seen.kept)


def _config_seconds(config: Mapping[str, str], name: str) -> float:
    given = int(config.get(name, "-1"))
    return given / 1000 if given >= 0 else float("inf")


class TopicEnds(Protocol):
    """The part of the Kafka client that `Rests` needs (implemented in kappa/kafka)."""

    def end(self, topics: Iterable[str]) -> Offsets:
        """Returns the end offsets of these topics, for readers of committed records."""

    def config(self, name: str) -> Mapping[str, str]:
        """Returns all settings of a topic that are in force."""


class WatchedBuild:
    """Reads the newest frontier of a build, in a process other than the build's job."""

    def __init__(self, store: Store, build: str, clock: Callable[[], float]) -> None:
        self._legs, self._frontiers = Legs(store, build), Frontiers(store, build)
        self._news = Frontiers.news(store, build, clock=clock)
        self._newest: Frontier | None = None

    def tail_frontier(self) -> Frontier | None:
        """Returns the newest frontier if the build's newest leg is the tail, otherwise None."""
        with self._news.looking_for_news() as due:
            if due:
                self._newest = self._frontiers.newest() if self._legs.has_tail() else None
        return self._newest


class Rests:
    """Decides for each build of a supervisor whether the build rests.

    The object stores the state of each build between two decisions.
    """

    def __init__(
        self,
        store: Store,
        *,
        rest_after: float,
        many: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Creates an object that does not know any build yet.

        A build rests after `rest_after` seconds without a change (0: never). `many` unread records
        wake any build. `say` prints a message for the operator. `clock` returns seconds that never
        move back, and `wall` returns seconds since 1970.
        """
        self._store = store
        self._rest_after = rest_after
        self._many = many
        self._say = say
        self._clock = clock
        self._wall = wall
        self._known: dict[str, RestState] = {}
        self._watched: dict[str, WatchedBuild] = {}
        self._promises: dict[str, tuple[float, TopicPromise]] = {}
        self._topics: dict[str, frozenset[str]] = {}
        self._wanted = frozenset[str]()
        self._look_at = 0.0
        self._woken: dict[str, str] = {}
        self._watched_until = 0.0

    @property
    def woken(self) -> Mapping[str, str]:
        """Maps each build to the time at which the build was last woken."""
        return self._woken

    def update_resting(
        self, wanted: frozenset[str], kept: frozenset[str], runs: frozenset[str], log: TopicEnds
    ) -> frozenset[str]:
        """Returns the builds in `wanted` that should have no job now.

        Observes the builds first if an observation is due. `kept` are the builds that are only kept
        for an undo, and `runs` are the builds with a job. If the broker does not answer, the result
        of the last observation is returned.
        """
        if self._rest_after == 0:
            return frozenset()
        if self._clock() >= self._look_at or wanted != self._wanted:
            if wanted != self._wanted:
                self._watched_until = self._clock() + _WATCHED_SECONDS
            self._wanted = wanted
            is_watched = self._clock() < self._watched_until
            self._look_at = self._clock() + (0 if is_watched else _LOOK_SECONDS)
            before = self._at_rest()
            with suppress(Unreachable):
                self._look_at_builds(wanted, kept, runs, log)
            for build in sorted(self._at_rest() - before):
                self._say(f"build {build} rests")
            for build in sorted((before & wanted) - self._at_rest()):
                self._say(f"build {build} wakes")
                self._woken[build] = clock_now()
        return self._at_rest() & wanted

    def _at_rest(self) -> frozenset[str]:
        return frozenset(build for build, each in self._known.items() if each.rests)

    def _look_at_builds(
        self, wanted: frozenset[str], kept: frozenset[str], runs: frozenset[str], log: TopicEnds
    ) -> None:
        now = self._clock()
        self._known = {build: each for build, each in self._known.items() if build in wanted}
        self._watched = {
            build: self._watched.get(build) or WatchedBuild(self._store, build, self._clock)
            for build in sorted(wanted)
        }
        frontiers = {
            build: newest
            for build, watched in self._watched.items()
            if (newest := watched.tail_frontier()) is not None
        }
        asked = [
            build for build, newest in frontiers.items() if self._is_due(build, newest, kept, now)
        ]
        ends, turns = self._log_ends(asked, log), turns_asked(self._store)
        for build in asked:
            newest, before = frontiers[build], self._known.get(build)
            end, promise = ends.get(build), self._promise_of(build, log)
            if end is None or promise is None:
                # A topic of the build is gone: the job reports this.
                self._known[build] = RestState(rests=False, since=now, offsets=newest.offsets)
                continue
            seen = BuildLook(
                newest.offsets,
                end,
                self._wall()
                - datetime.fromisoformat(newest.heard_time).astimezone(UTC).timestamp(),
                build in kept,
                build in runs,
                build in turns,
            )
            if seen.asked:
                end_turn(self._store, build)
            self._known[build] = after_look(
                before,
                seen,
                promise,
                now=now,
                rest_after=self._rest_after,
                many=self._many,
            )

    def _is_due(self, build: str, newest: Frontier, kept: frozenset[str], now: float) -> bool:
        """Returns True if the decision about a build depends on the end of the log.

        Returns False for a build whose job is still folding new records.
        """
        known = self._known.get(build)
        if known is None or known.rests or build in kept or known.kept:
            return True
        if known.offsets != newest.offsets:
            self._known[build] = RestState(rests=False, since=now, offsets=newest.offsets)
            return False
        return now - known.since >= self._rest_after

    def _topics_of(self, build: str) -> frozenset[str]:
        if build not in self._topics:
            self._topics[build] = frozenset(read_birth(self._store, build).topic_ids)
        return self._topics[build]

    def _log_ends(self, builds: list[str], log: TopicEnds) -> dict[str, Offsets]:
        """Returns the end offsets of each build's topics, by build.

        A build is left out if one of its topics is missing.
        """
        topics = {build: self._topics_of(build) for build in builds}
        try:
            end = log.end(frozenset().union(*topics.values())) if builds else Offsets()
        except Unreachable:
            raise
        except KappaError:
            found = {}
            for build in builds:
                with suppress(KappaError):
                    found[build] = log.end(topics[build])
            return found
        return {build: end.only(topics[build]) for build in builds}

    def _promise_of(self, build: str, log: TopicEnds) -> TopicPromise | None:
        read_at, promise = self._promises.get(build, (-math.inf, None))
        if self._clock() - read_at >= _PROMISE_SECONDS:
            try:
                promise = TopicPromise.of_topics(
                    log.config(topic) for topic in sorted(self._topics_of(build))
                )
            except Unreachable:
                raise
            except KappaError:
                return None
            self._promises[build] = self._clock(), promise
        return promise
