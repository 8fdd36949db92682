"""Formats numbers, times and values for the page. Pure. Programs should use the API instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite

from kappa.serving.query.render import cell_text, json_value

_SHORT = 6
# A time within a sentence, as commands write it.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
# A longer value would not fit on a screen; the API returns the whole value.
_MOST_CHARACTERS = 400
# A time with its zone.
_BRIEF_CHARACTERS = 24
_STEPS = ((31_536_000, "y"), (86_400, "d"), (3_600, "h"), (60, "min"))


def number(value: float | None) -> str:
    """Formats a number as `1,234,567`, or returns `—` for None.

    A number that is not whole is shown with one digit after the point if it is below 100, and with
    two digits if it is below 1.
    """
    if value is None:
        return "—"
    if 0 < abs(value) < 1:
        return f"{value:.2f}".rstrip("0") if abs(value) >= 0.005 else "<0.01"
    return (
        f"{value:,.1f}"
        if isinstance(value, float) and abs(value) < 100 and value != int(value)
        else f"{value:,.0f}"
    )


def amount(count: int, noun_text: str) -> str:
    """Formats a count with a noun, which is given in the singular: `1 reject`, `1,200 rejects`."""
    return f"{number(count)} {noun(count, noun_text)}"


def noun(count: int, text: str) -> str:
    """Returns a noun in the singular or plural: `row` for a count of 1, and otherwise `rows`."""
    return text if count == 1 else f"{text[:-1]}ies" if text.endswith("y") else f"{text}s"


# From so many a second on a rate is written a second, else a minute or an hour.
_LEAST_RATE = 0.1
# The units of rates, with the seconds of each and its name.
_PER = (("/s", 1, "second"), ("/min", 60, "minute"), ("/h", 3600, "hour"))


def per(rate: float | None) -> tuple[str, int, str]:
    """Returns the unit for a rate per second: its symbol, its length in seconds, and its name.

    A slow rate is shown per minute or per hour, because `2.4/min` is easier to read than `0.04/s`.
    """
    for unit in _PER:
        if not rate or rate * unit[1] >= _LEAST_RATE:
            return unit
    return _PER[-1]


def scaled(rates: Sequence[float], seconds: int) -> list[float]:
    """Converts rates per second to rates per `seconds`."""
    return [round(rate * seconds, 4) for rate in rates]


_SPARK_WIDTH, _SPARK_HEIGHT = 96, 20


def spark_points(values: Sequence[float], share: float = 1.0) -> str:
    """Returns the points of a line chart, as the attribute `points` of an SVG polyline.

    The chart is 96 wide and 20 high. The values cover only the last `share` of the period that the
    whole width represents. Returns "" for fewer than two values.
    """
    if len(values) < 2:
        return ""
    top, begin = max(values) or 1.0, _SPARK_WIDTH * (1 - share)
    step = _SPARK_WIDTH * share / (len(values) - 1)
    return " ".join(
        f"{begin + place * step:.1f},{_SPARK_HEIGHT - 1 - each / top * (_SPARK_HEIGHT - 2):.1f}"
        for place, each in enumerate(values)
    )


def figure(found: object) -> str:
    """Formats a value for display in large letters: `1,234,567`, `98.75`, `0.0012`.

    None is formatted as `—`. Zeros at the end of decimals are left out. A value that is not a
    number is formatted as by the function `value`.
    """
    if found is None:
        return "—"
    if type(found) is int:
        return f"{found:,}"
    if not isinstance(found, float | Decimal) or not isfinite(found):
        return value(found)
    number = float(found)
    size = abs(number)
    digits = ",.0f" if size >= 10_000 else ",.2f" if size >= 1 else ".3g"
    text = f"{number:{digits}}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def percent(part: float, whole: float) -> int:
    """Returns the share of `part` in `whole`, in whole percent.

    The result is 100 only if `part` equals `whole`, or if `whole` is 0.
    """
    return 100 if part >= whole else max(0, int(100 * part / whole))


def duration(seconds: float | None) -> str:
    """Formats a duration: `0.4 s`, `42 s`, `3 min`, `2 h 5 min`, `3 d 4 h`; `—` for None."""
    if seconds is None:
        return "—"
    if round(seconds) < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    left, shown = round(seconds), []
    for length, name in _STEPS:
        count, left = divmod(left, length)
        if count:
            shown.append(f"{count} {name}")
    # Beside days, minutes are noise.
    return " ".join(shown[:2])


def relative(at: datetime, now: datetime) -> str:
    """Formats a time relative to `now`: `12 s ago`, `in 54 min` or `just now`."""
    seconds = (now - at).total_seconds()
    if abs(seconds) < 1:
        return "just now"
    return (
        f"{duration(float(int(seconds)))} ago".replace(".0 s", " s")
        if seconds > 0
        else f"in {duration(float(int(-seconds)))}".replace(".0 s", " s")
    )


def exact(at: datetime) -> str:
    """Formats a time in UTC: `2026-01-31 14:05:09 UTC`."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def clock(at: datetime, now: datetime) -> str:
    """Formats a time in UTC to the minute: `14:05 UTC`, with the day if it is not that of `now`."""
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def times(sentence: str) -> str:
    """Rewrites the times in a sentence for commands as pages write times (`exact`)."""
    return _TIME.sub(lambda found: exact(datetime.fromisoformat(found[0])), sentence)


