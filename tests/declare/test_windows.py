"""A window is computed from its row alone, and contains the times from its start to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from kappa import hop, session, tumble
from kappa.base.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMES = [
    None,
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 31, 14, 0, tzinfo=UTC),
    datetime(2026, 1, 31, 14, 4, 59, 999_999, UTC),
    datetime(2026, 1, 31, 14, 7, 30, 1, UTC),
]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.jvm
@pytest.mark.parametrize(("size", "every"), [(5, 5), (10, 1), (10, 4), (7, 3)])
def test_a_time_is_in_each_window_that_its_row_names(
    spark: SparkSession, size: int, every: int
) -> None:
    rows = spark.createDataFrame([(at,) for at in TIMES], "at timestamp")
    words = f"{size} minutes"

    found = rows.select("at", tumble("at", words), hop("at", words, every=f"{every}m")).collect()

    for at, start, starts in found:
        if at is None:
            assert (start, starts) == (None, None)
            continue
        instant = at.replace(tzinfo=UTC)
        assert start.replace(tzinfo=UTC) == begin(instant, size)
        last = begin(instant, every)
        all_of_them = [last - timedelta(minutes=every * back) for back in range(size)]
        holding = [each for each in all_of_them if instant - each < timedelta(minutes=size)]
        assert [each.replace(tzinfo=UTC) for each in starts] == holding[::-1]


def begin(at: datetime, minutes: int) -> datetime:
    return at - (at - EPOCH) % timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumble("at", "soon"),
        lambda: tumble("at", "0 minutes"),
        lambda: hop("at", "1 minute", every="5 minutes"),
        lambda: session({"since": None, "last": None}, EPOCH, "soon"),
    ],
)
def test_what_is_no_window_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(DeclarationError, match="not a duration|leaves out times"):
        make()


# Minutes of a key's rows in the order of the log -> the sessions, as first minute and rows of each.
SESSIONS = {
    (): [],
    (0,): [(0, 1)],
    (0, 10, 20): [(0, 3)],
    (0, 10, 20.001): [(0, 2), (20.001, 1)],
    (0, None, 9, 30, 31): [(0, 2), (30, 2)],
    # What is late belongs to the session that is open, and ends it no sooner.
    (0, 10, 5, 19, 60, 2): [(0, 4), (60, 2)],
}


@pytest.mark.parametrize(("minutes", "sessions"), SESSIONS.items())
def test_a_session_ends_with_the_first_row_after_the_pause(
    minutes: tuple[float | None, ...], sessions: list[tuple[float, int]]
) -> None:
    state: dict[str, object] = dict.fromkeys(("since", "last", "rows"))
    ended = []
    for minute in minutes:
        at = None if minute is None else EPOCH + timedelta(minutes=minute)
        ended.append(session(state, at, "10 minutes"))
        if at is not None:
            state["rows"] = (state["rows"] or 0) + 1  # type: ignore[operator]
    found = [each for each in [*ended, state] if each is not None and each["since"] is not None]

    assert [((each["since"] - EPOCH) / timedelta(minutes=1), each["rows"]) for each in found] == (
        sessions
    )
