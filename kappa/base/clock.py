"""The time as records carry it. Pure but for reading the clock."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """Returns the time as records carry it: UTC, ISO-8601, milliseconds. It is for people; no decision depends on it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
