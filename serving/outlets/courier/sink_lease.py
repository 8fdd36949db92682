"""The lease of a sink: what its position needs is kept while no courier runs.

A follower's own leases are short: there is one for each change set. A sink has one, which moves
with its position, so a courier that was away for hours goes on by change sets.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from msgspec.structs import replace

from kappa.base.failpoint import failpoint
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.point import lease_id
from kappa.state.build import is_born, read_birth
from kappa.state.journal.journal import whoami
from kappa.state.lease import ensure_lease, ensure_renewed, lease_name, read_lease
from kappa.state.store import Store

_DIGITS = 12
_RESUMED_SECONDS = 60.0


class SinkLease:
    """The lease on the frontier at which a sink's topic is."""

    def __init__(
        self, store: Store, topic: str, *, keep_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._prefix = f"sink-{_digest(topic)}-"
        self._keep_seconds = keep_seconds
        self._clock = clock

    def resume(self, cursor: Cursor) -> None:
        """Lets a follower find what a cursor needs, if this lease still keeps it."""
        lease = read_lease(self._store, self._id(cursor))
        now = self._clock()
        if lease is None or lease.frontier is None or now >= lease.expires_at:
            return
        if is_born(self._store, cursor.build):
            followers = lease_id(read_birth(self._store, cursor.build), cursor.frontier)
            there = read_lease(self._store, followers)
            if there is None or now >= there.expires_at:
                again = replace(lease, id=followers, expires_at=now + _RESUMED_SECONDS)
                ensure_lease(self._store, again)

    def keep(self, cursor: Cursor) -> None:
        """Keeps what a cursor needs, which its follower keeps now. Earlier ones are kept too."""
        found = read_lease(
            self._store, lease_id(read_birth(self._store, cursor.build), cursor.frontier)
        )
        if found is None or found.frontier is None:
            return
        own = replace(
            found,
            id=self._id(cursor),
            pid=os.getpid(),
            by=whoami(),
            expires_at=self._clock() + self._keep_seconds,
        )
        ensure_lease(self._store, own)

    def renew(self, cursor: Cursor) -> None:
        """Makes the lease on a cursor longer, if it is due."""
        ensure_renewed(self._store, self._id(cursor), now=self._clock(), seconds=self._keep_seconds)

    def release(self, cursor: Cursor) -> None:
        """Lets go of what a cursor needed: the sink has gone on from there."""
        failpoint("sink.before_release")
        self._store.delete(lease_name(self._id(cursor)))
        failpoint("sink.after_release")

    def release_others(self, cursor: Cursor | None) -> None:
        """Lets go of what other positions of the sink needed, such as one of a dead courier."""
        kept = None if cursor is None else lease_name(self._id(cursor))
        for name in self._store.names("leases"):
            if name.startswith(lease_name(self._prefix).removesuffix(".json")) and name != kept:
                self._store.delete(name)

    def _id(self, cursor: Cursor) -> str:
        return f"{self._prefix}{_digest(str(cursor))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