def moment(text: str | datetime | None) -> datetime | None:
    """Parses a time that is written as text.

    Returns the time in UTC, or None if the text is not a time.
    """
    if isinstance(text, datetime):
        return text.astimezone(UTC)
    try:
        return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return None


def shared_day(times: Iterable[str]) -> str:
    """Returns the day of all times, such as `2026-01-31`, or "" if they are not of one day.

    The times are texts in ISO 8601, in UTC. Empty texts do not count.
    """
    days = {each.partition("T")[0] for each in times if each}
    day = days.pop() if len(days) == 1 else ""
    return "" if moment(day) is None else day


def short(name: str) -> str:
    """Shortens a long fingerprint to its first characters and an ellipsis."""
    return name if len(name) <= _SHORT + 2 else f"{name[:_SHORT]}…"


def value(found: object) -> str:
    """Formats a value for a row of a table on the page.

    Null looks different from the text "null", numbers have separators, and long values are cut.
    """
    shown = _whole_value(found)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}…"


def is_cut(found: object) -> bool:
    """Returns True if `value` shows only the beginning of a value."""
    return len(_whole_value(found)) > _MOST_CHARACTERS


def _whole_value(found: object) -> str:
    match found:
        case bool():
            return str(found).lower()
        case int() | float() | Decimal():
            return f"{found:,}" if not isinstance(found, int) or abs(found) > 9999 else str(found)
        case datetime():
            return time_text(found)
        case dict() | list():
            return json.dumps(json_value(found), ensure_ascii=False)
        case _:
            return cell_text(found)


def time_text(at: datetime) -> str:
    """Formats a time, for example as `2026-01-31 14:05:09 UTC`.

    The fraction of the second is added if it is not zero. For a time without a zone, `UTC` is left
    out.
    """
    if at.tzinfo is None:
        return _without_zeros(at.isoformat(sep=" "))
    return f"{_without_zeros(at.astimezone(UTC).isoformat(sep=' ').removesuffix('+00:00'))} UTC"


def _without_zeros(text: str) -> str:
    return text.rstrip("0") if "." in text else text


@dataclass(frozen=True, slots=True)
class TimeZone:
    """The part of each time in a column that only the header of the column has.

    `text` is "UTC" if all values of the column are times with a zone or null, and "today, UTC" if
    all these times are of today. Otherwise it is "". `has_seconds` is False if all these times are
    whole minutes.
    """

    text: str = ""
    has_seconds: bool = True


def time_zones(rows: Sequence[Sequence[object]], now: datetime) -> tuple[TimeZone, ...]:
    """Returns for each column the part of its times that only its header has."""
    return tuple(_time_zone(column, now) for column in zip(*rows, strict=True))


def _time_zone(column: Sequence[object], now: datetime) -> TimeZone:
    found = [each for each in column if each is not None]
    times = [each.astimezone(UTC) for each in found if isinstance(each, datetime) and each.tzinfo]
    if not times or len(times) < len(found):
        return TimeZone()
    is_today = {each.date() for each in times} == {now.astimezone(UTC).date()}
    return TimeZone(
        "today, UTC" if is_today else "UTC",
        any(each.second or each.microsecond for each in times),
    )


def with_times(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Converts the times with a zone in rows of JSON values, in which times are texts."""

    def timed(found: object) -> object:
        if isinstance(found, str) and _TIME.fullmatch(found):
            return moment(found) or found
        return found

    return [[timed(each) for each in row] for row in rows]


def number_columns(rows: Sequence[Sequence[object]]) -> tuple[bool, ...]:
    """Returns for each column True if it has a value, and all its values are texts of numbers."""
    return tuple(
        {True}
        == {_NUMBER.fullmatch(value(each)) is not None for each in column if each is not None}
        for column in zip(*rows, strict=True)
    )


def value_below(found: object, zone: TimeZone) -> str:
    """Formats a value of a column without the part that the column's header has."""
    shown = value(found)
    if not zone.text or found is None:
        return shown
    dated = shown.removesuffix(" UTC")
    if not zone.has_seconds:
        dated = dated.removesuffix(":00")
    return dated if zone.text == "UTC" else dated.partition(" ")[2]


def is_number(found: object) -> bool:
    """Returns True if a value is a number, which the page aligns to the right."""
    return isinstance(found, int | float | Decimal) and not isinstance(found, bool)


def is_brief(found: object) -> bool:
    """Returns True if a value is so short that the page keeps it on a single line.

    A time that is broken at its hyphens would be hard to read.
    """
    return len(value(found)) <= _BRIEF_CHARACTERS
