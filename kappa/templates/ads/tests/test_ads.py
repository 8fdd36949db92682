"""Tests of the rows that the pipeline ads computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.ads import ads

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_click_counts_within_ten_minutes_whichever_arrives_first() -> None:
    impression = {"id": "i", "campaign": "spring", "happened_at": "2026-01-31T14:00:00Z"}
    clicks = [
        {"id": f"c{minute}", "impression": "i", "happened_at": f"2026-01-31T14:{minute}:00Z"}
        for minute in (10, 11)
    ]

    tables = tables_of(ads, {"ad_clicks": clicks, "impressions": [impression]})

    assert [row["clicks"] for row in tables["clicked_impressions"]] == [1]
    assert [row["click"] for row in tables["unmatched_clicks"]] == ["c11"]


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(ads, EVENTS)

    campaigns = [(row["campaign"], row["clicked"]) for row in tables["campaigns"]]
    assert campaigns == [("spring", 21), ("summer", 18), ("winter", 22)]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(ads, few, cuts=1, large=False)
