"""Laws of a replay's cost: it is computed from known facts, and unknown without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from journals import NOWHERE, at, staged
from msgspec import structs
from plans import log

from kappa.replay.rollout.plan.cost import Cost, cost_of, last_replays
from kappa.replay.rollout.plan.facts import DiskFacts, LogFacts, Replayed
from kappa.state.journal.events import CaughtUp, Event
from kappa.state.journal.journal import JournalRecord
from kappa.state.offsets import Offsets


def cost(facts: LogFacts | None = None, **given: Any) -> Cost:
    """Returns the cost of a replay of a whole log, while build a serves."""
    facts = facts or log()
    known = {"serving": "a", "disk": None, "replayed": None, **given}
    return cost_of({"orders"}, facts.beginning, facts, **known)


# Of a replay that was long enough to tell a rate.
REPLAYED = Replayed(records=400_000, seconds=100.0)


def test_records_are_counted_per_partition_from_where_the_log_begins() -> None:
    found = cost(log(beginning=41))

    assert [(each.partition, each.records) for each in found.partitions] == [(0, 59), (1, 59)]
    assert found.records == 118


def test_the_first_time_only_what_the_log_says_is_known() -> None:
    found = cost(serving=None, disk=DiskFacts(free=5_000_000))

    assert (found.disk_needed, found.rate, found.seconds, found.bytes) == (None, None, None, None)
    assert found.text == "200 records in 2 partitions, size unknown; disk unknown (5.0 MB free)"


def test_bytes_are_known_only_where_they_are_of_every_partition() -> None:
    assert cost(replace(log(), bytes={"orders": {0: 700, 1: 300}})).bytes == 1000
    assert cost(replace(log(), bytes={"orders": {0: 700}})).bytes is None


def test_disk_is_scaled_from_the_build_that_serves() -> None:
    assert cost(disk=DiskFacts(10_000, {"a": (3_000, 100)})).disk_needed == 6_000
    assert cost(disk=DiskFacts(10_000, {"a": (3_000, 0)})).disk_needed is None
    assert cost(disk=DiskFacts(10_000, {"b": (3_000, 100)})).disk_needed is None


def test_a_bucket_is_never_full() -> None:
    found = cost(disk=DiskFacts(None, {"a": (3_000, 100)}))

    assert (found.disk_needed, found.disk_free) == (6_000, None)
    assert found.text.endswith("; disk about 6.0 kB")


def test_a_long_replay_tells_a_rate_and_a_time() -> None:
    found = cost(log(end=1_000_000), replayed=REPLAYED)

    assert (found.rate, found.seconds) == (4_000.0, 500.0)
    assert found.text.endswith("about 8 min at 4,000 records/s")


def test_what_comes_in_meanwhile_takes_time_too() -> None:
    found = cost(log(end=3_600_000, hour_ago=1_800_000), replayed=REPLAYED)

    assert (found.rate, found.ingest) == (4_000.0, 1_000.0)
    assert found.seconds == pytest.approx(7_200_000 / 3_000)


def test_what_comes_in_faster_has_no_time() -> None:
    assert cost(log(end=7_200_000, hour_ago=0), replayed=REPLAYED).seconds is None


def test_an_estimate_has_the_law_of_slices() -> None:
    found = cost(log(end=1_000_000), replayed=REPLAYED, law_seconds=120.0)

    rate = "about 8 min at 4,000 records/s"
    assert found.text.endswith(f"{rate}, after at most 2 min for the law of slices")


def test_a_replay_of_few_records_tells_of_as_many() -> None:
    replayed = Replayed(records=99_999, seconds=3_600.0)
    alike, larger = (cost(log(end=end), replayed=replayed) for end in (99_999, 100_000))

    assert (alike.rate, alike.seconds) == (None, 3_600.0)
    assert (larger.rate, larger.seconds) == (None, None)


@pytest.mark.parametrize("end", [5, 400_000])
def test_a_replay_of_a_minute_tells_nothing(end: int) -> None:
    """A replay of under a minute gives no rate: it is mostly the start of Spark."""
    found = cost(log(end=end), replayed=Replayed(records=400_000, seconds=59.0))

    assert (found.rate, found.seconds) == (None, None)
    assert ("time" in found.text) == (end > 5)


def test_a_topic_that_began_within_the_hour_counts_from_its_beginning() -> None:
    assert cost(log(beginning=50, hour_ago=0)).ingest == pytest.approx(100 / 3600)


def timed(*events: tuple[str, Event]) -> list[JournalRecord]:
    return [
        JournalRecord(number, event, f"2024-01-01T{when}+00:00", "me")
        for number, (when, event) in enumerate(events, start=1)
    ]


def test_the_last_replay_of_a_pipeline_is_measured_by_the_journal() -> None:
    records = timed(
        ("10:00:00", staged("a")),
        ("10:01:40", CaughtUp(1, at(1_000))),
        ("11:00:00", staged("b")),
        ("11:00:30", staged("o", pipeline="other")),
        ("11:00:50", CaughtUp(3, at(2_500))),
    )

    found = last_replays(records, {"a": NOWHERE, "b": at(500)}.get)
    assert found == {"flights": Replayed(2_000, 50.0)}


def test_a_replay_whose_birth_or_times_cannot_be_read_is_not_measured() -> None:
    records = timed(("10:00:00", staged("a")), ("10:01:40", CaughtUp(1, at(1_000))))

    assert last_replays(records, lambda _: None) == {}
    timeless = [structs.replace(record, at="then") for record in records]
    assert last_replays(timeless, lambda _: Offsets()) == {}
