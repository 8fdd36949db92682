"""The bounded legs of a build: the catch-up, the base of a branch, and the alignment.

The catch-up folds large slices until the remaining offsets fit in a single micro-batch of the tail.
If the pipeline has a live build, no slice goes past the published frontier of the live build. The
tail's process folds the remaining offsets, because the catch-up's process has a low priority and
cannot raise its priority. The tail's process first folds the alignment, which ends exactly at a
frontier of the live build, and then records the tail as a leg. A candidate whose tail was recorded
before is aligned again by the same legs. If few offsets remain at the start, the catch-up folds no
slice.

An alignment begins with a lease that pins a frontier of the live build, the aim. The slices up to
the aim are recorded as a leg and folded. Then the result is recorded as an alignment
(kappa/state/alignment.py). Meanwhile the job of the live build continues unchanged. If the
candidate is past the live build in a partition, the candidate waits until the live build has caught
up. If the lease ends before the alignment is recorded, a newer frontier becomes the aim.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kappa.base.clock import Stopwatch
from kappa.base.errors import KappaError
from kappa.base.log_lines import write_log_line
from kappa.base.units import growth
from kappa.engine.job.legs import (
    Aim,
    Leg,
    LegKind,
    Legs,
    alignment,
    catch_up,
    short_slice_size,
    slice_size,
    tail,
)
from kappa.state.alignment import Alignment, Alignments
from kappa.state.build import Birth, folded_by, read_birth
from kappa.state.build_status import comparable_now
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.journal.events import GenerationMade
from kappa.state.journal.journal import Journal, acting_user
from kappa.state.lease import (
    Lease,
    Pin,
    ensure_lease,
    ensure_released,
    ensure_renewed,
    read_floor,
    read_lease,
)
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.job.job_run import Job

_LOOK_SECONDS = 0.2
# A catch-up of fewer offsets shows its first frontier soon.
_FAR = 10_000_000
# Each further look needs a collection that overtook the last look; a build's collections are many
# seconds apart.
_LOOKS = 20


def live_beside(store: Store, birth: Birth) -> str | None:
    """Returns the id of the build that serves the pipeline of the build `birth`.

    Returns None if no build serves the pipeline, or if the served tables are the tables of the
    build `birth`.
    """
    _, record = Journal(store).last_served()
    build = (
        record.event.serving.get(birth.pipeline)
        if record is not None and isinstance(record.event, GenerationMade)
        else None
    )
    return None if build is None or folded_by(store, build) == birth.build else build


class Aligner:
    """The alignment of a candidate with the live build of its pipeline, step by step."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        *,
        lease_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Stores the arguments, and opens the recorded alignments of the build.

        A lease lasts `lease_seconds` seconds. `clock` returns seconds since 1970, the unit in which
        a lease records its end.
        """
        self._store = store
        self._birth = birth
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._alignments = Alignments(store, birth.build)

    def live_frontier(self) -> tuple[Frontier, frozenset[str]] | None:
        """Returns the live build's newest frontier, and the topics that both builds read.

        The candidate and the live build can be compared in these topics. Returns None if there is
        no such topic, if the live build has no frontier, or if no build other than the candidate
        serves tables.
        """
        build = live_beside(self._store, self._birth)
        if build is None:
            return None
        topics = comparable_now(self._store, self._birth, read_birth(self._store, build))
        frontier = Frontiers(self._store, build).newest()
        return None if frontier is None or not topics else (frontier, topics)

    def take_aim(self) -> Aim | None:
        """Pins the live build's newest frontier by a lease, and returns this frontier as an aim.

        Returns None if `live_frontier` returns None. Raises KappaError if no frontier could be
        pinned.
        """
        for _ in range(_LOOKS):
            found = self.live_frontier()
            if found is None:
                return None
            live, topics = found
            lease = Lease(
                os.getpid(),
                acting_user(),
                self._clock() + self._lease_seconds,
                {live.build: Pin(live.number, live.versions)},
            )
            ensure_lease(self._store, lease)
            if read_floor(self._store, live.build) <= live.number:
                return Aim(live, tuple(sorted(topics)), lease.id)
            ensure_released(self._store, lease.id)
        raise KappaError(
            f"no frontier of the live build of pipeline {self._birth.pipeline} could be pinned",
            hint="its job is started again and again: kappa logs has why",
        )

    def renew_lease(self, aim: Aim) -> bool:
        """Renews the lease that pins the aim's frontier.

        Returns False if the lease has ended; then the frontier may have been deleted already.
        """
        return ensure_renewed(
            self._store, aim.lease, now=self._clock(), seconds=self._lease_seconds
        )

    def aligned_with(self, aim: Aim) -> bool:
        """Returns True if the newest recorded alignment was made with this aim."""
        last = self._alignments.last()
        return last is not None and last.lease == aim.lease

    def put_alignment(self, aim: Aim, candidate: Frontier) -> bool:
        """Records the alignment of a candidate that has reached the aim.

        `candidate` is the candidate's frontier. The aim's lease is renewed, and from then on also
        pins this frontier. Returns True if the alignment is recorded. Returns False if the lease
        has ended; then the caller must take a new aim.
        """
        lease = read_lease(self._store, aim.lease)
        if lease is None or self._clock() >= lease.expires_at:
            return False
        pins = {**lease.pins, candidate.build: Pin(candidate.number, candidate.versions)}
        ensure_lease(
            self._store, replace(lease, pins=pins, expires_at=self._clock() + self._lease_seconds)
        )
        last = self._alignments.last()
        self._alignments.put(
            Alignment(
                1 if last is None else last.number + 1,
                candidate,
                aim.live,
                aim.comparable,
                aim.lease,
            )
        )
        return True


def ahead(done: Offsets, live: Offsets, topics: frozenset[str]) -> Offsets:
    """Returns the candidate's offsets in partitions where the candidate is past the live build.

    `done` contains the candidate's offsets, and `live` the offsets of the live build. Only
    partitions of `topics` are compared. Pure.
    """
    return Offsets.of_partitions(
        {
            (topic, partition): offset
            for topic, partition, offset in done.only(topics).items()
            if offset > live.at(topic, partition)
        }
    )


class CatchUp:
    """The planning and the folding of a build's bounded legs: catch-up, base and alignment."""

    def __init__(
        self,
        job: Job,
        aligner: Aligner,
        *,
        ensure_rejects_within_limit: Callable[[Frontier, Offsets], None],
        watch: Callable[[Slice, int], Stopwatch] = lambda _piece, _of: Stopwatch(),
    ) -> None:
        """Stores the job, the aligner, and two callbacks.

        `ensure_rejects_within_limit` raises Broken if the build has rejected too many records to be
        a candidate. Its arguments are the build's frontier and the end of the leg. `watch` returns
        the stopwatch for a slice; its arguments are the slice and the number of slices in the leg.
        """
        self._job = job
        self._legs = Legs(job.store, job.birth.build)
        self._aligner = aligner
        self._ensure_rejects_within_limit = ensure_rejects_within_limit
        self._watch = watch

    def run(
        self, *, at_hand: Callable[[], SparkSession] | None = None, is_warm: bool = False
    ) -> None:
        """Folds the catch-up until few offsets remain, or until the job is asked to stop.

        Before the first slice, at most `engine.tail_records` offsets count as few, because it is
        not worth starting a JVM for so few offsets. After the first slice, at most
        `engine.driver_rows // 2` offsets count as few, if this number is smaller: the JVM is warm
        by then, and more offsets arrive while the tail's process starts. `at_hand` returns the
        session for slices of at most the smaller number of offsets. `is_warm` is True if this
        session is warm and is not the leg's own session; then a small first slice costs almost
        nothing.
        """
        engine = self._job.engine
        tiny = min(engine.driver_rows // 2, engine.tail_records)
        little = engine.tail_records
        while not self._job.stop.is_set():
            leg = self._begun() or self._catch_up_leg(small=little, first=tiny, is_warm=is_warm)
            if leg is None or leg.kind is not LegKind.CATCH_UP:
                return
            self._take(leg, at_hand=at_hand, tiny=tiny)
            little = tiny

    def run_to_base(self) -> None:
        """Folds a branch's records up to the offsets at which the branch's own code begins.

        Returns earlier if the job is asked to stop.
        """
        job, end, slice_records = self._job, self._job.birth.begins, self._job.engine.slice_records
        while not job.stop.is_set() and (
            distance := end.distance(done := job.publisher.newest.offsets)
        ):
            leg = self._begun() or self._legs.begin(
                catch_up(
                    self._number(),
                    done,
                    end,
                    at_most=self._slice_size(end, distance),
                    kind=LegKind.BASE,
                    archived=job.slices.archives.end(),
                    bounds=job.slices.archives.bounds(),
                    slice_records=slice_records,
                )
            )
            self._take(leg)

    def align(self, *, again: bool) -> Leg | None:
        """Aligns the build with the live build, if there is a live build.

        Returns the recorded leg of the build's tail. If `again` is True, the tail was recorded
        before, and the build is aligned once more before the tail continues. Returns None if the
        job is asked to stop.
        """
        while not self._job.stop.is_set():
            begun = None if again and self._legs.has_tail() else self._begun()
            leg = begun or self._next_leg()
            if leg is None or leg.kind is LegKind.TAIL:
                return leg
            self._take(leg)
        return None

    def _take(
        self,
        leg: Leg,
        *,
        at_hand: Callable[[], SparkSession] | None = None,
        tiny: int = 0,
    ) -> None:
        # Nobody reads a new build before the end of a leg.
        views_at = None if self._legs.has_tailed() else leg.end
        job = self._job
        for piece in leg.slices_after(job.publisher.newest.offsets):
            if job.stop.is_set():
                return
            job.slices.guard.check_heard(job.publisher.newest, datetime.now(UTC))
            own = job.session if at_hand is None or piece.distance > tiny else at_hand
            self._fold(piece, len(leg.ends), own, views_at)
            self._ensure_rejects_within_limit(job.publisher.newest, leg.end)
            if leg.aim is not None:
                self._aligner.renew_lease(leg.aim)
            job.maintenance.run_if_due()

    def _begun(self) -> Leg | None:
        """Returns the newest recorded leg if the build has not reached the end of the leg.

        Otherwise returns None. A tail is always returned, because a tail has no end.
        """
        last = self._legs.last()
        done = self._job.publisher.newest.offsets
        return (
            last
            if last is not None and (last.kind is LegKind.TAIL or not done.covers(last.end))
            else None
        )

    def _end(self, live: Offsets, comparable: frozenset[str]) -> Offsets:
        """Returns the offsets beyond which the next bounded leg must not go.

        In the topics `comparable`, these are `live`, the offsets that the live build has published.
        In the other topics, these are the ends of the log. No offset is before the offsets that the
        build has already folded.
        """
        done = self._job.publisher.newest.offsets
        topics = tuple(topic.name for topic in self._job.birth.topics)
        log_end = self._job.log.end(topics).highest_with(done)
        return Offsets(
            {**log_end.next, **{topic: dict(live.next.get(topic, {})) for topic in comparable}}
        ).highest_with(done)

    def _number(self) -> int:
        last = self._legs.last()
        return 1 if last is None else last.number + 1

    def _catch_up_leg(self, *, small: int, first: int = 0, is_warm: bool = False) -> Leg | None:
        """Records the next leg of large slices, and returns the leg.

        Returns None if at most `small` offsets remain. If the leg is long, the first slice of the
        build has about `first` offsets, so that the first frontier is published soon. If the JVM is
        not warm (`is_warm` is False), folding this small slice takes as long as folding a million
        offsets later, so only a leg of at least 10 million offsets begins with a small slice.
        """
        done = self._job.publisher.newest.offsets
        found = self._aligner.live_frontier()
        end = (
            self._end(Offsets(), frozenset())
            if found is None
            else self._end(found[0].offsets, found[1])
        )
        distance = end.distance(done)
        # However little is left, a tail cannot read offsets that archives alone have.
        if distance <= small and not (distance and self._job.slices.guard.wants_archive(done)):
            return None
        slice_records = self._job.engine.slice_records
        return self._legs.begin(
            catch_up(
                self._number(),
                done,
                end,
                at_most=self._slice_size(end, distance),
                archived=self._job.slices.archives.end(),
                bounds=self._job.slices.archives.bounds(),
                slice_records=slice_records,
                first=first
                if self._job.publisher.newest.slice < 0 and (is_warm or distance >= _FAR)
                else 0,
            )
        )

    def _slice_size(self, end: Offsets, distance: int) -> int:
        """Returns the maximum number of offsets per slice, for a leg of `distance` offsets.

        `end` is the end of the leg.
        """
        engine = self._job.engine
        at_most = slice_size(distance, engine.slice_records)
        return (
            short_slice_size(at_most, end, engine) if distance <= engine.short_records else at_most
        )

    def _next_leg(self) -> Leg | None:
        """Records the next leg of the build, and returns the leg.

        If the last leg was an alignment and its result can be recorded, the next leg is the tail.
        Otherwise, the next leg is a catch-up if many offsets remain. If few offsets remain, the
        next leg is an alignment, or the tail if there is no live build. Returns None if the job was
        asked to stop meanwhile.
        """
        last = self._legs.last()
        if (
            last is not None
            and last.aim is not None
            and (
                self._aligner.aligned_with(last.aim)
                or self._aligner.put_alignment(last.aim, self._job.publisher.newest)
            )
        ):
            return self._legs.begin(tail(self._number(), self._job.publisher.newest.offsets))
        if not self._wait_until_behind():
            return None
        leg = self._catch_up_leg(small=self._job.engine.tail_records)
        if leg is not None:
            return leg
        done = self._job.publisher.newest.offsets
        aim = self._aligner.take_aim()
        if aim is None:
            return self._legs.begin(tail(self._number(), done))
        return self._legs.begin(
            alignment(
                self._number(),
                done,
                self._end(aim.live.offsets, frozenset(aim.comparable)),
                aim,
                at_most=self._job.engine.slice_records,
            )
        )

    def _wait_until_behind(self) -> bool:
        """Waits while the build is past the live build in any partition.

        Returns False if the job was asked to stop meanwhile.
        """
        reported = False
        while (found := self._aligner.live_frontier()) is not None and (
            past := ahead(self._job.publisher.newest.offsets, found[0].offsets, found[1])
        ).next:
            if not reported:
                write_log_line(f"waiting for build {found[0].build} to reach {past}")
                reported = True
            if self._job.stop.wait(_LOOK_SECONDS):
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
        heard_at = self._job.slices.guard.heard_with(self._job.publisher.newest, piece.end)
        self._job.slices.run_slice(
            piece,
            session,
            self._job.source,
            self._job.publisher,
            watch,
            heard_at=heard_at,
            views_at=views_at,
        )
        rate = growth(0, piece.distance, watch.total)
        write_log_line(
            f"slice {piece.number + 1} of {of}: {piece.distance} offsets in {watch.total:.1f} s, "
            f"{rate:,.0f}/s (ms: {watch})"
        )
