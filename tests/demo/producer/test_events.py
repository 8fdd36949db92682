"""Laws of the demo's data: always the same, without repeats, with everything the story needs."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from demo.producer.events import PARTITIONS, first_count, first_events, further_events, partition

pytestmark = pytest.mark.slow

FEW = 25_000


def test_the_same_events_come_in_the_same_order_each_time() -> None:
    assert list(islice(further_events(), 500)) == list(islice(further_events(), 500))
    assert list(islice(first_events(), 5_000)) == list(islice(first_events(), 5_000))


def test_there_are_as_many_first_events_as_is_said() -> None:
    assert first_count(FEW) == sum(1 for _ in first_events(FEW))
    assert first_count(100) == sum(1 for _ in first_events(100))
    assert first_count() > 336_776


def test_no_flight_comes_twice() -> None:
    flights = [
        event.key
        for event in (*first_events(FEW), *islice(further_events(), 5_000))
        if event.topic == "flights" and event.valid
    ]

    assert len(set(flights)) == len(flights)


def test_a_key_is_in_one_partition_and_is_repeated_by_the_value() -> None:
    for event in first_events(1_000):
        assert event.partition == partition(event.topic, event.key) < PARTITIONS[event.topic]
        if event.value is not None and event.valid:
            document = json.loads(event.value)
            assert (
                event.key
                == document[
                    {
                        "flights": "id",
                        "planes": "tailnum",
                        "airlines": "carrier",
                        "airports": "faa",
                    }[event.topic]
                ]
            )


def test_updates_tombstones_cancellations_and_rubbish_are_among_them() -> None:
    events = list(first_events(FEW))
    kinds = Counter((event.topic, event.value is None, event.valid) for event in events)

    assert kinds["planes", True, True] > 0
    assert kinds["airlines", True, True] > 0
    assert (kinds["airports", False, True], kinds["airports", True, True]) == (1_458, 1)
    assert kinds["flights", False, False] == 4
    assert sum(1 for event in events if event.topic == "airlines" and event.key == "FL") == 2
    assert any(
        json.loads(event.value)["dep_time"] is None
        for event in events
        if event.topic == "flights" and event.valid and event.value
    )


def test_further_events_go_on_after_the_year_and_lie_in_the_past() -> None:
    flight = next(event for event in further_events() if event.topic == "flights")

    assert json.loads(flight.value or b"")["day"] == "2014-01-07"
    assert flight.timestamp_ms is not None
    assert flight.timestamp_ms < 1_577_836_800_000
