"""Laws of a redrive over HTTP: the plan, the confirmation, and the record in the real log."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from msgspec.structs import replace
from page_world import World
from test_page import serving

from kappa.declare.values.arrow import arrow_schema
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.replay.rollout.current_state import current_state
from kappa.replay.status.status_cache import SharedLooks
from kappa.state.build import TopicBirth, put_birth, read_birth, table_path
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import RedriveAsked
from kappa.tables.shape import REJECTS_BIRTH

REDRIVE = "/api/v1/rejects/redrive"
pytestmark = pytest.mark.jvm


@pytest.fixture
def topic(log: Log, topic_name: str) -> str:
    """Returns a topic with one record that is not JSON."""
    log.create_undeclared(topic_name, 1)
    log.produce([ProducedRecord(b"{", b"k")], topic_name)
    return topic_name


@pytest.fixture
def world(tmp_path: Path, log: Log, topic: str) -> World:
    """Returns a world whose build has rejected the topic's record."""
    made = World(tmp_path)
    made.desk = SharedLooks(made.here, connect=lambda: log)
    made.goes_live(made.build("web-1"), 1)
    birth, facts = read_birth(made.store, "web-1"), log.facts(topic)
    assert facts is not None
    topics = (*birth.topics, TopicBirth(topic, facts.id, "retained", 1))
    made.store.delete("builds/web-1/birth.json")
    put_birth(made.store, replace(birth, topics=topics))
    schema = arrow_schema(REJECTS_BIRTH.columns)
    known = {
        "topic": topic, "partition": 0, "offset": 0, "timestamp": made.now, "key": b"k",
        "value": b"{", "reason": "malformed_json", "detail": "not one JSON value",
    }  # fmt: skip
    row = {field.name: known.get(field.name) for field in schema}
    write_deltalake(
        table_path(made.store, "web-1", "rejects"),
        pa.Table.from_pylist([row], schema=schema),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction("web-1", 2)]),
    )
    frontiers = Frontiers(made.store, "web-1")
    last = frontiers.newest()
    assert last is not None
    versions = {**last.versions, "rejects": 1}
    frontiers.publish(replace(last, number=last.number + 1, versions=versions))
    made.be_up()
    return made


def test_a_fixed_record_is_produced_once(world: World, log: Log, topic: str) -> None:
    with serving(world) as server:
        found = server.ask("GET", f"/rejects/line?at={topic}:0:0")
        assert found.headers["content-type"].startswith("text/plain")
        line = found.body.decode()
        same = server.ask("POST", REDRIVE, {"lines": [line], "dry_run": True}).document
        assert (same["records"], same["unmended"]) == (0, 1)
        fixed = json.dumps({**json.loads(line), "value": {"page": "/"}}, indent=1)
        would = server.ask("POST", REDRIVE, {"lines": [fixed], "dry_run": True})
        assert would.document["would"] == f"1 record to topic {topic}"
        assert log.end([topic]).at(topic, 0) == 1

        assert server.ask("POST", REDRIVE, {"lines": [fixed]}).status == 428
        for _ in range(2):
            done = server.ask("POST", REDRIVE, {"lines": [fixed]}, Idempotency_Key="one")
            assert (done.status, done.document["records"]) == (202, 1)

    _, sent = log.records([topic], log.beginning([topic]), log.end([topic]))
    assert (sent.key, json.loads(sent.value or b"")) == (b"k", {"page": "/"})
    assert dict(sent.headers)["kappa-redrive"].startswith(f"{topic}:0:0@".encode())
    # Neither a dry run nor a repeated request is a redrive.
    assert [record.event for record in current_state(world.store).service] == [
        RedriveAsked("web", {topic: 1})
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1 is not JSON"),
        ('{"value": {}}', "names no reject"),
        ('{"value": {}, "headers": {"kappa-redrive": "visits:0:999@1"}}', "not a reject"),
    ],
)
def test_a_line_that_mends_nothing_is_refused(world: World, line: str, told: str) -> None:
    with serving(world) as server:
        refused = server.ask("POST", REDRIVE, {"lines": [line], "dry_run": True})
        gone = server.ask("GET", "/rejects/line?at=visits:0:999")

    assert refused.status == 400
    assert told in refused.document["detail"]
    assert gone.status == 404
