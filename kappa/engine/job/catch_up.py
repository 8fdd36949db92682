"""Catch-up: bounded legs of large slices, until the rest is small.

The rest then fits a single batch. If the pipeline has a live build, no slice goes past the
published frontier of the live build. The rest is for the tail's process: the catch-up's process has
a low priority and cannot take a higher priority. The tail's process first folds the alignment,
which ends exactly at a frontier of the live build, and then writes the tail down. A candidate that
tails already is aligned again by the same legs. If little is left from the start, no JVM is started
here at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event

from pyspark.sql import SparkSession

from kappa.base.clock import Stopwatch
from kappa.base.units import growth
from kappa.engine.job.align import Aligner, ahead
from kappa.engine.job.legs import Leg, LegKind, Legs, alignment, catch_up, slice_size, tail
from kappa.engine.job.slice_folder import SliceFolder
from kappa.engine.read.source import LogSource
from kappa.engine.write.maintenance import Maintenance
from kappa.engine.write.publisher import Publisher
from kappa.kafka.client import Log
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

_LOOK_SECONDS = 0.2
# A catch-up of fewer offsets shows its first frontier soon.
_FAR = 10_000_000


class CatchUp:
    """Bounded legs of a build."""

    def __init__(
        self,
        legs: Legs,
        folder: SliceFolder,
        publisher: Publisher,
        maintenance: Maintenance,
        aligner: Aligner,
        *,
        log: Log,
        source: LogSource,
        topics: tuple[str, ...],
        ensure_within: Callable[[Frontier, Offsets], None],
        watch: Callable[[Slice, int], Stopwatch] = lambda _piece, _of: Stopwatch(),
    ) -> None:
        """Takes the parts of the job, and two callbacks.

        `ensure_within` raises Broken if the build has rejected too much to be a candidate. Its
        arguments are the build's frontier and the end of the leg. `watch` gives the stopwatch for a
        slice; its arguments are the slice and the number of slices in the leg.
        """
        self._legs = legs
        self._folder = folder
        self._publisher = publisher
        self._maintenance = maintenance
        self._aligner = aligner
        self._log = log
        self._source = source
        self._topics = topics
        self._ensure_within = ensure_within
        self._watch = watch

    def run(
        self,
        session: Callable[[], SparkSession],
        stop: Event,
        *,
        slice_records: int,
        small: int,
        tiny: int,
        at_hand: Callable[[], SparkSession] | None = None,
        is_warm: bool = False,
    ) -> None:
        """Folds until little is left, or until asked to stop.

        At most `small` offsets are little if nothing was folded here: so few offsets are no reason
        to start a JVM. A running JVM goes on until at most `tiny` offsets are left: the JVM is
        warm, and more offsets arrive while the tail's process starts. `at_hand` gives the session
        for slices of at most `tiny` offsets. `is_warm` means that this session is warm and not the
        leg's own: then a first, small slice costs nothing.
        """
        little = small
        while not stop.is_set():
            leg = self._begun() or self._catch_up_leg(
                slice_records=slice_records, small=little, first=tiny, is_warm=is_warm
            )
            if leg is None or leg.kind is not LegKind.CATCH_UP:
                return
            self._take(leg, session, stop, at_hand=at_hand, tiny=tiny)
            little = tiny

    def to_base(
        self, end: Offsets, session: Callable[[], SparkSession], stop: Event, *, slice_records: int
    ) -> None:
        """Folds exactly up to `end`, where a branch's own code begins.

        Stops early if asked to stop.
        """
        while not stop.is_set() and (
            distance := end.distance(done := self._publisher.newest.offsets)
        ):
            archived, at_most = self._folder.archives.end(), slice_size(distance, slice_records)
            leg = self._begun() or self._legs.begin(
                catch_up(
                    self._number(),
                    done,
                    end,
                    at_most=at_most,
                    kind=LegKind.BASE,
                    archived=archived,
                    bounds=self._folder.archives.bounds(),
                    slice_records=slice_records,
                )
            )
            self._take(leg, session, stop)

    def align(
        self,
        session: Callable[[], SparkSession],
        stop: Event,
        *,
        slice_records: int,
        small: int,
        again: bool,
    ) -> Leg | None:
        """Aligns the build with the live build, if there is a live build.

        Returns the build's tail, written down. `again`: the tail is written down already, and the
        build is aligned once more before the tail goes on. Returns None if the job was asked to
        stop.
        """
        while not stop.is_set():
            begun = None if again and self._legs.has_tail() else self._begun()
            leg = begun or self._next_leg(stop, slice_records=slice_records, small=small)
            if leg is None or leg.kind is LegKind.TAIL:
                return leg
            self._take(leg, session, stop)
        return None

    def _take(
        self,
        leg: Leg,
        session: Callable[[], SparkSession],
        stop: Event,
        *,
        at_hand: Callable[[], SparkSession] | None = None,
        tiny: int = 0,
    ) -> None:
        # Nobody reads a new build before the end of a leg.
        views_at = None if self._legs.has_tailed() else leg.end
        for piece in leg.slices_after(self._publisher.newest.offsets):
            if stop.is_set():
                return
            self._folder.guard.check_heard(self._publisher.newest, datetime.now(UTC))
            own = session if at_hand is None or piece.distance > tiny else at_hand
            self._fold(piece, len(leg.ends), own, views_at)
            self._ensure_within(self._publisher.newest, leg.end)
            if leg.aim is not None:
                self._aligner.keep(leg.aim)
            self._maintenance.run_if_due()

    def _begun(self) -> Leg | None:
        """Returns the last leg if it is not at its end yet.

        A tail is never at its end.
        """
        last = self._legs.last()
        done = self._publisher.newest.offsets
        return (
            last
            if last is not None and (last.kind is LegKind.TAIL or not done.covers(last.end))
            else None
        )

    def _end(self, live: Offsets, comparable: frozenset[str]) -> Offsets:
        """Returns the furthest end of bounded slices now.

        The end is the log's end. On the comparable topics the end is not past the offsets that the
        live build has published.
        """
        done = self._publisher.newest.offsets
        log_end = self._log.end(self._topics).highest_with(done)
        return Offsets(
            {**log_end.next, **{topic: dict(live.next.get(topic, {})) for topic in comparable}}
        ).highest_with(done)

    def _number(self) -> int:
        last = self._legs.last()
        return 1 if last is None else last.number + 1

    def _catch_up_leg(
        self, *, slice_records: int, small: int, first: int = 0, is_warm: bool = False
    ) -> Leg | None:
        """Writes the next leg of large slices down.

        Returns None if little is left. The build's very first slice is of about `first` offsets, if
        the leg is long: in a JVM that is not warm that slice costs as much as a million offsets.
        """
        done = self._publisher.newest.offsets
        found = self._aligner.live()
        end = (
            self._end(Offsets(), frozenset())
            if found is None
            else self._end(found[0].offsets, found[1])
        )
        distance = end.distance(done)
        # However little is left, a tail cannot read offsets that archives alone have.
        if distance <= small and not (distance and self._folder.guard.wants_archive(done)):
            return None
        at_most, archived = slice_size(distance, slice_records), self._folder.archives.end()
        return self._legs.begin(
            catch_up(
                self._number(),
                done,
                end,
                at_most=at_most,
                archived=archived,
                bounds=self._folder.archives.bounds(),
                slice_records=slice_records,
                first=first
                if self._publisher.newest.slice < 0 and (is_warm or distance >= _FAR)
                else 0,
            )
        )

    def _next_leg(self, stop: Event, *, slice_records: int, small: int) -> Leg | None:
        """Writes the next leg down.

        Returns None if the job was asked to stop meanwhile.
        """
        last = self._legs.last()
        if (
            last is not None
            and last.aim is not None
            and (
                self._aligner.aligned_with(last.aim)
                or self._aligner.put(last.aim, self._publisher.newest)
            )
        ):
            return self._legs.begin(tail(self._number(), self._publisher.newest.offsets))
        if not self._wait_until_behind(stop):
            return None
        leg = self._catch_up_leg(slice_records=slice_records, small=small)
        if leg is not None:
            return leg
        done = self._publisher.newest.offsets
        aim = self._aligner.take_aim()
        if aim is None:
            return self._legs.begin(tail(self._number(), done))
        return self._legs.begin(
            alignment(
                self._number(),
                done,
                self._end(aim.live.offsets, frozenset(aim.comparable)),
                aim,
                at_most=slice_records,
            )
        )

    def _wait_until_behind(self, stop: Event) -> bool:
        """Waits while the build is past the live build in any partition.

        Returns False if the job was asked to stop meanwhile.
        """
        reported = False
        while (found := self._aligner.live()) is not None and (
            past := ahead(self._publisher.newest.offsets, found[0].offsets, found[1])
        ).next:
            if not reported:
                print(
                    f"waiting for build {found[0].build} to reach {past}",
                    file=sys.stderr,
                    flush=True,
                )
                reported = True
            if stop.wait(_LOOK_SECONDS):
                return False
        return True

    def _fold(
        self,
        piece: Slice,
        of: int,
        session: Callable[[], SparkSession],
        views_at: Offsets | None,
    ) -> None:
        watch = self._watch(piece, of)
        heard_at = self._folder.guard.heard_with(self._publisher.newest, piece.end)
        self._folder.fold(
            piece,
            session,
            self._source,
            self._publisher,
            watch,
            heard_at=heard_at,
            views_at=views_at,
        )
        rate = growth(0, piece.distance, watch.total)
        print(
            f"slice {piece.number + 1} of {of}: {piece.distance} offsets in {watch.total:.1f} s, "
            f"{rate:,.0f}/s (ms: {watch})",
            file=sys.stderr,
            flush=True,
        )
