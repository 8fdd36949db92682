"""Tombstones: the time for which a deletion can certainly be read (law 5). Pure.

A compacted topic keeps a tombstone only for `delete.retention.ms`. A reader that has a key's record
and reads the tombstone's offset later than that may never learn of the deletion. This happens after
an absence, or if the reader is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from kappa.base.units import exact_duration

_SETTING = "delete.retention.ms"


def may_be_missed(
    topic: str, read_at: str, config: Mapping[str, str] | None, now: datetime
) -> str | None:
    """Returns why a reader that last caught up at `read_at` may have missed deletions, or None.

    Returns None if the reader cannot have missed a deletion by the time `now`. `read_at` (ISO 8601)
    is the time at which the reader had last read the whole compacted topic, or began to read.
    `config` contains the topic's current settings. If the settings are unknown, returns None too.
    """
    kept = (config or {}).get(_SETTING, "")
    if not kept.isdecimal():
        return None
    away = now - datetime.fromisoformat(read_at).astimezone(UTC)
    if away <= timedelta(milliseconds=int(kept)):
        return None
    ago = exact_duration(int(away.total_seconds()) * 1000)
    return (
        f"topic {topic} keeps a tombstone for {exact_duration(int(kept))} ({_SETTING}), "
        f"and all of it was read last {ago} ago: deletions may have been missed"
    )
