"""A sink's rows in other formats than JSON: a topic of that format reads what is served."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from changing import ChangingWorld
from sinking import courier, records_of, served_records, wait_for

from kappa import Avro, Csv, Topic
from kappa.declare.sink import SinkBirth, SinkFormat
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.records.record import RecordReader
from kappa.serving.outlets.changes.filter import Filter
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.jvm]

COLUMNS = ("rows", "least")
FORMATS: Mapping[str, Any] = {
    "csv": Csv(separator=";"),
    "avro": Avro("tests/data/totals.avsc"),
}


def rows_read(log: Log, topic: Topic) -> dict[bytes | None, Any]:
    """Returns the newest row of each key of a topic, as a pipeline reads it."""
    read = RecordReader(topic).read
    rows: dict[bytes | None, Any] = {}
    for record in records_of(log, topic.name):
        if record.value is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = read(record.key, record.value)
    return rows


@pytest.mark.parametrize("name", FORMATS)
def test_a_topic_of_the_format_has_what_is_served(
    name: str, log: Log, broker: Broker, topic_name: str, tmp_path: Path
) -> None:
    form = FORMATS[name]
    sink = SinkBirth(topic_name, "totals", columns=COLUMNS, format=SinkFormat.of(form).text)
    event = "k string, rows bigint, least double"
    topic = Topic(topic_name, event=event, format=form)
    root = tmp_path / "root"
    root.mkdir()
    chosen = Filter(COLUMNS)
    world = ChangingWorld(Store(root), 7, (sink,), now=time.time())

    def has_all() -> bool:
        if log.facts(topic_name) is None:
            return False
        served = served_records(world.store, "totals", chosen)
        wanted = {key.encode(): tuple(json.loads(row).values()) for key, row in served.items()}
        return rows_read(log, topic) == wanted

    try:
        with courier(tmp_path, root, broker.bootstrap_servers):
            for step in range(6):
                world.fold()
                if step % 3 == 2:
                    world.serve(1 - world.builds.index(world.live), asked=step % 2 == 0)
                wait_for(has_all, f"topic {topic_name}")
        assert len(records_of(log, topic_name)) > 5
    finally:
        world.close()
