"""Tests of the rows that the pipeline operations computes from given events."""

from pathlib import Path

import pytest

from kappa.testing import Event, law_of_slices, read_events, tables_of
from pipelines.operations import operations

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")
LINE = '203.0.113.4 - - [31/Jan/2026:14:00:00 +0000] "{} HTTP/1.1" {} 12 "-" "-"'


def stat(line: str) -> Event:
    return Event(line.encode(), line.partition(".")[0])


def test_a_sampled_counter_stands_for_more() -> None:
    lines = ("search.queries:3|c|@0.1", "search.queries:2|c", "search.request:40|ms")
    tables = tables_of(operations, {"stats": [*map(stat, lines)]})

    assert [row["total"] for row in tables["counts"]] == [32]
    assert [(row["requests"], row["p99_ms"]) for row in tables["latencies"]] == [(1, 40.0)]


def test_a_line_that_is_no_statistic_is_a_reject() -> None:
    lines = ("search.queries", "search.queries:3|x", "search.queries:3|c|@0")
    tables = tables_of(operations, {"stats": [*map(stat, lines)]})

    assert [row["reason"] for row in tables["rejects"]] == ["no_match"] * 3


def test_routes_are_few_whatever_strangers_ask_for() -> None:
    asked = [("GET /cart/7?a=b", 200), ("GET /cart", 503), *((f"GET /{n}.php", 404) for n in "123")]
    hits = [Event(LINE.format(*each).encode()) for each in asked]
    tables = tables_of(operations, {"hits": hits})

    found = [(row["route"], row["hits"], row["errors"]) for row in tables["route_hits"]]
    assert found == [("(not found)", 3, 0), ("/cart", 2, 1)]


def test_a_silent_service_is_reported_and_so_is_its_return() -> None:
    tables = tables_of(operations, EVENTS)

    silences = sorted((row["service"], row["event"]) for row in tables["silences"])
    assert silences == [("login", "silent"), ("search", "back"), ("search", "silent")]
    assert [row["service"] for row in tables["silent_services"]] == ["login"]
    assert [(row["service"], row["since"].minute) for row in tables["slow_minutes"]] == [
        ("checkout", 6),
        ("checkout", 7),
    ]
    assert tables["rejects"] == []


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(operations, few, cuts=1, large=False)
