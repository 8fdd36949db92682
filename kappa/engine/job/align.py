"""The alignment of a candidate with a frontier of the live build.

The frontier is pinned by a lease first. The slices that lead to the frontier are written down as a
leg and folded, and the result is put as an alignment (kappa/state/alignment.py). The live job is
not touched, and continues. A candidate that is past the live build in a partition waits until the
live build has caught up. If the lease has ended by then, a newer frontier becomes the aim.
engine/job/catch_up.py folds these legs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec.structs import replace

from kappa.base.errors import KappaError
from kappa.engine.job.legs import Aim
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
from kappa.state.store import Store

# Each further look needs a collection that overtook the last look; a build's collections are many
# seconds apart.
_LOOKS = 20


def live_beside(store: Store, birth: Birth) -> str | None:
    """Returns the build that serves the pipeline of a build.

    Returns None if no other build serves: none at all, or a build with the tables of this build.
    """
    _, record = Journal(store).last_served()
    build = (
        record.event.serving.get(birth.pipeline)
        if record is not None and isinstance(record.event, GenerationMade)
        else None
    )
    return None if build is None or folded_by(store, build) == birth.build else build


class Aligner:
    """The aligner of a candidate with the live build of the pipeline."""

    def __init__(
        self,
        store: Store,
        birth: Birth,
        *,
        lease_seconds: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Opens the alignments.

        `clock` gives seconds since 1970, as leases do.
        """
        self._store = store
        self._birth = birth
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._alignments = Alignments(store, birth.build)

    def live(self) -> tuple[Frontier, frozenset[str]] | None:
        """Returns the live build's newest frontier, and common topics.

        Both builds read these topics. Returns None if there is nothing to align with.
        """
        build = live_beside(self._store, self._birth)
        if build is None:
            return None
        topics = comparable_now(self._store, self._birth, read_birth(self._store, build))
        frontier = Frontiers(self._store, build).newest()
        return None if frontier is None or not topics else (frontier, topics)

    def take_aim(self) -> Aim | None:
        """Pins the newest frontier of the live build, or returns None."""
        for _ in range(_LOOKS):
            found = self.live()
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

    def keep(self, aim: Aim) -> bool:
        """Renews the lease on the aim.

        Returns False if the aim may be gone already.
        """
        return ensure_renewed(
            self._store, aim.lease, now=self._clock(), seconds=self._lease_seconds
        )

    def aligned_with(self, aim: Aim) -> bool:
        """Returns True if the alignment with this aim is put."""
        last = self._alignments.last()
        return last is not None and last.lease == aim.lease

    def put(self, aim: Aim, candidate: Frontier) -> bool:
        """Puts the alignment of a candidate that has reached the aim.

        Pins the candidate too. Returns False if the aim is gone: a new aim must be taken.
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
    """Returns the candidate's offsets where it is past the live build. Pure."""
    return Offsets.of_partitions(
        {
            (topic, partition): offset
            for topic, partition, offset in done.only(topics).items()
            if offset > live.at(topic, partition)
        }
    )
