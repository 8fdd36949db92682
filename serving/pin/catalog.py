"""The catalog: which build answers for which pipeline, and up to where. A snapshot of it is pinned once per query.

Pinning reads the journal's last Served, then the frontiers; puts a lease on them; then reads the floors and the journal
again. A newer Served or a frontier below its floor means: start over. With the hold of a promote this makes that no
reader ever goes back (tests/replay/rollout/test_promote_model.py checks all interleavings); without the second look, one does.
What was served in the past is pinned likewise, and its second look is at whether it is kept still.
It never reads a table's data. Read next: kappa/state/lease.py, past.py, query.py.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from kappa.base.errors import Conflict, Damaged, KappaError
from kappa.journal.journal import Journal, Retired, Served, whoami
from kappa.journal.view import JournalView
from kappa.state.build import Birth, read_birth
from kappa.state.frontier import Frontier, Frontiers
from kappa.state.kept import kept_of, read_kept
from kappa.state.lease import Lease, Pin, ensure_lease, ensure_released, floor, read_lease
from kappa.state.store import Store
from serving.pin.at_log import AtEventTime, AtOffsets, Past, frontiers_at
from serving.pin.past import Moment, available, frontier_shown, generation_at, generations, not_kept

# Each start-over needs another promote, or a collection that overtakes the reader: seconds lie between two of either.
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What readers see at one moment: the generation, the build of each pipeline, and each build's frontier and birth."""

    generation: int
    serving: Mapping[str, str]
    frontiers: Mapping[str, Frontier]
    births: Mapping[str, Birth]

    def build_of(self, pipeline: str) -> str:
        """The build that answers for a pipeline; KeyError where none does."""
        return self.serving[pipeline]


class PinnedSnapshot:
    """A snapshot whose versions are kept until it is closed, by a lease that renews itself."""

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        lease: Lease,
        *,
        lease_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """Made by `pin`, `pin_build` and `pin_pair`, which put the lease."""
        self.snapshot = snapshot
        self._store = store
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._closed = threading.Event()
        self._renewer = threading.Thread(
            target=self._keep_renewing, name=f"lease {lease.id}", daemon=True
        )
        self._renewer.start()

    @property
    def lease(self) -> Lease:
        """The lease as it was put last."""
        return self._lease

    def confirm(self) -> None:
        """Says that the pinned versions were kept until now; call it before an answer read from them is given out.

        Raises Conflict where they may not have been: the answer is to be thrown away, and read again from a new snapshot.
        """
        if not self.holds():
            raise Conflict(
                "the lease on what was being read has ended",
                hint="ask again; a longer rollout.lease_seconds in kappa.toml helps a reader that stands still for long",
            )

    def holds(self) -> bool:
        """True where the pinned versions were kept until now."""
        return (
            self._clock() < self._lease.expires_at
            and read_lease(self._store, self._lease.id) is not None
        )

    def close(self) -> None:
        """Gives the lease up."""
        self._closed.set()
        self._renewer.join()
        ensure_released(self._store, self._lease.id)

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._lease_seconds / 3):
            # One that has ended may have been collected already: only a living lease is made longer.
            if self._clock() >= self._lease.expires_at:
                return
            longer = replace(self._lease, expires_at=self._clock() + self._lease_seconds)
            try:
                ensure_lease(self._store, longer)
            except KappaError:
                # Nobody hears an error here; the lease runs out, and `confirm` says so to the one who reads.
                continue
            self._lease = longer


@contextmanager
def pin(
    store: Store, *, lease_seconds: float, clock: Callable[[], float] = time.time
) -> Iterator[PinnedSnapshot]:
    """Pins what is served now. Nothing serving at all is a snapshot too, of generation 0."""
    with closing(
        _pinned(store, lambda: _look(store), lease_seconds=lease_seconds, clock=clock)
    ) as pinned:
        yield pinned


@contextmanager
def pin_build(
    store: Store, build: str, *, lease_seconds: float, clock: Callable[[], float] = time.time
) -> Iterator[PinnedSnapshot]:
    """Pins one build at its newest frontier as if it served alone: how a candidate is verified. Its generation is 0."""
    with closing(
        _pinned(store, lambda: _look_at(store, build), lease_seconds=lease_seconds, clock=clock)
    ) as pinned:
        yield pinned


