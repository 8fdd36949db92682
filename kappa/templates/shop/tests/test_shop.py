"""Tests of the rows that the pipeline shop computes from given events."""

from decimal import Decimal
from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.shop import shop

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_revenue_counts_for_the_country_of_now() -> None:
    order = {"id": "o1", "customer": "c1", "product": "tea", "quantity": 2, "happened_at": 0}
    product = {"sku": "tea", "category": "food", "price": 4.5}
    ada = {"id": "c1", "name": "Ada", "country": "AT"}
    moved = {**ada, "country": "ES"}

    tables = tables_of(shop, {"orders": [order], "products": [product], "customers": [ada, moved]})

    assert tables["revenue_by_country"] == [
        {"country": "ES", "orders": 1, "revenue": Decimal("9.00")}
    ]


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(shop, EVENTS)

    assert [(row["country"], row["orders"]) for row in tables["revenue_by_country"]] == [
        ("AT", 26),
        ("DE", 13),
        ("FR", 8),
        ("IT", 53),
    ]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(shop, few, cuts=1, large=False)
