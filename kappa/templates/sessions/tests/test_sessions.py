"""Tests of the rows that the pipeline sessions computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.sessions import sessions

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_pause_ends_a_session() -> None:
    hits = [
        {"visitor": "ada", "page": page, "happened_at": f"2026-01-31T{at}:00Z"}
        for page, at in (("/", "14:00"), ("/docs", "14:10"), ("/blog", "15:00"))
    ]

    tables = tables_of(sessions, {"page_hits": hits})

    (row,) = tables["page_sessions"]
    assert (row["visitor"], row["landing"], row["hits"]) == ("ada", "/", 2)


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(sessions, EVENTS)

    landings = [(row["landing"], row["sessions"]) for row in tables["landings"]]
    assert landings == [("/", 10), ("/blog", 12), ("/docs", 12), ("/prices", 10)]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:5] for topic, events in EVENTS.items()}

    law_of_slices(sessions, few, cuts=1, large=False)
