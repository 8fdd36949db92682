"""The position of a sink: up to where its topic has the changes of its table, and the lease on it.

A follower's own leases are short: there is one for each change set. A sink has one lease, which
moves with the sink's position. So a courier that was away for hours goes on by change sets.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from msgspec.structs import replace

from kappa.base.errors import UsageError
from kappa.base.failpoint import failpoint
from kappa.declare.sink import SinkBirth
from kappa.serving.outlets.changes.cursor import Cursor
from kappa.serving.outlets.changes.point import lease_id
from kappa.state.build import is_born, read_birth
from kappa.state.journal.journal import whoami
from kappa.state.lease import ensure_lease, ensure_renewed, lease_name, read_lease
from kappa.state.store import Store

_PART_DIGITS = 16


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The cursor of the last change set that was sent, and which part of which table it was of.

    `topic_id` is the topic's: one that was made anew has another, and no rows. `writer` is the
    adopted root that has sent it, or "".
    """

    cursor: Cursor
    part: str
    topic_id: str
    writer: str = ""

    def __str__(self) -> str:
        document = {"cursor": str(self.cursor), "part": self.part, "topic": self.topic_id}
        return json.dumps({**document, "writer": self.writer} if self.writer else document)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Reads a position. Returns None if the text is none: then the topic is compared."""
        try:
            found = json.loads(text or "")
            return cls(
                *(Cursor.parse(found["cursor"]), str(found["part"]), str(found["topic"])),
                str(found.get("writer", "")),
            )
        except (ValueError, KeyError, TypeError, RecursionError, UsageError):
            return None


def part_of(sink: SinkBirth, keys: tuple[str, ...]) -> str:
    """Returns a hash of what decides the records of a row, beside the row."""
    # A position of JSON is that of a Kappa that knew no other format.
    form = [] if sink.format is None else [sink.format]
    decides = json.dumps([sink.of, sink.columns, sink.where, keys, *form])
    return hashlib.sha256(decides.encode()).hexdigest()[:_PART_DIGITS]


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
