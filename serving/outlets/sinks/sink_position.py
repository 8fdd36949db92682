"""The position of a sink, and the lease that keeps the files of this position.

The position is the cursor up to which the topic contains the changes of the table. A follower's own
leases are short, and are replaced with each change set. A sink has a longer lease, which is renewed
for each new position. So a courier that did not run for hours can continue with change sets.
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
from kappa.serving.outlets.changes.table_snapshot import cursor_lease_id
from kappa.state.build import is_born, read_birth
from kappa.state.journal.journal import acting_user
from kappa.state.lease import ensure_lease, ensure_renewed, lease_name, read_lease
from kappa.state.store import Store

_PART_DIGITS = 16
_DIGITS = 12
_RESUMED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """The position of a sink: the cursor of the last change set that was sent.

    `part` is a hash of the settings that determine the sink's records. `topic_id` is the id of the
    topic; a topic that was deleted and created again has another id. `writer` is the name under
    which an adopted root has sent the change set, or "".
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
        """Parses the text of a position.

        Returns None if the text is not a position. In this case, the sink must compare the topic
        with the table.
        """
        try:
            found = json.loads(text or "")
            return cls(
                *(Cursor.parse(found["cursor"]), str(found["part"]), str(found["topic"])),
                str(found.get("writer", "")),
            )
        except (ValueError, KeyError, TypeError, RecursionError, UsageError):
            return None


def hash_of_part(sink: SinkBirth, keys: tuple[str, ...]) -> str:
    """Returns a hash of all settings that determine a sink's records.

    The settings are those of the sink, and the key columns `keys`.
    """
    # A position of JSON is that of a Kappa that knew no other format.
    form = [] if sink.format is None else [sink.format]
    decides = json.dumps([sink.of, sink.columns, sink.where, keys, *form])
    return hashlib.sha256(decides.encode()).hexdigest()[:_PART_DIGITS]


class SinkLease:
    """A sink's lease on the files of the frontier up to which the topic contains the changes."""

    def __init__(
        self, store: Store, topic: str, *, keep_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._prefix = f"sink-{_short_digest(topic)}-"
        self._keep_seconds = keep_seconds
        self._clock = clock

    def resume_cursor(self, cursor: Cursor) -> None:
        """Writes a follower's lease on a cursor, so that a follower can read the cursor's files.

        Does nothing if this sink's own lease no longer keeps the files.
        """
        lease = read_lease(self._store, self._lease_id(cursor))
        now = self._clock()
        if lease is None or lease.frontier is None or now >= lease.expires_at:
            return
        if is_born(self._store, cursor.build):
            followers = cursor_lease_id(read_birth(self._store, cursor.build), cursor.frontier)
            there = read_lease(self._store, followers)
            if there is None or now >= there.expires_at:
                again = replace(lease, id=followers, expires_at=now + _RESUMED_SECONDS)
                ensure_lease(self._store, again)

    def keep_cursor(self, cursor: Cursor) -> None:
        """Writes this sink's own lease on the files of a cursor.

        Does nothing unless the lease of the sink's follower keeps these files now. This sink's
        leases on earlier cursors remain.
        """
        found = read_lease(
            self._store, cursor_lease_id(read_birth(self._store, cursor.build), cursor.frontier)
        )
        if found is None or found.frontier is None:
            return
        own = replace(
            found,
            id=self._lease_id(cursor),
            pid=os.getpid(),
            by=acting_user(),
            expires_at=self._clock() + self._keep_seconds,
        )
        ensure_lease(self._store, own)

    def renew_cursor(self, cursor: Cursor) -> None:
        """Extends the time of this sink's lease on a cursor, if the lease will end soon."""
        ensure_renewed(
            self._store, self._lease_id(cursor), now=self._clock(), seconds=self._keep_seconds
        )

    def release_cursor(self, cursor: Cursor) -> None:
        """Releases this sink's lease on a cursor that the sink has passed."""
        failpoint("sink.before_release")
        self._store.delete(lease_name(self._lease_id(cursor)))
        failpoint("sink.after_release")

    def release_other_cursors(self, cursor: Cursor | None) -> None:
        """Releases this sink's leases on all cursors except `cursor`.

        A courier that was killed may have left such leases.
        """
        kept = None if cursor is None else lease_name(self._lease_id(cursor))
        for name in self._store.names("leases"):
            if name.startswith(lease_name(self._prefix).removesuffix(".json")) and name != kept:
                self._store.delete(name)

    def _lease_id(self, cursor: Cursor) -> str:
        return f"{self._prefix}{_short_digest(str(cursor))}"


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
