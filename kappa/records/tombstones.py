"""Tombstones: the time for which a reader can certainly learn of a deletion. Pure.

A compacted topic keeps a tombstone only for `delete.retention.ms`. A reader that knows a key's
record, but reaches the tombstone's offset only after this time, may never learn of the deletion.
This happens if the reader was away, or is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from kappa.base.units import exact_duration

_SETTING = "delete.retention.ms"


def may_be_missed(
    topic: str, read_at: str, config: Mapping[str, str] | None, now: datetime
) -> str | None:
    """Returns the reason why a reader may have missed deletions of a compacted topic.

    Returns None if the reader cannot have missed deletions, or if the topic's settings are unknown.
    `read_at` (ISO 8601) is the time at which the reader had last read the whole topic, or began to
    read. `config` contains the topic's current settings.
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
