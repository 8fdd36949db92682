"""The catch-up: bounded legs of large slices, planned before they begin, until what is left fits one batch of the tail.

It ends by writing the tail down; the tail is a process of its own, as this one has the lowest priority and cannot take a
higher one. Where little is left from the start, no JVM is started at all. Read next: engine/legs.py, engine/tail.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event

from pyspark.sql import SparkSession

from kappa.engine.fold_slice import SliceFolder
from kappa.engine.legs import Leg, LegKind, Legs, catch_up, tail
from kappa.engine.maintenance import Maintenance
from kappa.engine.publisher import Publisher
from kappa.engine.source import Kafka, read_slice
from kappa.log.client import Log
from kappa.offsets import Offsets
from kappa.slices import Slice
from kappa.stopwatch import Stopwatch


class CatchUp:
    """The bounded legs of one build."""

    def __init__(self, legs: Legs, folder: SliceFolder, publisher: Publisher, maintenance: Maintenance, *, log: Log, kafka: Kafka, topics: tuple[str, ...]) -> None:
        self._legs = legs
        self._folder = folder
        self._publisher = publisher
        self._maintenance = maintenance
        self._log = log
        self._kafka = kafka
        self._topics = topics

    def run(self, session: Callable[[], SparkSession], stop: Event, *, slice_records: int, small: int) -> None:
        """Folds until at most `small` offsets are left and the tail is written down, or until asked to stop."""
        while not stop.is_set():
            leg = self._next_leg(slice_records=slice_records, small=small)
            if leg.kind is LegKind.TAIL:
                return
            for piece in leg.slices_after(self._publisher.newest.offsets):
                if stop.is_set():
                    return
                self._fold(piece, len(leg.ends), session())
                self._maintenance.run_if_due()

    def _next_leg(self, *, slice_records: int, small: int) -> Leg:
        """The leg that is not at its end yet, or the next one, written down."""
        last = self._legs.last()
        done = self._publisher.newest.offsets
        if last is not None and (last.kind is LegKind.TAIL or not done.covers(last.end)):
            return last
        number = 0 if last is None else last.number
        end = self._log.end(self._topics).highest(done)
        if end.distance(done) <= small:
            return self._legs.begin(tail(number + 1, done.highest(Offsets({topic: dict.fromkeys(parts, 0) for topic, parts in end.next.items()}))))
        return self._legs.begin(catch_up(number + 1, done, end, at_most=slice_records))

    def _fold(self, piece: Slice, of: int, spark: SparkSession) -> None:
        watch = Stopwatch()
        self._folder.fold(piece, spark, lambda topics: read_slice(spark, self._kafka, piece, topics), self._publisher, watch)
        rate = piece.distance / watch.total
        print(f"slice {piece.number + 1} of {of}: {piece.distance} offsets in {watch.total:.1f} s, {rate:,.0f}/s (ms: {watch})", file=sys.stderr, flush=True)
