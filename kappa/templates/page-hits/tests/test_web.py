"""Tests of the rows that the pipeline web computes from given events, in slices of any size."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, some_events, tables_of
from pipelines.web import web

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_visits_are_counted_by_page() -> None:
    tables = tables_of(web, EVENTS)

    hits = [(row["page"], row["hits"]) for row in tables["page_hits"]]
    assert hits == [("/", 2), ("/health", 1)]
    assert tables["rejects"] == []


def test_a_visit_without_a_page_is_a_reject() -> None:
    visit = {"visitor": "eve", "happened_at": "2026-01-31T14:02:00Z"}

    tables = tables_of(web, {"visits": [visit]})

    assert tables["page_hits"] == []
    assert [row["reason"] for row in tables["rejects"]] == ["missing_field"]


def test_the_law_of_slices() -> None:
    law_of_slices(web, some_events(web, 4), cuts=1, large=False)
