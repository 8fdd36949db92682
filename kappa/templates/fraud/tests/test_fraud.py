"""Tests of the rows that the pipeline fraud computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.fraud import fraud

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_transfer_after_three_failed_logins_is_suspicious() -> None:
    logins = [
        {"id": f"l{n}", "account": "a", "ok": n == 4, "happened_at": f"2026-01-31T14:0{n}:00Z"}
        for n in range(1, 5)
    ]
    transfer = {"id": "t", "account": "a", "amount": 500, "happened_at": "2026-01-31T14:10:00Z"}

    tables = tables_of(fraud, {"logins": logins, "transfers": [transfer]})
    assert [row["transfer"] for row in tables["suspicious_transfers"]] == ["t"]

    tables = tables_of(fraud, {"logins": logins[1:], "transfers": [transfer]})
    assert tables["suspicious_transfers"] == []


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(fraud, EVENTS)

    accounts = [(row["account"], row["transfers"]) for row in tables["suspicious_accounts"]]
    assert accounts == [("a1", 2), ("a2", 1), ("a6", 1), ("a7", 5), ("a9", 1)]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(fraud, few, cuts=1, large=False)
