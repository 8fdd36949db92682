"""A reader that was away for longer than tombstones are kept may have missed some (law 5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kappa.records.tombstones import may_be_missed

THEN = datetime(2026, 11, 1, tzinfo=UTC)
DAY = {"delete.retention.ms": "86400000"}


@pytest.mark.parametrize(
    ("config", "away", "missed"),
    [
        (DAY, timedelta(days=1), False),
        (DAY, timedelta(days=1, seconds=1), True),
        (None, timedelta(days=99), False),
        ({}, timedelta(days=99), False),
        ({"delete.retention.ms": "0"}, timedelta(seconds=1), True),
    ],
)
def test_it_is_missed_where_it_may_be_gone(
    config: dict[str, str] | None, away: timedelta, missed: bool
) -> None:
    said = may_be_missed("pages", THEN.isoformat(), config, THEN + away)

    assert (said is not None) == missed
