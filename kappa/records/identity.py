"""Identity: which records of a partition are duplicates of one that was accepted before them. Pure.

A record is a duplicate if an accepted one of its identity stands before it in its partition, less than the horizon ago in
log time. A duplicate does not extend the horizon, so what is a duplicate depends on what was accepted, and that on what was
before: a memory is right only where it begins with nothing at the origin, or with a memory that was (law 6). Read next:
engine/read/identities.py, which has one for each partition at hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

from kappa.declare.topic import Topic
from kappa.records.record import Row

# Two identities of a horizon with 10 million of them meet by chance once in 10**24 times; and each takes the same room.
DIGEST_BYTES = 16
# Below so many, what lies beyond the horizon costs less to keep than to look for.
_FEW = 1024


def identity_of(topic: Topic) -> Callable[[Row], bytes | None] | None:
    """What gives a valid row's identity, as a digest, or None where a part of it is null: such a record is nobody's duplicate. None where none is declared."""
    places = [[column.name for column in topic.columns].index(name) for name in topic.identity]
    if not places:
        return None

    def digest(row: Row) -> bytes | None:
        parts = [row[place] for place in places]
        if None in parts:
            return None
        # A column has one type, so different values have different texts.
        text = str(parts[0]) if len(parts) == 1 else json.dumps([str(part) for part in parts])
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()

    return digest


class Memory:
    """The identities that were accepted in one partition, and when: what lies beyond the horizon is forgotten."""

    __slots__ = ("_accepted", "_horizon_ms", "_most")

    def __init__(self, horizon_ms: int, accepted: Mapping[bytes, int] | None = None) -> None:
        """`accepted` has the log time of each identity's last accepted record, in milliseconds."""
        self._horizon_ms = horizon_ms
        self._accepted = dict(accepted or {})
        self._most = 2 * len(self._accepted) + _FEW

    def accepts(self, identity: bytes, log_time: int) -> bool:
        """True, and it is remembered, where the next record of the partition is none's duplicate; `log_time` never goes back."""
        last = self._accepted.get(identity)
        if last is not None and log_time - last < self._horizon_ms:
            return False
        self._accepted[identity] = log_time
        if len(self._accepted) > self._most:
            # Only when as many have come as were kept, so that it costs each the same, however many there are.
            self._accepted = self.within(log_time)
            self._most = 2 * len(self._accepted) + _FEW
        return True

    def within(self, log_time: int) -> dict[bytes, int]:
        """What a record at this log time, or later, may be a duplicate of."""
        return {
            identity: accepted
            for identity, accepted in self._accepted.items()
            if log_time - accepted < self._horizon_ms
        }
