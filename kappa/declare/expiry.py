"""The expiry of a table's rows: the column with a time, and the span after that time. Pure.

A row expires once the log's clock is past the row's time plus the span (kappa/state/log_clock.py).
The log alone decides, so every replay decides the same.
"""

from __future__ import annotations

from msgspec import Struct

from kappa.base.errors import DeclarationError
from kappa.base.units import exact_duration, parse_duration
from kappa.declare.options import describe_value, option_text

# Longer than any log is kept. With this limit no sum of microseconds leaves its range.
_LONGEST_DAYS = 36_500
_DAY_MS = 86_400_000
# The first time of the year 1, and the last that Spark and DuckDB have, in microseconds since 1970.
_FIRST, _LAST = -62_135_596_800_000_000, 2**63 - 2


class Expiry(Struct, frozen=True):
    """The column that has a row's time, and the milliseconds after which the row expires."""

    column: str
    after_ms: int

    def __str__(self) -> str:
        return f"rows are gone {exact_duration(self.after_ms)} after {self.column}"

    def least_kept(self, clock_ms: int) -> int | None:
        """Returns the least time of the rows that are kept at this clock.

        The time is in microseconds since 1970. None means that all rows are kept, since no earlier
        time exists.
        """
        least = min(1000 * (clock_ms - self.after_ms), _LAST)
        return None if least < _FIRST else least


def expiry_of(where: str, expire: object, after: object) -> Expiry | None:
    """Returns the expiry of a table, or None if none is declared.

    Raises DeclarationError, beginning with `where`, if an option is wrong.
    """
    if expire is None and after is None:
        return None
    if expire is None or after is None:
        declared, missing = (
            ("after", 'expire="happened_at"') if expire is None else ("expire", 'after="7 days"')
        )
        raise DeclarationError(f"{where} declares {declared} alone", hint=f"say both: {missing}")
    if not isinstance(expire, str) or not expire or expire.startswith("_"):
        raise DeclarationError(
            f"{where} has expire={option_text(expire)}, which is not a column of its rows",
            hint='name the column that has the time of a row: expire="happened_at"',
        )
    span = parse_duration(after)
    if span is None:
        raise DeclarationError(
            f"{where} has after={describe_value(after)}, which is not a duration",
            hint='say it like "90 minutes", "12 hours" or "7 days"',
        )
    if span > _LONGEST_DAYS * _DAY_MS:
        raise DeclarationError(
            f"{where} has after={after!r}, which is longer than a log is kept",
            hint=f"say at most {_LONGEST_DAYS} days, or leave expire and after out",
        )
    return Expiry(expire, span)
