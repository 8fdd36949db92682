"""Times in other spellings, by a layout such as `%d/%b/%Y:%H:%M:%S %z`. Pure.

`strptime` itself depends on the locale of the process, and a row must not.
"""

from __future__ import annotations

import re
from datetime import date

from kappa.base.errors import DeclarationError
from kappa.declare.values.reason import Reason, Rejected, shown
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS, Check

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_PARTS = {
    "Y": r"(?P<year>[0-9]{4})",
    "m": r"(?P<month>0[1-9]|1[0-2])",
    "b": rf"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "d": r"(?P<day>0[1-9]|[12][0-9]|3[01])",
    "H": r"(?P<hour>[01][0-9]|2[0-3])",
    "M": r"(?P<minute>[0-5][0-9])",
    "S": r"(?P<second>[0-5][0-9])",
    "f": r"(?P<fraction>[0-9]{1,6})",
    "z": r"(?P<zone>Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])",
    "%": "%",
}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_HINT = (
    "it has the year (%Y), the month (%m, or its English name %b) and the day (%d), each once, "
    "and may have %H %M %S %f %z; without %z times are UTC"
)


def time_check(layout: str) -> Check:
    """Returns the check that reads texts of this layout as microseconds since 1970, UTC.

    Raises DeclarationError if it is no layout of a time.
    """
    parts = re.split(r"%(.?)", layout)
    used = [part for part in parts[1::2] if part != "%"]
    unknown = [f"%{part}" for part in used if part not in _PARTS]
    if (
        unknown
        or len(set(used)) < len(used)
        or not {"Y", "d"} < {*used}
        or not (("m" in used) ^ ("b" in used))
    ):
        what = f"has {unknown[0]}, which is not known" if unknown else "names no day exactly once"
        raise DeclarationError(f"the layout {layout!r} {what}", hint=_HINT)
    expression = re.compile(
        "".join(
            _PARTS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts)
        )
    )

    def check(text: str, name: str) -> int:
        found = expression.fullmatch(text)
        if found is None:
            raise Rejected(Reason.BAD_FORMAT, f"{name} is {shown(text)}, not a time like {layout}")
        micros = _micros(found.groupdict())
        if micros is None or not FIRST_MICROS <= micros <= LAST_MICROS:
            raise Rejected(
                Reason.OUT_OF_RANGE, f"{name} is {shown(text)}, a time that is not in the calendar"
            )
        return micros

    return check


def _micros(parts: dict[str, str | None]) -> int | None:
    month = parts.get("month")
    number = _MONTHS.index(str(parts["name"]).lower()) + 1 if month is None else int(month)
    try:
        day = date(int(parts["year"] or 0), number, int(parts["day"] or 0)).toordinal()
    except ValueError:
        return None
    hour, minute, second = (int(parts.get(each) or 0) for each in ("hour", "minute", "second"))
    minutes = ((day - _EPOCH_DAY) * 24 + hour) * 60 + minute - _offset(parts.get("zone"))
    return (minutes * 60 + second) * 1_000_000 + int((parts.get("fraction") or "").ljust(6, "0"))


def _offset(zone: str | None) -> int:
    """Returns the minutes that a zone is before UTC."""
    if zone in {None, "Z"}:
        return 0
    digits = str(zone).replace(":", "")
    minutes = int(digits[1:3]) * 60 + int(digits[3:5])
    return -minutes if digits[0] == "-" else minutes
