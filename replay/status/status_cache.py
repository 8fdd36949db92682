"""A cache of observations of the platform and the broker, for all clients of the API and the page.

The code calls an observation a look. An observation is work for the broker and the disk, and many
clients request it at once. So the result of an observation is returned to all requests of the next
second. The result of a slow observation is returned for ten times its duration, or for fifty times
its CPU time, whichever is longer. The error of a failed observation is returned in the same way,
but for at most five seconds. A result that depends on a generation is computed again for the next
generation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from kappa.base.errors import KappaError, Unreachable
from kappa.replay.rollout.supervisor_report import SupervisorReport, read_supervisor_report
from kappa.replay.status.alerts import alerts_progress
from kappa.replay.status.listings import topics_listing
from kappa.replay.status.status import BuildStatus, Status, observe_status
from kappa.serving.query.reader.client import Client
from kappa.serving.query.rejects import KnownCounts, RejectCount, count_rejects
from kappa.serving.query.render import Listing
from kappa.serving.query.tables import KnownTables, ServedTable
from kappa.state.build import read_birth
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import JournalView
from kappa.state.record_cache import ReadMemory

if TYPE_CHECKING:
    from kappa.kafka.client import Log
    from kappa.replay.status.context import ProjectContext


_Found = TypeVar("_Found")
# All requests within this time share a look; the results change about as often.
_LOOK_SECONDS = 1.0
# A watched page asks all the time: a look takes at most a tenth of the time, and 2 % of a core.
_REST, _REST_OF_WORK = 10, 50
_LONGEST_REST_SECONDS = 60.0
# A look that opens the served tables, for facts that seldom change.
_SLOW_REST, _LONGEST_SLOW_SECONDS = 100, 120.0
# With more pipelines, a look at all tables is too much work for a page.
_MANY_PIPELINES = 20
# The end of an error is to be seen soon.
_LONGEST_TROUBLE_SECONDS = 5.0
# Clients choose the names of some looks, so the oldest looks are forgotten.
_MOST_LOOKS = 200


@dataclass(slots=True)
class _CachedLook:
    """The result or the error of an observation, and the time until which it may be returned.

    `is_renewed` is True while a thread in the background repeats the observation.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    until: float = float("-inf")
    # The result and the error in one, for a thread that reads them without the lock.
    outcome: tuple[Any, KappaError | None] = (None, None)
    is_renewed: bool = False