@contextmanager
def pin_frontier(
    store: Store,
    frontier: Frontier,
    *,
    lease_seconds: float,
    clock: Callable[[], float] = time.time,
) -> Iterator[PinnedSnapshot]:
    """Pins a build at one of its frontiers, as if it served alone. Raises Conflict where that is not kept any more."""
    birth = read_birth(store, frontier.build)
    snapshot = Snapshot(
        0, {birth.pipeline: frontier.build}, {frontier.build: frontier}, {frontier.build: birth}
    )

    def gone() -> bool:
        if _collected(store, frontier):
            raise Conflict(
                f"what build {frontier.build} held at {frontier.offsets} is not kept any more",
                hint="ask again: a later one is",
            )
        return False

    with closing(
        _pinned(store, lambda: _Look(snapshot, gone), lease_seconds=lease_seconds, clock=clock)
    ) as pinned:
        yield pinned


@contextmanager
def pin_at(
    store: Store, when: Past, *, lease_seconds: float, clock: Callable[[], float] = time.time
) -> Iterator[PinnedSnapshot]:
    """Pins what was served at a time, or what a generation showed last; or what the builds that serve now held at offsets, or at a time of the log.

    Raises UsageError where nothing ever was, and KappaError, which names the times that are there, where it is not kept any more.
    """
    with closing(
        _pinned(
            store,
            lambda: (
                _look_at_log(store, when)
                if isinstance(when, AtOffsets | AtEventTime)
                else _look_back(store, when, clock())
            ),
            lease_seconds=lease_seconds,
            clock=clock,
        )
    ) as pinned:
        yield pinned


@contextmanager
def pin_pair(
    store: Store,
    before: Frontier,
    after: Frontier,
    *,
    alignment_lease: str | None,
    lease_seconds: float,
    clock: Callable[[], float] = time.time,
) -> Iterator[PinnedSnapshot]:
    """Pins a frontier each of two builds of one pipeline, to compare them; the snapshot serves `after`, as if it served alone.

    They are kept already by the lease of an alignment, or, where that is None, by the floors: a lease of its own is put
    first, and only then it is looked whether they still are (law 11). Raises Conflict where they are not.
    """
    frontiers = {each.build: each for each in (before, after)}
    births = {build: read_birth(store, build) for build in frontiers}
    snapshot = Snapshot(0, {births[after.build].pipeline: after.build}, frontiers, births)
    lease = _lease(snapshot, clock() + lease_seconds)
    ensure_lease(store, lease)
    try:
        if alignment_lease is not None:
            theirs = read_lease(store, alignment_lease)
            # One that is alive now was so when any collection listed the leases before ours was there.
            kept = theirs is not None and clock() < theirs.expires_at
        else:
            kept = not _let_go(store, snapshot)
    except BaseException:
        ensure_released(store, lease.id)
        raise
    if not kept:
        ensure_released(store, lease.id)
        raise Conflict(
            f"what build {after.build} and build {before.build} held at {after.offsets} is not kept any more",
            hint=f"to have them aligned and compared again: kappa verify {births[after.build].pipeline}",
        )
    with closing(
        PinnedSnapshot(store, snapshot, lease, lease_seconds=lease_seconds, clock=clock)
    ) as pinned:
        yield pinned


@dataclass(frozen=True, slots=True)
class _Look:
    """What was seen, and how to see whether it still holds for a reader who leases it now."""

    snapshot: Snapshot
    overtaken: Callable[[], bool]


def _pinned(
    store: Store, look: Callable[[], _Look], *, lease_seconds: float, clock: Callable[[], float]
) -> PinnedSnapshot:
    for _ in range(_ATTEMPTS):
        seen = look()
        lease = _lease(seen.snapshot, clock() + lease_seconds)
        ensure_lease(store, lease)
        try:
            if not seen.overtaken():
                return PinnedSnapshot(
                    store, seen.snapshot, lease, lease_seconds=lease_seconds, clock=clock
                )
        except BaseException:
            ensure_released(store, lease.id)
            raise
        ensure_released(store, lease.id)
    raise Conflict(
        f"what is served changed {_ATTEMPTS} times while it was being looked at",
        hint="see kappa history for who keeps switching it; then ask again",
    )


def _lease(snapshot: Snapshot, expires_at: float) -> Lease:
    pins = {
        build: Pin(frontier.number, frontier.versions)
        for build, frontier in snapshot.frontiers.items()
    }
    return Lease(pid=os.getpid(), by=whoami(), expires_at=expires_at, pins=pins)


