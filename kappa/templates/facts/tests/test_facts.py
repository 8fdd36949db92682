"""Tests of the rows that the pipeline facts computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.facts import facts

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def fact(rate: str | None, valid_from: str, customer: str = "acme") -> dict[str, object]:
    valid_from = f"{valid_from}T00:00:00Z"
    return {"entity": customer, "property": "rate", "value": rate, "valid_from": valid_from}


def test_work_has_the_rate_that_was_valid_as_far_as_is_known() -> None:
    work = {"id": "w", "customer": "acme", "hours": 2, "happened_at": "2026-03-03T12:00:00Z"}

    def amount(*said: dict[str, object]) -> object:
        (row,) = tables_of(facts, {"facts": [*said], "work": [work]})["invoice_items"]
        return row["amount"] and float(row["amount"])

    assert amount() is None
    assert amount(fact("90", "2026-01-01"), fact("95", "2026-04-01")) == 180
    assert amount(fact("90", "2026-01-01"), fact("80", "2026-01-01")) == 160
    taken_back = fact(None, "2026-03-01")
    assert amount(fact("90", "2026-01-01"), fact("99", "2026-03-01"), taken_back) == 180


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(facts, EVENTS)

    found = [(row["customer"], row["items"]) for row in tables["invoices"]]
    assert found == [
        *(("acme", 13), ("bolt", 8), ("coil", 4), ("dune", 11), ("eve", 4)),
    ]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:5] for topic, events in EVENTS.items()}

    law_of_slices(facts, few, cuts=1, large=False)
