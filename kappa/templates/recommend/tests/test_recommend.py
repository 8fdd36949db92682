"""Tests of the rows that the pipeline recommend computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.recommend import recommend

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_items_of_one_session_are_a_pair_once() -> None:
    views = [
        {"visitor": "ada", "item": item, "happened_at": f"2026-01-31T{at}:00Z"}
        for item, at in (("a", "14:00"), ("b", "14:10"), ("a", "14:20"), ("c", "15:00"))
    ]

    tables = tables_of(recommend, {"item_views": views})

    pairs = [(row["item"], row["other"], row["sessions"]) for row in tables["pair_counts"]]
    assert pairs == [("a", "b", 1), ("b", "a", 1)]


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(recommend, EVENTS)

    found = [row["other"] for row in tables["recommendations"] if row["item"] == "tosca"]
    assert found == ["aida", "carmen", "norma"]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:5] for topic, events in EVENTS.items()}

    law_of_slices(recommend, few, cuts=1, large=False)
