"""A topic that is compared with what is served: only what differs is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from kappa.base.errors import KappaError
from kappa.kafka.client import Log

# The header of a sink's records: the cursor of the change set that each is of.
CURSOR = "kappa-cursor"
Message = tuple[bytes, bytes | None]


def rows_in(log: Log, topic: str, *, take_over: bool) -> tuple[dict[bytes, bytes], int]:
    """Returns the key of each row that a topic has, with a digest of its value.

    It takes some 210 bytes a row. With them is the number of those that no sink has written. Raises
    KappaError if all have been written by another program, unless they are to be taken over.
    """
    found: dict[bytes, bytes] = {}
    foreign: set[bytes] = set()
    is_sinks = take_over
    end = log.end([topic])
    for record in log.records([topic], log.beginning([topic]), end):
        if record.key is None:
            continue
        is_ours = any(name == CURSOR for name, _ in record.headers)
        is_sinks |= is_ours
        foreign.discard(record.key)
        if record.value is None:
            found.pop(record.key, None)
            continue
        found[record.key] = _digest(record.value)
        if not is_ours:
            foreign.add(record.key)
    if foreign and not is_sinks:
        raise KappaError(
            f"topic {topic} has records that no sink has written: they would be deleted",
            hint="give the sink a topic of its own; or let it have this one: kappa deploy "
            f"--allow 'sink:{topic}=REASON'",
        )
    return found, len(foreign)


def differing(there: dict[bytes, bytes], rows: Iterable[Message]) -> Iterator[Message]:
    """Yields the rows that a topic has otherwise or not at all, then deletes what is no row.

    What the topic has is used up.
    """
    for key, value in rows:
        known = there.pop(key, None)
        if value is not None and known != _digest(value):
            yield key, value
    yield from ((key, None) for key in there)


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=16).digest()
