"""The catch-up: bounded legs of large slices, planned before they begin, until what is left fits one batch of the tail.

The last of them is the alignment, where the pipeline has a live build: no slice goes past what that one has published, and
the last ends exactly there. Then the tail is written down; it is a process of its own, as this one has the lowest priority
and cannot take a higher one. Where little is left from the start, no JVM is started at all. A candidate that tails already
is aligned again by the same legs. Read next: engine/legs.py, engine/align.py, engine/tail.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event

from pyspark.sql import SparkSession

from kappa.engine.align import Aligner, ahead
from kappa.engine.fold_slice import SliceFolder
from kappa.engine.legs import Leg, LegKind, Legs, alignment, catch_up, tail
from kappa.engine.maintenance import Maintenance
from kappa.engine.publisher import Publisher
from kappa.engine.source import Kafka, read_slice
from kappa.log.client import Log
from kappa.offsets import Offsets
from kappa.slices import Slice
from kappa.stopwatch import Stopwatch

_LOOK_SECONDS = 0.2


class CatchUp:
    """The bounded legs of one build."""

    def __init__(
        self, legs: Legs, folder: SliceFolder, publisher: Publisher, maintenance: Maintenance, aligner: Aligner, *, log: Log, kafka: Kafka, topics: tuple[str, ...]
    ) -> None:
        self._legs = legs
        self._folder = folder
        self._publisher = publisher
        self._maintenance = maintenance
        self._aligner = aligner
        self._log = log
        self._kafka = kafka
        self._topics = topics

    def run(self, session: Callable[[], SparkSession], stop: Event, *, slice_records: int, small: int, again: bool) -> None:
        """Folds until at most `small` offsets are left and the tail is written down, or until asked to stop.

        `again`: the tail is written down already, and the build is to be aligned once more before it goes on.
        """
        if again:
            self._fold_cut_short(session)
        while not stop.is_set():
            leg = self._next_leg(stop, slice_records=slice_records, small=small, again=again)
            if leg is None or leg.kind is LegKind.TAIL:
                return
            again = False
            for piece in leg.slices_after(self._publisher.newest.offsets):
                if stop.is_set():
                    return
                self._fold(piece, len(leg.ends), session())
                if leg.aim is not None:
                    self._aligner.keep(leg.aim)
                self._maintenance.run_if_due()

    def _next_leg(self, stop: Event, *, slice_records: int, small: int, again: bool) -> Leg | None:
        """The leg that is not at its end yet, or the next one, written down. None where it was asked to stop meanwhile."""
        last = self._legs.last()
        done = self._publisher.newest.offsets
        if last is not None and ((last.kind is LegKind.TAIL and not again) or (last.kind is not LegKind.TAIL and not done.covers(last.end))):
            return last
        number = 1 if last is None else last.number + 1
        if last is not None and last.aim is not None and (self._aligner.aligned_with(last.aim) or self._aligner.put(last.aim, self._publisher.newest)):
            return self._legs.begin(tail(number, done))
        log_end = self._log.end(self._topics).highest(done)
        if not self._wait_until_behind(stop):
            return None
        found = self._aligner.live()
        end = log_end if found is None else _bounded(log_end, found[0].offsets, found[1]).highest(done)
        if end.distance(done) > small:
            return self._legs.begin(catch_up(number, done, end, at_most=slice_records))
        aim = self._aligner.take_aim()
        if aim is None:
            return self._legs.begin(tail(number, done))
        end = _bounded(log_end, aim.live.offsets, frozenset(aim.comparable)).highest(done)
        return self._legs.begin(alignment(number, done, end, aim, at_most=slice_records))

    def _wait_until_behind(self, stop: Event) -> bool:
        """Waits while the build is past the live one in any partition; False where it was asked to stop meanwhile."""
        said = False
        while (found := self._aligner.live()) is not None and (past := ahead(self._publisher.newest.offsets, found[0].offsets, found[1])).next:
            if not said:
                print(f"waiting for build {found[0].build} to reach {past}", file=sys.stderr, flush=True)
                said = True
            if stop.wait(_LOOK_SECONDS):
                return False
        return True

    def _fold_cut_short(self, session: Callable[[], SparkSession]) -> None:
        """Ends the batch of the tail that some tables have folded and others have not, if a crash has left one."""
        newest = self._publisher.newest
        marks = [mark for mark in (writer.mark() for writer in self._folder.writers) if (mark.leg, mark.slice) > (newest.leg, newest.slice)]
        if marks:
            furthest = marks[0]
            self._fold(Slice(furthest.leg, furthest.slice, furthest.start, furthest.end), 1, session())

    def _fold(self, piece: Slice, of: int, spark: SparkSession) -> None:
        watch = Stopwatch()
        self._folder.fold(piece, spark, lambda topics: read_slice(spark, self._kafka, piece, topics), self._publisher, watch)
        rate = piece.distance / watch.total
        print(f"slice {piece.number + 1} of {of}: {piece.distance} offsets in {watch.total:.1f} s, {rate:,.0f}/s (ms: {watch})", file=sys.stderr, flush=True)


def _bounded(log_end: Offsets, live: Offsets, topics: frozenset[str]) -> Offsets:
    """The log's end, but on these topics where the live build is: nothing that it has not shown. Pure."""
    return Offsets({**log_end.next, **{topic: dict(live.next.get(topic, {})) for topic in topics}})
