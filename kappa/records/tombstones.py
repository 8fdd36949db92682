"""How long it is certain that a deletion is heard of: a compacted topic keeps each tombstone for `delete.retention.ms` only (law 5). Pure.

Who has a key's record, and comes to its tombstone later than that, may never see that the key was deleted: who was away, or reads slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from kappa.base.units import exact_duration

_SETTING = "delete.retention.ms"


def may_be_missed(
    topic: str, read_at: str, config: Mapping[str, str] | None, now: datetime
) -> str | None:
    """Why deletions may have been missed by who read all of a compacted topic last at `read_at` (ISO 8601), or began to then, and goes on `now`; None where none can have been.

    `config` are the topic's settings that are in force; where they are not known, nothing can be said.
    """
    kept = (config or {}).get(_SETTING, "")
    if not kept.isdecimal():
        return None
    away = now - datetime.fromisoformat(read_at).astimezone(UTC)
    if away <= timedelta(milliseconds=int(kept)):
        return None
    return f"topic {topic} keeps a tombstone for {exact_duration(int(kept))} ({_SETTING}), and all of it was read last {exact_duration(int(away.total_seconds()) * 1000)} ago: deletions may have been missed"
