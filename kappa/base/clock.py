"""The time as records carry it. Pure but for reading the clock."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """Returns the time in UTC, by ISO 8601 with milliseconds.

    It is for people; no decision depends on it.
    """
    return datetime.now(UTC).isoformat(timespec="milliseconds")
