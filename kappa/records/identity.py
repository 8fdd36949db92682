"""Identity, which decides whether a record is a duplicate of an earlier record. Pure.

A record is a duplicate if its partition has an earlier accepted record of the same identity, less
than the horizon ago in log time. A duplicate does not extend the horizon, so each decision depends
on the decisions before. A memory is right only if it began empty at the origin, or with another
right memory (law 6). Each partition has a memory (engine/read/identities.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping

from kappa.declare.topic import Topic
from kappa.records.record import Row

# Among 10 million identities in a horizon, two share a digest once in 10**24 times.
DIGEST_BYTES = 16
# Below so many, identities beyond the horizon cost less to keep than to find.
_FEW = 1024


def identity_of(topic: Topic) -> Callable[[Row], bytes | None] | None:
    """Makes the function from a valid row to its identity's digest.

    Returns None if no identity is declared. The function returns None if a part of the identity is
    null: then the record is not a duplicate.
    """
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
    """The identities accepted in a partition within the horizon, with log times."""

    __slots__ = ("_accepted", "_horizon_ms", "_most")

    def __init__(self, horizon_ms: int, accepted: Mapping[bytes, int] | None = None) -> None:
        """Takes the log time of each identity's last accepted record, in milliseconds."""
        self._horizon_ms = horizon_ms
        self._accepted = dict(accepted or {})
        self._most = 2 * len(self._accepted) + _FEW

    def accepts(self, identity: bytes, log_time: int) -> bool:
        """Remembers the next record's identity. Returns False if the record is a duplicate.

        `log_time` must not decrease.
        """
        last = self._accepted.get(identity)
        if last is not None and log_time - last < self._horizon_ms:
            return False
        self._accepted[identity] = log_time
        if len(self._accepted) > self._most:
            # Identities are dropped only after as many new ones as were kept, so that the cost of
            # each is constant.
            self._accepted = self.within(log_time)
            self._most = 2 * len(self._accepted) + _FEW
        return True

    def within(self, log_time: int) -> dict[bytes, int]:
        """Returns the identities that a record at this log time, or later, may repeat."""
        return {
            identity: accepted
            for identity, accepted in self._accepted.items()
            if log_time - accepted < self._horizon_ms
        }
