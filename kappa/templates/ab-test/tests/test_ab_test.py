"""Tests of the rows that the pipeline ab_test computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.ab_test import ab_test

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_person_counts_once_for_the_first_variant() -> None:
    exposures = [
        {"person": "ada", "variant": variant, "happened_at": f"2026-01-31T14:{at}:00Z"}
        for variant, at in (("red", "00"), ("green", "10"))
    ]
    conversions = [
        {"id": name, "person": "ada", "happened_at": f"2026-01-31T{at}:00Z"}
        for name, at in (("early", "13:50"), ("in-time", "14:20"), ("late", "15:01"))
    ]

    tables = tables_of(ab_test, {"exposures": exposures, "conversions": conversions})
    assert tables["variants"] == [{"variant": "red", "people": 1, "converted": 1}]

    tables = tables_of(ab_test, {"exposures": exposures, "conversions": conversions[::2]})
    assert tables["variants"] == [{"variant": "red", "people": 1, "converted": 0}]


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(ab_test, EVENTS)

    found = [(row["variant"], row["people"], row["converted"]) for row in tables["variants"]]
    assert found == [("green", 68, 11), ("red", 68, 8)]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:5] for topic, events in EVENTS.items()}

    law_of_slices(ab_test, few, cuts=1, large=False)
