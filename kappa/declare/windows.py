"""Windows of event time, as columns that a function adds, and sessions as an ordered fold."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.base.units import parse_duration
from kappa.declare.folds.count import Count
from kappa.declare.folds.extremes import Max, Min
from kappa.declare.folds.first_latest import First, Latest
from kappa.declare.folds.fold import Fold
from kappa.declare.folds.sum import Sum
from kappa.declare.options import describe_value
from kappa.declare.ordered_fold import LAST, SINCE, Ordered, Over, Sessions

if TYPE_CHECKING:
    from pyspark.sql import Column

_SESSION_FOLDS = (Count, Sum, Min, Max, First, Latest)


def tumble(at: Column | str, size: str) -> Column:
    """Returns the start of the window of length `size` that contains the time `at`.

    If `at` is null, the result is null. Windows begin at whole multiples of `size` since 1970, in
    UTC. A duration is written as `"5 minutes"`, `"1 hour"` or `"90s"`. Raises DeclarationError if
    `size` is not a duration above zero.

    Example:
        @pipeline(
            reads={"visits": VISITS},
            writes=[Table("minutes", keys=("minute",), fold={"visits": count()})],
        )
        def by_minute(visits):
            return {"minutes": visits.withColumn("minute", tumble("happened_at", "1 minute"))}
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # a declaration imports no Spark

    wide = _duration_micros("size", size)
    return F.timestamp_micros(_window_begin(_micros_of(at), wide))


