"""A duration as a pipeline's file says it: `"5 minutes"`, `"90s"`, `"1 hour"`. Pure."""

from __future__ import annotations

import re

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
# More digits than any log lasts milliseconds.
_DURATION = re.compile(r"([0-9]{1,12}) ?([a-z]+)")


def parse_duration(text: object) -> int | None:
    """A duration in milliseconds; None where the text is none."""
    found = _DURATION.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None:
        return None
    unit = found[2] if found[2] in _UNITS_MS else found[2].removesuffix("s")
    return int(found[1]) * _UNITS_MS[unit] if unit in _UNITS_MS else None


def told_ms(milliseconds: int) -> str:
    """A duration in words, exactly: `5 minutes`, `1 hour`, `1500 milliseconds`."""
    for unit in ("day", "hour", "minute", "second"):
        if milliseconds and milliseconds % _UNITS_MS[unit] == 0:
            return _counted(milliseconds // _UNITS_MS[unit], unit)
    return _counted(milliseconds, "millisecond")


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
