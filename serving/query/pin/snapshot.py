"""The snapshot of a moment, and the pinned snapshot, whose files a lease keeps."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kappa.base.errors import Conflict, KappaError
from kappa.serving.access.roles import TableGrant
from kappa.serving.query.pin.moments import log_time, time_text
from kappa.state.build import Birth
from kappa.state.frontier import Frontier
from kappa.state.journal.journal import process_user
from kappa.state.lease import Lease, Pin, ensure_lease, ensure_released, is_put, read_lease
from kappa.state.store import Store


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The serving builds at one moment, as readers see them.

    A snapshot contains the generation, and the build, the frontier and the birth certificate of
    each pipeline. `serving` maps a pipeline to its build; `frontiers` and `births` are by build.
    """

    generation: int
    serving: Mapping[str, str]
    frontiers: Mapping[str, Frontier]
    births: Mapping[str, Birth]


def readable_snapshot(snapshot: Snapshot, readable: TableGrant) -> Snapshot:
    """Narrows a snapshot to the pipelines and table versions that a reader may read.

    The result is only for describing the snapshot in an answer; no tables are read from the result.
    """
    if readable.is_all:
        return snapshot
    serving, frontiers = dict[str, str](), dict[str, Frontier]()
    for pipeline, build in snapshot.serving.items():
        birth, frontier = snapshot.births[build], snapshot.frontiers[build]
        names = (*(table.name for table in birth.tables), *birth.views)
        if any(readable.allows(pipeline, name) for name in names):
            serving[pipeline] = build
            versions = {
                name: version
                for name, version in frontier.versions.items()
                if readable.allows(pipeline, name.partition(".")[0])
            }
            frontiers[build] = replace(frontier, versions=versions)
    births = {build: snapshot.births[build] for build in serving.values()}
    return Snapshot(snapshot.generation, serving, frontiers, births)


def head_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """Describes the snapshot of an answer, for the command line and HTTP.

    The description contains the generation, and the build, offsets and versions of each pipeline.
    `shown_at` is the time since which readers have seen the frontier. `log_time` is the latest log
    time up to the frontier.
    """
    frontiers = snapshot.frontiers
    builds = {
        pipeline: {
            "build": build,
            "shown_at": frontiers[build].published_at,
            "log_time": None if (at := log_time(frontiers[build])) is None else time_text(at),
            "offsets": frontiers[build].offsets.plain(),
            "versions": frontiers[build].versions,
        }
        for pipeline, build in snapshot.serving.items()
    }
    return {"generation": snapshot.generation, "builds": builds}


class PinnedSnapshot:
    """A snapshot together with a lease that keeps the files of its table versions.

    A thread renews the lease until `close` is called.
    """

    def __init__(
        self,
        store: Store,
        snapshot: Snapshot,
        lease: Lease,
        *,
        lease_seconds: float,
        clock: Callable[[], float],
        overtaken: Callable[[], bool] | None = None,
    ) -> None:
        """Starts the thread that renews `lease`, which the caller has written to the root.

        If the caller could not write the lease, the caller passes `overtaken`, and no thread is
        started. `overtaken` returns True if files of the table versions may have been deleted.
        """
        self.snapshot = snapshot
        self._overtaken = overtaken
        self._store = store
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._closed = threading.Event()
        self._renewer = threading.Thread(
            target=self._keep_renewing, name=f"lease {lease.id}", daemon=True
        )
        # Whether a lease keeps the versions, as far as is known.
        self.is_leased = overtaken is None
        if overtaken is None:
            self._renewer.start()

    def is_as_good_as_new(self, lease_seconds: float) -> bool:
        """Returns True if the lease lasts `lease_seconds`, and over half of its time is left."""
        return (
            self.is_leased
            and self._lease_seconds == lease_seconds
            and self._clock() < self._lease.expires_at - lease_seconds / 2
        )

    @property
    def lease(self) -> Lease:
        """Returns the lease as it was last renewed."""
        return self._lease

    def confirm_kept(self) -> None:
        """Raises Conflict unless the files of the pinned table versions were kept until now.

        Call this method before returning an answer that was read from the files. If Conflict is
        raised, discard the answer, and read again from a new snapshot.
        """
        if not self.is_kept():
            raise Conflict(
                "the lease on what was being read has ended",
                hint="ask again; a longer rollout.lease_seconds in kappa.toml helps a reader that "
                "pauses for long",
            )

    def is_kept(self) -> bool:
        """Returns True if the files of the pinned table versions were kept until now."""
        if self._overtaken is not None:
            return not self._overtaken()
        self.is_leased = self._clock() < self._lease.expires_at and is_put(
            self._store, self._lease.id
        )
        return self.is_leased

    def close(self) -> None:
        """Stops renewing the lease, and releases the lease."""
        if self._overtaken is None:
            self._closed.set()
            self._renewer.join()
            ensure_released(self._store, self._lease.id)

    def _keep_renewing(self) -> None:
        while not self._closed.wait(self._lease_seconds / 3):
            # The frontiers of an ended lease may be collected already: only a living lease is
            # extended. A lease that was taken away has ended, whatever the clock shows.
            if self._clock() >= self._lease.expires_at:
                self.is_leased = False
                return
            longer = replace(self._lease, expires_at=self._clock() + self._lease_seconds)
            try:
                if read_lease(self._store, self._lease.id) is None:
                    self.is_leased = False
                    return
                ensure_lease(self._store, longer)
            except KappaError:
                # The lease runs out, and `confirm` raises in the reader's thread.
                continue
            self._lease = longer


def lease_on(snapshot: Snapshot, expires_at: float) -> Lease:
    """Creates a lease on the frontiers of a snapshot. The caller must write the lease.

    `expires_at` is in seconds since 1970. The lease names the builds to which the tables belong.
    """
    pins = {
        frontier.build: Pin(frontier.number, frontier.versions)
        for frontier in snapshot.frontiers.values()
    }
    return Lease(pid=os.getpid(), by=process_user(), expires_at=expires_at, pins=pins)
