"""Timestamps for records, and a stopwatch. Both are for people and decide nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # in UTC
# Any 400 years of the calendar have this many milliseconds.
_CALENDAR_MS = 146_097 * 86_400_000


def now() -> str:
    """Returns the time in UTC, by ISO 8601 with milliseconds.

    The text is for people; no decision depends on it.
    """
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def time_text(time: str | datetime) -> str:
    """Returns a time of a record for people: `2026-01-31T14:05:00Z`, to the second."""
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_text(ms: int) -> str:
    """Returns a time in milliseconds since 1970 as a text of ISO 8601, for any year.

    Python's datetime covers the years 1 to 9999; a record's timestamp may be beyond both.
    """
    # The calendar repeats after each cycle.
    cycles, rest = divmod(ms, _CALENDAR_MS)
    at = _EPOCH + timedelta(milliseconds=rest)
    year = at.year + 400 * cycles
    digits = f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    return f"{digits}{at.isoformat(timespec='milliseconds').removeprefix(f'{at.year}')}Z"


class Stopwatch:
    """The seconds that each named step has taken, summed up."""

    def __init__(self, on_step: Callable[[str], None] = lambda _name: None) -> None:
        """Calls `on_step` with the name of each step that begins."""
        self._on_step = on_step
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Adds the time of the block to a step."""
        began = time.monotonic()
        self._on_step(name)
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    @property
    def total(self) -> float:
        """Returns the seconds since the stopwatch was made."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> dict[str, float]:
        """Returns the seconds per step, in the order in which the steps first began."""
        return dict(self._seconds)

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in self._seconds.items())