def _look(store: Store) -> _Look:
    journal = Journal(store)
    last, record = JournalView(store).last_served()
    # The isinstance is for the type only: last_served gives no other record.
    served = record.event if record is not None and isinstance(record.event, Served) else None
    serving = {} if served is None else dict(served.serving)

    def switched() -> bool:
        return any(isinstance(each.event, Served) for each in journal.after(last))

    try:
        frontiers = {build: newest_frontier(store, build) for build in serving.values()}
        births = {build: read_birth(store, build) for build in serving.values()}
    except Damaged:
        # A build that no longer serves may be gone by now; only of one that still does is it damage.
        if not switched():
            raise
        return _look(store)
    snapshot = Snapshot(0 if served is None else served.generation, serving, frontiers, births)
    return _Look(snapshot, lambda: _let_go(store, snapshot) or switched())


def _look_at(store: Store, build: str) -> _Look:
    birth = read_birth(store, build)
    snapshot = Snapshot(
        0, {birth.pipeline: build}, {build: newest_frontier(store, build)}, {build: birth}
    )
    return _Look(snapshot, lambda: _let_go(store, snapshot))


def _look_back(store: Store, when: Moment, now: float) -> _Look:
    journal = Journal(store)
    records = JournalView(store).records()
    known = generations(records)
    generation = generation_at(when, known, datetime.fromtimestamp(now, UTC))
    builds = {build for each in known for build in each.serving.values()} - {
        record.event.build for record in records if isinstance(record.event, Retired)
    }
    # The newest before what is kept: one that is published in between is kept, if at all, before the next one is.
    newest = {build: Frontiers(store, build).newest() for build in builds}
    kept = {build: kept_of(store, build) for build in builds}
    shown = {
        build: frontier_shown(
            when, pipeline, generation, known, kept.get(build, ()), newest.get(build)
        )
        for pipeline, build in generation.serving.items()
    }
    frontiers = {build: frontier for build, frontier in shown.items() if frontier is not None}
    if len(frontiers) < len(shown):
        raise not_kept(when, generation, tuple(available(known, kept, newest)))

    snapshot = Snapshot(
        generation.number,
        dict(generation.serving),
        frontiers,
        {build: read_birth(store, build) for build in frontiers},
    )
    return _Look(snapshot, lambda: _gone(store, journal, len(records), frontiers))


def _look_at_log(store: Store, when: AtOffsets | AtEventTime) -> _Look:
    journal = Journal(store)
    last, record = JournalView(store).last_served()
    # The isinstance is for the type only: last_served gives no other record.
    served = record.event if record is not None and isinstance(record.event, Served) else None
    serving = {} if served is None else served.serving
    try:
        # The newest before what is kept, as above.
        newest = {build: newest_frontier(store, build) for build in serving.values()}
        frontiers = frontiers_at(
            when, serving, {build: kept_of(store, build) for build in serving.values()}, newest
        )
        births = {build: read_birth(store, build) for build in frontiers}
    except Damaged:
        # A build that no longer serves may be gone by now; only of one that still does is it damage.
        if not _gone(store, journal, last, {}):
            raise
        return _look_at_log(store, when)
    snapshot = Snapshot(
        0 if served is None else served.generation,
        {pipeline: build for pipeline, build in serving.items() if build in frontiers},
        frontiers,
        births,
    )
    return _Look(snapshot, lambda: _gone(store, journal, last, frontiers))


def _gone(store: Store, journal: Journal, seen: int, frontiers: Mapping[str, Frontier]) -> bool:
    """True where what was chosen of the past may not be the answer, or not be there, any more."""
    # What is newest may be past its switch by now; and a build is retired by a record first, before anything is deleted.
    moved = any(isinstance(each.event, Served | Retired) for each in journal.after(seen))
    return moved or any(_collected(store, frontier) for frontier in frontiers.values())


def _collected(store: Store, frontier: Frontier) -> bool:
    """True where nothing but a lease keeps a build's frontier any more."""
    return (
        frontier.number < floor(store, frontier.build)
        and read_kept(store, frontier.build, frontier.number) is None
    )


def _let_go(store: Store, snapshot: Snapshot) -> bool:
    return any(
        frontier.number < floor(store, build) for build, frontier in snapshot.frontiers.items()
    )


def newest_frontier(store: Store, build: str) -> Frontier:
    """What readers may see of a build now. Raises Damaged where it has published nothing."""
    newest = Frontiers(store, build).newest()
    if newest is None:
        raise Damaged(
            f"build {build} has no frontier", hint=f"see what its job says: kappa logs {build}"
        )
    return newest
