"""The format of times in records and for display, and a stopwatch for the steps of a slice.

No decision of Kappa depends on the times that this module reads from the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # in UTC
# Any 400 years of the calendar have this many milliseconds.
_CALENDAR_MS = 146_097 * 86_400_000


def now() -> str:
    """Returns the current time in UTC as ISO 8601 text with milliseconds.

    The text is for display; no decision depends on it.
    """
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def time_text(time: str | datetime) -> str:
    """Formats a record's time for display, to the second: `2026-01-31T14:05:00Z`."""
    found = datetime.fromisoformat(time) if isinstance(time, str) else time
    return found.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def moment_text(ms: int) -> str:
    """Formats a time in milliseconds since 1970 as ISO 8601 text in UTC, for any year.

    Python's datetime covers only the years 1 to 9999. The timestamp of a record may be before or
    after these years.
    """
    # The calendar repeats after each cycle.
    cycles, rest = divmod(ms, _CALENDAR_MS)
    at = _EPOCH + timedelta(milliseconds=rest)
    year = at.year + 400 * cycles
    digits = f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    return f"{digits}{at.isoformat(timespec='milliseconds').removeprefix(f'{at.year}')}Z"


class Stopwatch:
    """A stopwatch that adds up the seconds of each named step."""

    def __init__(self, on_step: Callable[[str], None] = lambda _name: None) -> None:
        """Creates a stopwatch that calls `on_step` with a step's name when the step begins."""
        self._on_step = on_step
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measures the time that the block takes, and adds it to the step `name`."""
        began = time.monotonic()
        self._on_step(name)
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    @property
    def total(self) -> float:
        """Returns the seconds that have passed since the stopwatch was created."""
        return time.monotonic() - self._began

    @property
    def seconds(self) -> dict[str, float]:
        """Returns the seconds per step, in the order in which the steps first began."""
        return dict(self._seconds)

    def __str__(self) -> str:
        return ", ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in self._seconds.items())
