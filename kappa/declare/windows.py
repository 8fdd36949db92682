"""Windows of event time, as columns that a pipeline's function adds, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.base.errors import DeclarationError
from kappa.base.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Column


def tumble(at: Column | str, size: str) -> Column:
    """Returns the start of the window of `size` that the time `at` is in; null for null.

    Windows begin at whole multiples of `size` since 1970, in UTC. A duration is `"5 minutes"`,
    `"1 hour"`, `"90s"`. Raises DeclarationError if `size` is no duration above zero.

    Example:
        @pipeline(
            reads={"visits": VISITS},
            writes=[Table("minutes", keys=("minute",), fold={"visits": count()})],
        )
        def by_minute(visits):
            return {"minutes": visits.withColumn("minute", tumble("at", "1 minute"))}
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # a declaration imports no Spark

    wide = _micros("size", size)
    return F.timestamp_micros(_begin(_micros_of(at), wide))


def hop(at: Column | str, size: str, every: str) -> Column:
    """Returns the starts of all windows of `size` that the time `at` is in; null for null.

    A window begins at each whole multiple of `every` since 1970, in UTC, so windows overlap if
    `every` is less than `size`. They are an array: explode it to have a row for each window. Raises
    DeclarationError if `size` or `every` is no duration above zero, or `every` is above `size`.

    Example:
        from pyspark.sql import functions as F


        @pipeline(
            reads={"visits": VISITS},
            writes=[Table("windows", keys=("since",), fold={"visits": count()})],
        )
        def by_window(visits):
            since = F.explode(hop("at", "10 minutes", every="1 minute"))
            return {"windows": visits.withColumn("since", since)}
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    wide, step = _micros("size", size), _micros("every", every)
    if step > wide:
        raise DeclarationError(
            f"hop has windows of {size} that begin every {every}, which leaves out times",
            hint="every is at most size",
        )
    time = _micros_of(at)
    last = _begin(time, step)
    first = _begin(time - F.lit(wide), step) + F.lit(step)
    return F.transform(F.sequence(first, last, F.lit(step)), F.timestamp_micros)


def _micros_of(at: Column | str) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    return F.unix_micros(F.col(at) if isinstance(at, str) else at)


def _begin(micros: Column, step: int) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    return micros - F.pmod(micros, F.lit(step))


def _micros(name: str, duration: str) -> int:
    found = parse_duration(duration)
    if not found:
        raise DeclarationError(
            f"{name} is {duration!r}, which is no duration",
            hint='a duration is "5 minutes", "1 hour" or "90s"',
        )
    return found * 1000
