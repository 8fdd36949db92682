"""The topics that events are taken for, as the project declares them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa import Avro, Csv, Json, Topic
from kappa.base.errors import UsageError
from kappa.values.reason import Rejected
from serving.collector.events.declared import CollectedTopic, DeclaredTopics

ORDERS = Topic("orders", format=Avro("tests/data/order.avsc"), key="id")
SALES = Topic("sales", event="id string not null, amount int", format=Csv(), key="id")


def test_a_topic_of_avro_is_not_collected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names orders, whose events are Avro"):
        DeclaredTopics(tmp_path, ["orders"], say=print, load=lambda _: {"orders": ORDERS})


def test_a_topic_with_the_framing_of_a_registry_is_not_collected(tmp_path: Path) -> None:
    topic = Topic("bids", event="id string", format=Json(framed=True))
    with pytest.raises(UsageError, match="names bids, whose events begin with a registry's id"):
        DeclaredTopics(tmp_path, ["bids"], say=print, load=lambda _: {"bids": topic})


def test_a_line_of_csv_is_sent_as_it_is() -> None:
    topic = CollectedTopic(SALES)
    record = topic.record(b'"a17",3')
    assert (record.key, record.value) == (b"a17", b'"a17",3')
    with pytest.raises(Rejected):
        topic.record(b"a17,three")
