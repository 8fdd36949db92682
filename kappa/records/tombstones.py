"""Tombstones: how long a deletion is certain to be read (law 5). Pure.

A compacted topic keeps each tombstone for `delete.retention.ms` only. A reader that has a key's
record and arrives later, after an absence or because it is slow, may never learn of the deletion.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from kappa.base.units import exact_duration

_SETTING = "delete.retention.ms"


def may_be_missed(
    topic: str, read_at: str, config: Mapping[str, str] | None, now: datetime
) -> str | None:
    """Explains why a reader that last caught up at `read_at` may have missed deletions.

    Returns None if the reader cannot have missed a deletion by `now`. `read_at` (ISO 8601) is the
    time at which the reader last had read all of the compacted topic, or began to read. `config`
    are the topic's settings in force; if the settings are unknown, the answer is None, too.
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
