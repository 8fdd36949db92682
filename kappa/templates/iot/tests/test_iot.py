"""Tests of the rows that the pipeline iot computes from given events."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kappa.testing import Event, law_of_slices, read_events, tables_of
from pipelines.iot import iot

pytestmark = pytest.mark.usefixtures("warm_spark")
EVENTS = read_events(Path(__file__).parents[1] / "events")


def test_a_silent_sensor_raises_an_alarm_and_comes_back() -> None:
    tables = tables_of(iot, EVENTS)

    alarms = [(row["sensor"], row["alarm"]) for row in tables["alarms"]]
    assert alarms == [("roof", "back"), ("roof", "silent"), ("roof", "silent")]
    assert [row["sensor"] for row in tables["silent_sensors"]] == ["roof"]
    assert tables["rejects"] == []


def test_a_late_reading_counts_where_it_was_taken() -> None:
    taken = "2026-01-31T14:02:00Z"
    arrived_ms = round(datetime(2026, 1, 31, 14, 30, tzinfo=UTC).timestamp() * 1000)
    reading = {"sensor": "hall", "celsius": 19.5, "happened_at": taken}

    tables = tables_of(iot, {"measurements": [Event(reading, "hall", timestamp_ms=arrived_ms)]})

    (row,) = tables["celsius_by_5_minutes"]
    assert (row["since"].minute, row["readings"], row["late"]) == (0, 1, 1)


def test_the_law_of_slices() -> None:
    few = {topic: events[:4] for topic, events in EVENTS.items()}

    law_of_slices(iot, few, cuts=1, large=False)
