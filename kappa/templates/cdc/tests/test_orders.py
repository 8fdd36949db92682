"""Tests of the rows that the pipeline orders computes from given changes of a database."""

from decimal import Decimal
from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.orders import orders

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_the_rows_are_those_of_the_database() -> None:
    tables = tables_of(orders, EVENTS)

    assert [(row["id"], row["status"], row["amount"]) for row in tables["orders"]] == [
        (1, "sent", Decimal("25.00")),
        (2, "cancelled", Decimal("9.90")),
        (3, "paid", Decimal("120.50")),
        (4, "paid", Decimal("40.25")),
        (6, "new", Decimal("15.00")),
    ]
    assert [(row["name"], row["country"]) for row in tables["customers"]] == [
        ("Ada", "ES"),
        ("Bob", "DE"),
        ("Cleo", "FR"),
        ("Dan", "IT"),
    ]
    assert tables["revenue_by_country"] == [
        {"country": "ES", "orders": 2, "revenue": Decimal("145.50")},
        {"country": "FR", "orders": 1, "revenue": Decimal("40.25")},
        {"country": "IT", "orders": 1, "revenue": Decimal("15.00")},
    ]
    assert tables["rejects"] == []


def test_a_deleted_row_is_gone_and_its_changes_stay() -> None:
    row = {"id": 7, "customer": 1, "status": "new", "amount": "5.00"}
    changes = [
        {**row, "change_op": "c", "change_lsn": 1},
        {**row, "change_op": "d", "change_lsn": 2},
    ]

    tables = tables_of(orders, {"shop.app.orders": changes})

    assert tables["orders"] == []
    assert sorted(row["change_op"] for row in tables["order_changes"]) == ["c", "d"]


def test_a_change_that_is_sent_again_counts_once() -> None:
    change = {"id": 7, "customer": 1, "status": "new", "change_op": "c", "change_lsn": 1}

    tables = tables_of(orders, {"shop.app.orders": [change, change]})

    assert [row["id"] for row in tables["order_changes"]] == [7]


def test_the_law_of_slices() -> None:
    few = {topic: changes[-4:] for topic, changes in EVENTS.items()}

    law_of_slices(orders, few, cuts=1, large=False)