class SharedLooks:
    """Makes observations of a project for all clients, and caches the results."""

    def __init__(
        self,
        here: ProjectContext,
        *,
        clock: Callable[[], float] = time.monotonic,
        connect: Callable[[], Log] | None = None,
    ) -> None:
        """Creates a cache without results.

        `clock` returns seconds that never move back. `connect` creates the Kafka client once the
        address of the broker is known.
        """
        self.here = here
        self._connect = connect or partial(here.log, looks=True)
        self._clock = clock
        self._log: tuple[str, Log] | None = None
        self._tables = KnownTables()
        self._reject_counts: KnownCounts = {}
        self._lock = threading.Lock()
        # By generation, if the look depends on a generation, and name.
        self._looks: dict[tuple[int | None, str], _CachedLook] = {}
        self._generation = 0

    @cached_property
    def memory(self) -> ReadMemory:
        """Returns this process's cache of the records that it has read from the root."""
        return ReadMemory(self.here.store)

    def log(self) -> Log | None:
        """Returns the Kafka client, or None if no broker is known."""
        servers = self.here.bootstrap_servers
        if servers is None:
            return None
        if self._log is None or self._log[0] != servers:
            self._log = servers, self._connect()
        return self._log[1]

    def shared_look(
        self,
        what: str,
        look: Callable[[], _Found],
        *,
        generation: int | None = None,
        rest: int = _REST,
        longest: float = _LONGEST_REST_SECONDS,
        in_background: bool = False,
        client: Client | None = None,
    ) -> _Found:
        """Returns the result of `look`, or a recent result of an observation with the same name.

        If `look` raises an error, later calls raise this error again, for as long as they would
        return a result.

        Args:
            what: The name of the observation. Only one observation of each name runs at a time.
            look: Makes the observation.
            generation: The generation on which the result depends, if any.
            rest: A result is returned for this many times the duration of the observation.
            longest: A result is returned for at most this many seconds.
            in_background: In a project of many pipelines, an old result is returned once more, and
                a thread repeats the observation.
            client: If this client disconnects while it waits for its turn, ClientLeft is raised.
        """
        known = self._cached_look(generation, what)
        found: _Found
        found, trouble = known.outcome
        is_known = known.until > float("-inf") and trouble is None
        if in_background and is_known and self._has_many_pipelines():
            if self._clock() > known.until:
                self._renew_in_background(known, look, rest, longest)
            return found
        (client or Client()).take_turn(known.lock)
        try:
            if self._clock() > known.until:
                self._renew(known, look, rest, longest)
            found, trouble = known.outcome
            if trouble is not None:
                # The error is raised many times, so earlier tracebacks are dropped.
                raise trouble.with_traceback(None)
            return found
        finally:
            known.lock.release()

    def _renew(
        self, known: _CachedLook, look: Callable[[], object], rest: int, longest: float
    ) -> None:
        """Calls `look`, and stores its result or error in `known`.

        The caller must hold the lock of `known`.
        """
        begun, worked = self._clock(), time.thread_time()
        seen: object = None
        trouble: KappaError | None = None
        try:
            seen = look()
        except KappaError as error:
            trouble = error
        ended, work = self._clock(), time.thread_time() - worked
        if trouble or (isinstance(seen, Status) and seen.broker_error):
            longest = min(longest, _LONGEST_TROUBLE_SECONDS)
        pause = max(_LOOK_SECONDS, rest * (ended - begun), max(rest, _REST_OF_WORK) * work)
        known.outcome = seen, trouble
        known.until = ended + min(longest, pause)

    def _has_many_pipelines(self) -> bool:
        return len(self.here.state().serving) > _MANY_PIPELINES

    def _renew_in_background(
        self, known: _CachedLook, look: Callable[[], object], rest: int, longest: float
    ) -> None:
        with self._lock:
            if known.is_renewed:
                return
            known.is_renewed = True

        def renew() -> None:
            try:
                with known.lock:
                    self._renew(known, look, rest, longest)
            finally:
                known.is_renewed = False

        threading.Thread(target=renew, name="look").start()

    def _cached_look(self, generation: int | None, what: str) -> _CachedLook:
        with self._lock:
            if generation is not None and generation > self._generation:
                self._generation = generation
                self._looks = {
                    name: known
                    for name, known in self._looks.items()
                    if name[0] in {None, generation}
                }
            if (generation, what) not in self._looks and len(self._looks) >= _MOST_LOOKS:
                self._looks.pop(next(iter(self._looks)))
            return self._looks.setdefault((generation, what), _CachedLook())

    def status(self) -> Status:
        """Returns the status, as `kappa status` shows it."""
        return self.shared_look("status", self._observe_status)

    def seen_status(self) -> Status | None:
        """Returns the last observed status, without a new observation.

        Returns None if the status was never observed, or if the last observation failed.
        """
        found, trouble = self._cached_look(None, "status").outcome
        return found if trouble is None else None

    def topics(self) -> Listing:
        """Returns the rows of `kappa topics list`, except for topics that only a file declares.

        Raises Unreachable if no broker is known, or if no broker answers.
        """
        log, wanted = self.must_reach_broker(), sorted(self.here.state().wanted_builds())

        def look() -> Listing:
            births = (read_birth(self.here.store, build) for build in wanted)
            return topics_listing(
                log, {topic.name: topic for birth in births for topic in birth.topics}
            )

        # A new candidate's topics are listed at once.
        return self.shared_look(f"topics of {wanted}", look)

    def generation(self) -> int:
        """Returns the newest generation in the journal, or 0 if nothing was ever served."""
        _, record = JournalView(self.here.store).last_served()
        return (
            record.event.generation
            if record is not None and isinstance(record.event, GenerationMade)
            else 0
        )

    def tables(self, generation: int, *, in_background: bool = False) -> tuple[ServedTable, ...]:
        """Returns the served tables of a generation, as `kappa tables` shows them.

        `in_background` is as in `shared_look`.
        """
        return self.shared_look(
            "tables",
            lambda: self._tables.served_tables(
                self.here.store, lease_seconds=self.here.lease_seconds
            ),
            generation=generation,
            in_background=in_background,
        )

    def look_ahead(self) -> None:
        """Fills the cache with the status and the served tables, if the project has many pipelines.

        As a result, the first request for a page is fast.
        """
        with suppress(KappaError):
            if self._has_many_pipelines():
                self.status()
                self.tables(self.generation())

    def counted_rejects(self, generation: int) -> Mapping[tuple[str, str], RejectCount]:
        """Returns the numbers of rejects of the builds that serve, by (pipeline, reason)."""

        def counted() -> dict[tuple[str, str], RejectCount]:
            try:
                return count_rejects(
                    self.here.store,
                    lease_seconds=self.here.lease_seconds,
                    known=self._reject_counts,
                )
            except KappaError:
                # Nothing is served yet, so there is no table of rejects.
                return {}

        return self.shared_look("rejects", counted, generation=generation)

    def open_rejects(self, status: Status) -> Mapping[str, int]:
        """Returns, for each pipeline, the number of rejects that no redriven record has corrected.

        The tables of rejects are queried only if a serving build has rejected at least one record.
        """
        if not any(each.rejected for each in status.builds if each.role == "live"):
            return {}
        found: dict[str, int] = {}
        for (pipeline, _), count in self.counted_rejects(status.generation).items():
            found[pipeline] = found.get(pipeline, 0) + count.left
        return found

    def must_reach_broker(self) -> Log:
        """Returns the Kafka client. Raises Unreachable if no broker is known."""
        found = self.log()
        if found is None:
            raise Unreachable(
                "kappa is not up, so there is no broker", hint="start it with: kappa up -d"
            )
        return found

    def change_marker(self) -> Hashable:
        """Returns a value that changes whenever the builds, the log or the alerts change."""
        status = self.status()
        return (
            tuple(map(moving_parts, status.builds)),
            status.broker_error,
            status.disk,
            status.unread,
            status.generation,
            self.here.running is None,
            alerts_progress(self.here.store),
        )

    def _observe_status(self) -> Status:
        running = self.here.running is not None
        underway = read_supervisor_report(self.here.store) if running else SupervisorReport()
        return observe_status(
            self.here.store,
            self.log(),
            soak_seconds=self.here.settings.rollout.soak_seconds,
            underway=underway,
            reserve=self.here.settings.reserve_bytes if running else 0,
            memory=self.memory,
            slow=self._slow_look,
            broken_in=self._tables.broken_relations,
        )

    def _slow_look(self, name: str, look: Callable[[], _Found], /) -> _Found:
        """Opens the served tables for an observation, or returns a recent result of the same name.

        The cache keeps this result for longer than other results, because the observation is slow
        if there are many tables.
        """
        return self.shared_look(
            name,
            look,
            generation=self.generation(),
            rest=_SLOW_REST,
            longest=_LONGEST_SLOW_SECONDS,
            in_background=True,
        )


def moving_parts(build: BuildStatus) -> Hashable:
    """Returns the parts of a build's status that can change without a new journal record. Pure."""
    moving = (
        build.folded,
        build.lag,
        build.fresh_at,
        build.rate,
        build.rejected,
        build.late,
        build.duplicate,
        build.held_back,
        build.slice,
        build.drifts,
    )
    return (
        build.build,
        build.role,
        moving,
        build.waits_for,
        build.trouble,
        build.stopped,
        build.kept_until,
        build.beyond,
        build.pause,
    )
