"""Tests of the rows that the pipeline searches computes from given events."""

from collections import Counter
from pathlib import Path

import pytest

from kappa.testing import Event, law_of_slices, read_events, tables_of
from pipelines.searches import searches

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_an_offer_is_found_by_a_search_that_waits_for_it() -> None:
    search = {"id": "s", "person": "ada", "word": "bike", "category": None, "most": 100}
    offers = [
        {"id": id_, "title": "Red bike", "category": "sport", "price": price, "happened_at": 0}
        for id_, price in (("cheap", 99), ("dear", 101))
    ]

    tables = tables_of(searches, {"searches": [search], "offers": offers})
    assert [(row["person"], row["offer"]) for row in tables["found"]] == [("ada", "cheap")]

    ended = Event(None, key="s")
    tables = tables_of(searches, {"searches": [search, ended], "offers": offers})
    assert tables["found"] == []


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(searches, EVENTS)

    found = Counter(row["search"] for row in tables["found"])
    assert found == {"s2": 19, "s3": 1, "s4": 1}
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(searches, few, cuts=1, large=False)
