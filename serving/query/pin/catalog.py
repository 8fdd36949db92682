"""Pins the serving build of each pipeline at one frontier of the build.

Each query pins once. To pin, a reader starts from the last generation that this process knows of,
and reads the frontiers; this is the first look. The reader writes a lease on the frontiers, and
then reads the floors and the journal; this is the second look. If the reader finds a newer
generation, or a frontier below its floor, the reader starts over. Together with the hold of a
promote, this ensures that no reader goes back to an older state. Without the second look, a reader
could go back (tests/replay/rollout/test_promote_model.py tries all interleavings). A moment of the
past is pinned in the same way; in that case, the second look checks that the frontiers are still
kept. This module reads no data of tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress

from kappa.base.errors import Conflict, KappaError
from kappa.serving.query.pin.moments import AtEventTime, AtOffsets, Past
from kappa.serving.query.pin.shared_pins import leave_pin, share_pin, take_pin
from kappa.serving.query.pin.snapshot import PinnedSnapshot, Snapshot, lease_on
from kappa.serving.query.pin.snapshot_reads import (
    LookResult,
    is_collected,
    is_let_go,
    look_at_build,
    look_at_log,
    look_back,
    look_now,
)
from kappa.state.build import read_birth
from kappa.state.files.address import ask_together
from kappa.state.frontier import Frontier
from kappa.state.lease import ensure_lease, ensure_released, read_lease
from kappa.state.store import Store

# Each start-over needs another promote, or a collection that overtakes the reader: seconds apart.
_ATTEMPTS = 100


@contextmanager
def pin_served(
    store: Store,
    *,
    lease_seconds: float,
    clock: Callable[[], float] = time.time,
    beside: Callable[[Snapshot], object] | None = None,
    shared: bool = False,
) -> Iterator[PinnedSnapshot]:
    """Pins the snapshot that is served now, for the duration of the block.

    If nothing is served, the snapshot has generation 0. If the root is in a bucket, the function
    `beside` is called with the snapshot, in parallel with the check that the snapshot is still
    valid; `beside` can read objects that the caller will need. If `shared` is True or the root is
    in a bucket, several readers of this process use the same lease until the frontier moves.
    """
    shared |= not store.is_on_disk
    common = take_pin(store, lease_seconds) if shared else None
    pinned = _pin_snapshot(
        store,
        lambda leased: look_now(store, leased),
        lease_seconds=lease_seconds,
        clock=clock,
        common=common,
        beside=beside,
    )
    if shared and pinned is not common:
        share_pin(store, pinned)
    try:
        yield pinned
    except KappaError:
        leave_pin(store, pinned, lingers=shared)
        raise
    except BaseException:
        leave_pin(store, pinned, lingers=False)
        raise
    leave_pin(store, pinned, lingers=shared)


@contextmanager
def pin_build(store: Store, build: str, *, lease_seconds: float) -> Iterator[PinnedSnapshot]:
    """Pins a build at its newest frontier.

    The snapshot contains only this build, and has generation 0.
    """
    taken = _pin_snapshot(
        store, lambda _leased: look_at_build(store, build), lease_seconds=lease_seconds
    )
    with closing(taken) as pinned:
        yield pinned


@contextmanager
def pin_frontier(
    store: Store, frontier: Frontier, *, lease_seconds: float
) -> Iterator[PinnedSnapshot]:
    """Pins a build at a given frontier.

    The snapshot contains only this build, and has generation 0. Raises Conflict if the frontier is
    no longer kept.
    """
    birth = read_birth(store, frontier.build)
    snapshot = Snapshot(
        0, {birth.pipeline: frontier.build}, {frontier.build: frontier}, {frontier.build: birth}
    )

    def ensure_still_kept() -> bool:
        if is_collected(store, frontier):
            raise Conflict(
                f"what build {frontier.build} held at {frontier.offsets} is not kept any more",
                hint="ask again: a later one is",
            )
        return False

    with closing(
        _pin_snapshot(
            store,
            lambda _leased: LookResult(snapshot, ensure_still_kept),
            lease_seconds=lease_seconds,
        )
    ) as pinned:
        yield pinned


def pin_moment(
    store: Store, when: Past | None, *, lease_seconds: float
) -> AbstractContextManager[PinnedSnapshot]:
    """Pins the snapshot that is served now, or a moment of the past.

    `when` is None for now. Raises the errors of `pin_at`.
    """
    if when is None:
        return pin_served(store, lease_seconds=lease_seconds)
    return pin_at(store, when, lease_seconds=lease_seconds)


@contextmanager
def pin_at(
    store: Store, when: Past, *, lease_seconds: float, clock: Callable[[], float] = time.time
) -> Iterator[PinnedSnapshot]:
    """Pins a moment of the past.

    If `when` is a time or a generation, the snapshot contains the builds that served then. If
    `when` is offsets or a time of the log, the snapshot contains the builds that serve now, at
    those offsets or at that time. Raises UsageError if `when` names no moment, for example an
    unknown generation, or if nothing was served. Raises KappaError if the frontiers of the moment
    are not kept; the error names the moments that are kept.
    """
    with closing(
        _pin_snapshot(
            store,
            lambda _leased: (
                look_at_log(store, when)
                if isinstance(when, AtOffsets | AtEventTime)
                else look_back(store, when, clock())
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
    """Pins one frontier of each of two builds, so that the builds can be compared.

    Both builds belong to the same pipeline. The snapshot serves `after`, as if that build served
    alone. The alignment's lease, whose id is `alignment_lease`, keeps both frontiers; if the id is
    None, the floors keep both. This function first writes its own lease, and then checks that both
    frontiers are still kept, so that garbage collection cannot delete their files meanwhile. Raises
    Conflict if a frontier is not kept.
    """
    frontiers = {each.build: each for each in (before, after)}
    births = {build: read_birth(store, build) for build in frontiers}
    snapshot = Snapshot(0, {births[after.build].pipeline: after.build}, frontiers, births)
    lease = lease_on(snapshot, clock() + lease_seconds)
    ensure_lease(store, lease)
    try:
        if alignment_lease is not None:
            theirs = read_lease(store, alignment_lease)
            # A lease that lives now also lived when any collection listed the leases before ours.
            kept = theirs is not None and clock() < theirs.expires_at
        else:
            kept = not is_let_go(store, snapshot)
    except BaseException:
        ensure_released(store, lease.id)
        raise
    if not kept:
        ensure_released(store, lease.id)
        raise Conflict(
            f"what build {after.build} and build {before.build} held at {after.offsets} "
            "is not kept any more",
            hint="to have them aligned and compared again: "
            f"kappa verify {births[after.build].pipeline}",
        )
    with closing(
        PinnedSnapshot(store, snapshot, lease, lease_seconds=lease_seconds, clock=clock)
    ) as pinned:
        yield pinned


def _pin_snapshot(
    store: Store,
    look: Callable[[Snapshot | None], LookResult],
    *,
    lease_seconds: float,
    clock: Callable[[], float] = time.time,
    common: PinnedSnapshot | None = None,
    beside: Callable[[Snapshot], object] | None = None,
) -> PinnedSnapshot:
    """Reads a snapshot, writes a lease on it, and returns the pinned snapshot.

    The function `look` reads the snapshot. `common` is the pinned snapshot that readers of this
    process share, or None; it is returned if `look` reads the same snapshot. After the lease was
    written, the function checks whether the snapshot is still valid, and starts over if it is not.
    Raises Conflict if that happens too often.
    """
    for _ in range(_ATTEMPTS):
        pinned, common = common, None
        try:
            seen = look(None if pinned is None else pinned.snapshot)
            if pinned is not None and pinned.snapshot is not seen.snapshot:
                leave_pin(store, pinned)
                pinned = None
            if pinned is None:
                pinned = _lease_snapshot(store, seen, lease_seconds, clock)
                overtaken = _is_overtaken(store, seen, beside)
            else:
                overtaken = seen.overtaken()
            if not overtaken:
                return pinned
        except BaseException:
            if pinned is not None:
                leave_pin(store, pinned, lingers=False)
            raise
        leave_pin(store, pinned, lingers=False)
    raise Conflict(
        f"what is served changed {_ATTEMPTS} times while it was being looked at",
        hint="see kappa history for who keeps switching it; then ask again",
    )


def _is_overtaken(
    store: Store, seen: LookResult, beside: Callable[[Snapshot], object] | None
) -> bool:
    """Returns True if a snapshot is no longer valid, after its lease was written.

    `seen` contains the snapshot, and the check of its validity. If the root is in a bucket,
    `beside` runs in parallel with the check. If the root is on a disk, `beside` is not run, because
    a disk answers too fast for this to save time.
    """
    if beside is None or store.is_on_disk:
        return seen.overtaken()

    def prepare_beside() -> None:
        # The caller meets the same error when it needs the objects.
        with suppress(Exception):
            beside(seen.snapshot)

    return bool(ask_together(store.url, seen.overtaken, prepare_beside)[0])


def _lease_snapshot(
    store: Store, seen: LookResult, lease_seconds: float, clock: Callable[[], float]
) -> PinnedSnapshot:
    lease = lease_on(seen.snapshot, clock() + lease_seconds)
    try:
        ensure_lease(store, lease)
        overtaken = None
    except KappaError:
        # The disk is full, or may not be written. Nothing is deleted before a floor or a record
        # says so: the answer is right if neither exists by the end of the answer.
        overtaken = seen.overtaken
    return PinnedSnapshot(
        store, seen.snapshot, lease, lease_seconds=lease_seconds, clock=clock, overtaken=overtaken
    )
