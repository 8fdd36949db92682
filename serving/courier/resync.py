"""A topic that is compared with what is served: only what differs is sent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from kappa.base.errors import KappaError
from kappa.log.client import Log

# The header of a sink's records: the cursor of the change set that each is of.
CURSOR = "kappa-cursor"
Message = tuple[bytes, bytes | None]


def rows_in(log: Log, topic: str, *, take_over: bool) -> dict[bytes, bytes]:
    """Returns the key of each row that a topic has, with a digest of its value.

    It takes some 210 bytes a row. Raises KappaError if another program has written some of them,
    unless they are to be taken over.
    """
    found: dict[bytes, bytes] = {}
    end = log.end([topic])
    for record in log.records([topic], log.beginning([topic]), end):
        is_ours = any(name == CURSOR for name, _ in record.headers)
        if record.key is None or record.value is None:
            found.pop(record.key or b"", None)
        elif not is_ours and not take_over:
            raise KappaError(
                f"topic {topic} has records that no sink has written: they would be deleted",
                hint="give the sink a topic of its own; or let it have this one: kappa deploy "
                f"--allow 'sink:{topic}=REASON'",
            )
        else:
            found[record.key] = _digest(record.value)
    return found


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
