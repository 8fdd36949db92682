"""Keeps a build's tables in shape, between slices and in the job itself: a table has one writer (laws 3 and 11).

Small files are joined and the log is checkpointed; the frontier is published again at the new versions; the floor is put,
and only then the leases are listed and what nobody needs is deleted: by file list, never by age. What is kept afterwards is
the newest version of each table, those that a lease pins, and those of kept frontiers; one whose time is over is taken away
before the leases are listed. Read next: kappa/state/lease.py for the reader's half, kappa/state/kept.py for looking back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from kappa.engine.write.commit import TableWriter
from kappa.engine.write.publisher import Publisher
from kappa.state.frontier import Frontiers
from kappa.state.kept import Kept, ensure_past_gone, kept_of, past
from kappa.state.lease import Lease, live_leases, put_floor
from kappa.state.store import Store
from kappa.tables.delta import StoredTable, delete_unneeded, ensure_checkpointed

# Files of this size are left alone: a table of a gigabyte is some thirty of them, and what is written again to join small
# ones stays within what a second can write.
_TARGET_BYTES = 32 * 1024 * 1024
# So many small files are worth joining: each costs every query about a millisecond.
_MANY = 8
# A log so long is worth a checkpoint: opening the table reads it all.
_LONG_LOG = 20


class Maintenance:
    """The upkeep of one build's tables."""

    def __init__(
        self,
        store: Store,
        build: str,
        writers: Sequence[TableWriter],
        publisher: Publisher,
        *,
        seconds: float,
        keep_seconds: float = 3600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`seconds` lie at least between two runs; `keep_seconds`: see kappa/state/kept.py; `clock` gives seconds since 1970, as leases have them."""
        self._store = store
        self._build = build
        self._writers = writers
        self._publisher = publisher
        self._seconds = seconds
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._last = clock()
        # By the names of tables and their recent ones: the newest version that has a checkpoint, and what pinned versions consist of.
        self._checkpoints: dict[str, int] = {}
        self._listed: dict[str, dict[int, tuple[str, ...]]] = {}
        # What was there after the last run: nothing new and no lease then means nothing to do now.
        self._settled = (0, 0)

    def run_if_due(self) -> bool:
        """Runs when it is time and something is there to do, and answers whether it ran.

        It waits while a hold keeps the frontier still, and while tables have folded a slice that is not published: a job that
        was killed in between has left them so.
        """
        recent = [writer.recent for writer in self._writers if writer.recent is not None]
        if self._publisher.is_held() or (
            self._clock() - self._last < self._seconds
            and not any(each.wants_upkeep for each in recent)
        ):
            return False
        leases = len(self._store.names("leases"))
        waits = any(each.holds for each in recent)
        if (
            self._settled == (self._publisher.newest.number, 0)
            and leases == 0
            and not waits
            and not self._has_past()
        ):
            return False
        # Their slice is folded again first: at those versions the frontier would show rows behind its offsets, or half a slice.
        if self._are_ahead():
            return False
        self.run()
        self._settled = (self._publisher.newest.number, leases)
        return True

    def run(self) -> None:
        """Brings all tables of the build into shape. No slice may be committed meanwhile; what is being drained waits for the next time."""
        newest = self._publisher.newest
        for writer in self._writers:
            if writer.recent is not None:
                writer.recent.begin_upkeep()
            for name, stored in writer.at_rest():
                self._ensure_compact(name, stored)
        versions = {
            name: version for writer in self._writers for name, version in writer.versions().items()
        }
        if dict(newest.versions) != versions:
            newest = self._publisher.republish(versions)
        put_floor(self._store, self._build, newest.number)
        kept = ensure_past_gone(self._store, self._build, self._clock(), self._keep_seconds)
        leases = live_leases(self._store, self._clock())
        for name, stored in (each for writer in self._writers for each in writer.at_rest()):
            in_history, listed = kept_versions(kept, name), self._listed.setdefault(name, {})
            delete_unneeded(
                stored.path,
                stored.version,
                pinned_versions(leases, self._build, name) | in_history,
                listed=listed,
            )
            # What it was listed from goes with the next run.
            for version in sorted(in_history & listed.keys()):
                ensure_checkpointed(stored.path, version)
            # What the handle has read of the log may be gone now.
            stored.reopen()
        Frontiers(self._store, self._build).delete_below(newest.number)
        self._last = self._clock()

    def _are_ahead(self) -> bool:
        newest = self._publisher.newest
        return any(
            (mark.leg, mark.slice) != (newest.leg, newest.slice)
            for mark in (writer.mark() for writer in self._writers)
        )

    def _has_past(self) -> bool:
        going, told = past(kept_of(self._store, self._build), self._clock(), self._keep_seconds)
        return bool(going or told)

    def _ensure_compact(self, name: str, stored: StoredTable) -> None:
        if wants_joining(stored.file_sizes()):
            stored.compact(stored.mark(), target_bytes=_TARGET_BYTES)
        if stored.version - self._checkpoints.get(name, 0) >= _LONG_LOG:
            stored.checkpoint()
            self._checkpoints[name] = stored.version


def wants_joining(sizes: Iterable[int]) -> bool:
    """True where a table has many files below the target size. Pure."""
    return sum(size < _TARGET_BYTES for size in sizes) >= _MANY


def pinned_versions(leases: Iterable[Lease], build: str, table: str) -> frozenset[int]:
    """The versions of one table that leases pin. Pure."""
    return frozenset(
        lease.pins[build].versions[table]
        for lease in leases
        if build in lease.pins and table in lease.pins[build].versions
    )


def kept_versions(kept: Iterable[Kept], table: str) -> frozenset[int]:
    """The versions of one table that kept frontiers pin. Pure."""
    return frozenset(
        each.frontier.versions[table] for each in kept if table in each.frontier.versions
    )
