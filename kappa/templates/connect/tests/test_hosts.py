"""Tests of the pipeline hosts: metrics per five minutes, and overloaded hosts."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.hosts import hosts

pytestmark = pytest.mark.usefixtures("warm_spark")
METRICS = read_events(Path(__file__).parents[1] / "events")["metrics"]


def cpu(host: str, minute: int, value: float) -> dict[str, Any]:
    measured_at = f"2026-01-31T08:{minute:02}:00Z"
    return {"host": host, "name": "cpu_percent", "value": value, "measured_at": measured_at}


def test_a_host_is_overloaded_until_its_newest_value_is_low() -> None:
    high, low = cpu("web-1", 1, 97.5), cpu("web-1", 2, 40)

    (row,) = tables_of(hosts, {"metrics": [high]})["overloaded_hosts"]
    assert (row["host"], row["cpu_percent"]) == ("web-1", Decimal("97.50"))
    assert tables_of(hosts, {"metrics": [high, low]})["overloaded_hosts"] == []


def test_metrics_are_folded_by_five_minutes() -> None:
    tables = tables_of(hosts, {"metrics": [cpu("a", 1, 10), cpu("a", 4, 30), cpu("a", 5, 50)]})

    rows = [(row["samples"], row["mean"], row["highest"]) for row in tables["metrics_by_5_minutes"]]
    assert rows == [(2, 20, 30), (1, 50, 50)]


def test_the_sample_ends_with_an_overloaded_host() -> None:
    tables = tables_of(hosts, {"metrics": METRICS})

    assert [row["host"] for row in tables["overloaded_hosts"]] == ["web-2"]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    law_of_slices(hosts, {"metrics": METRICS[:4]}, cuts=1, large=False)
