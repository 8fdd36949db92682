"""Tests of the pipeline people: connections, unread messages, home pages and the funnel."""

from pathlib import Path
from typing import Any

import pytest

from kappa.testing import law_of_slices, read_events, tables_of
from pipelines.people import people

pytestmark = pytest.mark.usefixtures("warm_spark")
TOPICS = {topic.name for topic in people.topics}
EVENTS = {
    topic: events
    for topic, events in read_events(Path(__file__).parents[1] / "events").items()
    if topic in TOPICS
}


def connection(action: str, minute: int) -> dict[str, Any]:
    return {
        "pair": "ada+bob",
        "person": "ada",
        "other": "bob",
        "action": action,
        "happened_at": f"2026-01-31T08:{minute:02}:00Z",
    }


def message(id_: str, action: str, **more: str) -> dict[str, Any]:
    return {"id": id_, "action": action, "happened_at": "2026-01-31T08:00:00Z", **more}


def test_the_sample_gives_these_rows() -> None:
    tables = tables_of(people, EVENTS)

    assert len(tables["connections"]) == 22
    assert [(row["person"], row["unread"]) for row in tables["unread_counts"]] == [
        ("bob", 2),
        ("cleo", 1),
        ("gus", 3),
    ]
    home = [row["part"] for row in tables["home_pages"] if row["person"] == "ada"]
    assert home == ["settings", "people", "feed", "messages"]
    assert tables["funnel"] == [
        {"source": "advert", "signed_up": 2, "connected": 2, "messaged": 2},
        {"source": "friend", "signed_up": 8, "connected": 5, "messaged": 4},
        {"source": "search", "signed_up": 2, "connected": 2, "messaged": 1},
    ]
    assert tables["rejects"] == []


def test_a_connection_is_there_for_both_until_they_part() -> None:
    met, parted = connection("connected", 1), connection("parted", 2)

    tables = tables_of(people, {"connections": [met]})
    pairs = [(row["person"], row["other"]) for row in tables["connections"]]
    assert pairs == [("ada", "bob"), ("bob", "ada")]
    assert tables_of(people, {"connections": [met, parted]})["connections"] == []


def test_a_message_that_is_read_twice_counts_once() -> None:
    sent = [message(id_, "sent", sender="ada", recipient="bob", text="Hello!") for id_ in "12"]
    read = message("1", "read")

    tables = tables_of(people, {"messages": [*sent, read, read]})

    assert tables["unread_counts"] == [{"person": "bob", "unread": 1}]


def test_an_action_that_the_schema_forbids_is_a_reject() -> None:
    tables = tables_of(people, {"messages": [message("1", "forwarded")]})

    assert [row["reason"] for row in tables["rejects"]] == ["against_schema"]


def test_the_law_of_slices() -> None:
    few = {topic: events[:2] for topic, events in EVENTS.items()}

    law_of_slices(people, few, cuts=1, large=False)
