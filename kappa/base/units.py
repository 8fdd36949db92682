"""Parsing and formatting of times and sizes, for settings, declarations and display.

The page formats times and numbers in shorter forms (serving/http/page/formatting.py). This module
does no I/O.
"""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS_MS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "second": 1000,
    "m": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
# No log lasts so long that its milliseconds need more digits.
_DURATION = re.compile(r"([0-9]{1,12}) ?([a-z]+)")
# The units of the JVM and of DuckDB, in powers of two.
_MEMORY = {"m": 1 << 20, "g": 1 << 30}


def parse_duration(text: object) -> int | None:
    """Parses a duration such as `"5 minutes"` or `"90s"` to milliseconds.

    Returns None if `text` is not a duration.
    """
    found = _DURATION.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        return None
    unit = found[2] if found[2] in _UNITS_MS else found[2].removesuffix("s")
    return int(found[1]) * _UNITS_MS[unit] if unit in _UNITS_MS else None


def exact_duration(milliseconds: int) -> str:
    """Formats a duration exactly: `5 minutes`, `1 hour`, `1500 milliseconds`."""
    for unit in ("day", "hour", "minute", "second"):
        if milliseconds and milliseconds % _UNITS_MS[unit] == 0:
            return _with_unit(milliseconds // _UNITS_MS[unit], unit)
    return _with_unit(milliseconds, "millisecond")


def duration(seconds: float) -> str:
    """Formats a duration with rounding: `40 s`, `12 min`, `3 h 20 min`, `2 days`."""
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    if minutes < 100:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{int(seconds // 86_400)} days"


def size(count: int) -> str:
    """Formats a number of bytes with rounding, in powers of 1000: `1.5 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def growth(before: float, now: float, seconds: float) -> float:
    """Returns the rate at which a count has increased, per second, or 0 if the count has decreased.

    A count decreases, for example, when the counted work starts again.
    """
    return max(0.0, now - before) / seconds


def seconds_left(done: float, total: float, rate: float | None) -> float | None:
    """Returns the seconds until `done` reaches `total` at `rate` per second, at least 0.

    Returns None if the rate is unknown or 0.
    """
    return max(0.0, total - done) / rate if rate is not None and rate > 0 else None


def pace_text(done: float, total: float, rate: float | None) -> str:
    """Formats a rate and the time left, for example `1,200/s, 40 s left`.

    Returns "" if `done` has reached `total`, or if the rate is unknown or 0.
    """
    left = seconds_left(done, total, rate)
    return f"{rate:,.0f}/s, {left:,.0f} s left" if left else ""


def count_of(number: int, what: str) -> str:
    """Formats a count with its noun: `1 row`, `1,200 rows`. `what` is the noun in the singular."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def parse_memory(setting: str) -> int:
    """Parses a size setting such as `512m` or `2g` to bytes."""
    return int(setting[:-1]) * _MEMORY[setting[-1]]


def memory(count: int) -> str:
    """Formats a number of bytes as a size setting in whole MiB: `512m`."""
    return f"{count // _MEMORY['m']}m"


def _with_unit(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def exact_number(value: int | Decimal) -> str:
    """Formats a number with all its digits, for example `1,234.50`."""
    # Python's own text of a small decimal has an exponent.
    return f"{value:,f}" if isinstance(value, Decimal) else f"{value:,}"