def hop(at: Column | str, size: str, every: str) -> Column:
    """Returns the starts of all windows of length `size` that contain the time `at`.

    If `at` is null, the result is null. A window begins at each whole multiple of `every` since
    1970, in UTC. So if `every` is less than `size`, the windows overlap. The result is an array:
    explode it to get a row for each window. Raises DeclarationError if `size` or `every` is not a
    duration above zero, or if `every` is more than `size`.

    Example:
        from pyspark.sql import functions as F

        @pipeline(
            reads={"visits": VISITS},
            writes=[Table("windows", keys=("since",), fold={"visits": count()})],
        )
        def by_window(visits):
            since = F.explode(hop("happened_at", "10 minutes", every="1 minute"))
            return {"windows": visits.withColumn("since", since)}
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    wide, step = _duration_micros("size", size), _duration_micros("every", every)
    if step > wide:
        raise DeclarationError(
            f"hop has windows of {size} that begin every {every}, which leaves out times",
            hint="every is at most size",
        )
    time = _micros_of(at)
    last = _window_begin(time, step)
    first = _window_begin(time - F.lit(wide), step) + F.lit(step)
    return F.transform(F.sequence(first, last, F.lit(step)), F.timestamp_micros)


def sessions(
    at: str, gap: str, fold: Mapping[str, Fold] | None = None, *, emits: str | None = None
) -> Ordered:
    """Folds the rows of one key into sessions by the time `at`, in the order of the log.

    The table contains the open session of each key: the columns `since` and `last`, which are the
    session's first and last time, and a column for each entry of `fold`. If a row's time is more
    than `gap` after the last time, the open session ends and becomes a row of the table `emits`.
    Each column of that table must have the name of a key or of a column of the session. A row with
    an earlier time belongs to the open session, and a row without a time belongs to no session. The
    folds of a session are `count`, `sum_`, `min_`, `max_`, `first` and `latest`; they ignore nulls,
    and use the order of the log. If a sum does not fit its type, the fold fails on the record, and
    `on_error` decides what happens to the record.

    Kappa computes sessions with operations on whole columns, many times faster than a step that is
    called for each row. The rows must include `_topic`, `_partition` and `_offset`. Raises
    DeclarationError, with the user's line, if the declaration is not valid.

    Example:
        @pipeline(
            reads={"visits": VISITS},
            writes=[
                Table(
                    "open_sessions",
                    keys=("visitor",),
                    fold=sessions(
                        "happened_at",
                        "30 minutes",
                        {"landing": first("page"), "hits": count()},
                        emits="sessions",
                    ),
                ),
                Table(
                    "sessions",
                    emitted="visitor string, since timestamp, landing string, hits bigint",
                ),
            ],
        )
        def by_pause(visits):
            return {"open_sessions": visits}
    """
    source = Source.of_caller()
    if not isinstance(at, str):
        raise DeclarationError(
            f"{source}: sessions are by {describe_value(at)}, which is not the name of a column",
            hint='give the column that has the time: sessions("happened_at", "30 minutes")',
        )
    if not isinstance(emits, str | None):
        raise DeclarationError(
            f"{source}: sessions emit {describe_value(emits)}, which is no name",
            hint='give the table by its name: emits="visits"',
        )
    if not isinstance(fold, Mapping | None):
        raise DeclarationError(
            f"{source}: sessions have {describe_value(fold)} for fold, which names no column",
            hint='name each folded column: {"hits": count()}',
        )
    folds = dict(fold or {})
    for name, how in folds.items():
        if not isinstance(how, _SESSION_FOLDS):
            raise DeclarationError(
                f"{source}: sessions fold column {name} by {describe_value(how)}",
                hint="a session folds by count(), sum_(...), min_(...), max_(...), first(...) and "
                'latest(...); for more, write a step: ordered(step, ..., over="keys")',
            )
        if name in {SINCE, LAST}:
            raise DeclarationError(
                f"{source}: sessions fold column {name}, which is a time of the session",
                hint="give the folded column another name",
            )
    gap_ms = _duration_micros("gap", gap) // 1000
    return Ordered(None, (), emits, Over.KEYS, sessions=Sessions(at, gap_ms, folds, source))


def session(state: dict[str, Any], at: datetime | None, gap: str) -> dict[str, Any] | None:
    """Advances the session of a key to the time `at`. Returns the session that ended, or None.

    Call this function first in a step of `ordered` that must process each row of a session in
    Python. If you do not need Python for each row, `sessions` is many times faster. `state`
    contains the columns `since` and `last`, which are the first and last time of the open session.
    If `at` is more than `gap` after the last time, the open session ends: its state is returned,
    and all columns of `state` become None before the new session begins. An earlier time belongs to
    the open session. If `at` is None, the row belongs to no session. Raises DeclarationError if
    `gap` is not a duration above zero.

    Example:
        def visits_of(state, row):
            ended = session(state, row["happened_at"], "30 minutes")
            if ended is not None:
                yield {"visitor": row["visitor"], "since": ended["since"], "hits": ended["hits"]}
            state["hits"] = (state["hits"] or 0) + 1

        @pipeline(
            reads={"visits": VISITS},
            writes=[
                Table(
                    "open_sessions",
                    keys=("visitor",),
                    fold=ordered(
                        visits_of,
                        state="since timestamp, last timestamp, hits bigint",
                        emits="sessions",
                    ),
                ),
                Table("sessions", emitted="visitor string, since timestamp, hits bigint"),
            ],
        )
        def by_session(visits):
            return {"open_sessions": visits}
    """
    pause = timedelta(microseconds=_duration_micros("gap", gap))
    if at is None:
        return None
    ended = None
    if state["since"] is not None and at - state["last"] > pause:
        ended = dict(state)
        state.update(dict.fromkeys(state))
    if state["since"] is None:
        state["since"] = state["last"] = at
    else:
        state["last"] = max(state["last"], at)
    return ended


def _micros_of(at: Column | str) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    return F.unix_micros(F.col(at) if isinstance(at, str) else at)


def _window_begin(micros: Column, step: int) -> Column:
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above

    return micros - F.pmod(micros, F.lit(step))


# A step calls this for each row.
@cache
def _duration_micros(name: str, duration: str) -> int:
    found = parse_duration(duration)
    if not found:
        raise DeclarationError(
            f"{name} is {duration!r}, which is not a duration",
            hint='a duration is "5 minutes", "1 hour" or "90s"',
        )
    return found * 1000
