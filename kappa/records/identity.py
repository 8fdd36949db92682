"""The identity of a record, which decides whether the record is a duplicate. Pure.

A record is a duplicate if its partition contains an earlier accepted record with the same identity,
and the log times of the two records differ by less than the horizon. A duplicate does not extend
the horizon, so each decision depends on the earlier decisions. Therefore a build can only begin to
remember identities at the build's first offset, or with a copy of identities that were remembered
correctly. Each partition has its own remembered identities (engine/read/identities.py).
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
    """Returns the function that computes the digest of a valid row's identity.

    Returns None if the topic declares no identity. The returned function returns None if a part of
    the row's identity is null; such a record is never a duplicate.
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
    """The identities that a partition has accepted within the horizon, with their log times."""

    __slots__ = ("_accepted", "_horizon_ms", "_most")

    def __init__(self, horizon_ms: int, accepted: Mapping[bytes, int] | None = None) -> None:
        """Creates the object. `accepted` contains identities that were accepted earlier.

        `accepted` maps each identity to the log time of its last accepted record. All times are in
        milliseconds.
        """
        self._horizon_ms = horizon_ms
        self._accepted = dict(accepted or {})
        self._most = 2 * len(self._accepted) + _FEW

    def accepts(self, identity: bytes, log_time: int) -> bool:
        """Returns False for a duplicate. Otherwise stores the identity, and returns True.

        `log_time` is the log time of the record, and must not decrease from call to call.
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
        """Returns the identities that were accepted less than the horizon before `log_time`.

        A record at this log time or later can only be a duplicate of a record with one of these
        identities.
        """
        return {
            identity: accepted
            for identity, accepted in self._accepted.items()
            if log_time - accepted < self._horizon_ms
        }
