"""The client with a real broker: acknowledged records exist, uncommitted ones are hidden."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from fenced_cluster import fenced_cluster

from kappa.base.errors import Conflict, KappaError, Unreachable, UsageError
from kappa.declare.topic import Topic
from kappa.kafka.broker.broker import partition_bytes
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.state.offsets import Offsets

pytestmark = pytest.mark.jvm


def a_topic(name, **options):
    return Topic(name, **{"event": "id string", **options})


def values(log, name, start=None, end=None):
    found = log.records([name], start or Offsets(), end or log.end([name]))
    return [record.value for record in found]


def test_creating_twice_is_creating_once(log, topic_name):
    facts = log.create(a_topic(topic_name, partitions=3))

    assert log.create(a_topic(topic_name, partitions=3)) == facts
    assert log.topics()[topic_name] == facts
    assert facts.partitions == 3


def test_another_number_of_partitions_is_a_conflict(log, topic_name):
    log.create(a_topic(topic_name, partitions=2))

    with pytest.raises(Conflict, match="2 partitions, and is declared with 3"):
        log.create(a_topic(topic_name, partitions=3))


def test_a_history_is_kept_for_ever_and_a_declared_setting_wins(log, topic_name):
    log.create(a_topic(f"{topic_name}.kept"))
    log.create(a_topic(f"{topic_name}.short", config={"retention.ms": "60000"}))
    log.create(a_topic(f"{topic_name}.latest", kind="compacted", key="id"))

    assert log.config(f"{topic_name}.kept")["retention.ms"] == "-1"
    assert log.config(f"{topic_name}.short")["retention.ms"] == "60000"
    assert log.config(f"{topic_name}.latest")["cleanup.policy"] == "compact"


def test_one_broker_alone_has_one_replica_of_a_topic(log, topic_name):
    log.create(a_topic(topic_name, partitions=2))

    facts = log.facts(topic_name)
    assert (facts.partitions, facts.replicas, log.brokers()) == (2, 1, 1)
    with pytest.raises(KappaError, match=f"topic {topic_name}.more could not be created"):
        log.create(a_topic(f"{topic_name}.more", config={"retention.ms": "-2"}))


def test_a_topic_of_log_append_time_is_made_so_and_another_kind_is_a_conflict(log, topic_name):
    paid = f"{topic_name}.paid"
    log.create(a_topic(topic_name))
    log.create(a_topic(paid, identity="id"))
    log.produce([ProducedRecord(b"{}", timestamp_ms=1)], paid)

    assert log.create(a_topic(paid, identity="id")).partitions == 1
    assert next(log.records([paid], Offsets(), log.end([paid]))).timestamp_ms > 1
    with pytest.raises(Conflict, match=r"there with message.timestamp.type=CreateTime") as refused:
        log.create(a_topic(topic_name, identity="id"))
    command = f"kappa topics alter {topic_name} --set message.timestamp.type=LogAppendTime"
    assert command in refused.value.hint


def test_a_setting_that_kafka_does_not_know_is_said(log, topic_name):
    with pytest.raises(KappaError, match=f"topic {topic_name} could not be created"):
        log.create(a_topic(topic_name, config={"no.such.setting": "1"}))


def test_a_topic_made_again_has_another_id(log, topic_name):
    first = log.create(a_topic(topic_name))
    log.delete(topic_name)
    assert log.facts(topic_name) is None
    log.delete(topic_name)

    assert log.create(a_topic(topic_name)).id != first.id


def test_partitions_are_added_and_never_taken(log, topic_name):
    before = log.create(a_topic(topic_name, partitions=1))

    assert log.add_partitions(topic_name, 3).partitions == 3
    assert log.add_partitions(topic_name, 2).partitions == 3
    assert log.facts(topic_name).id == before.id


def test_what_is_acknowledged_is_there_with_key_time_and_headers(log, topic_name):
    log.create(a_topic(topic_name, partitions=2))
    at, headers = 1_357_000_000_000, (("from", b"here"), ("none", None))
    key, value = "schlüssel".encode(), "ä🚀".encode()
    sent = ProducedRecord(value, key=key, timestamp_ms=at, headers=headers, partition=1)

    acknowledged = log.produce([sent, ProducedRecord(None, key=b"gone", partition=1)], topic_name)

    assert acknowledged.count == 2
    assert acknowledged.offsets == Offsets({topic_name: {1: 2}})
    first, tombstone = log.records([topic_name], Offsets(), acknowledged.offsets)
    assert first == Record(topic_name, 1, 0, at, key, value, headers, leader_epoch=0)
    assert (tombstone.key, tombstone.value) == (b"gone", None)


def test_a_key_lies_where_javas_clients_put_it(log, topic_name):
    # Kafka's own UtilsTest gives murmur2 of these keys; the partition is its positive value modulo
    # the count.
    hashes = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    log.create(a_topic(topic_name, partitions=7))
    end = log.produce([ProducedRecord(b"{}", key=key) for key in hashes], topic_name).offsets

    places = {record.key: record.partition for record in log.records([topic_name], Offsets(), end)}
    assert places == {key: (number & 0x7FFFFFFF) % 7 for key, number in hashes.items()}


def test_where_a_partition_stood_at_a_time(log, topic_name):
    log.create(a_topic(topic_name, partitions=3))
    begun = 1_700_000_000_000
    records = [
        ProducedRecord(b"", timestamp_ms=begun + late, partition=part)
        for part, late in ((0, 0), (0, 1_000), (1, 0))
    ]
    log.produce(records, topic_name)

    stood = {late: log.at_time([topic_name], begun + late) for late in (0, 500, 2_000)}
    expected = {0: {0: 0, 1: 0, 2: 0}, 500: {0: 1, 1: 1, 2: 0}, 2_000: {0: 2, 1: 1, 2: 0}}
    assert stood == {late: Offsets({topic_name: each}) for late, each in expected.items()}
    assert stood[2_000] == log.end([topic_name])
    assert log.at_time([], begun) == Offsets()


def test_the_newest_time_and_the_settings_of_topics(log, topic_name):
    """A topic without records has no newest time. The last record may not be the newest one."""
    log.create(a_topic(topic_name, partitions=2))
    assert log.newest_times([topic_name]) == {}
    at = 1_700_000_000_000
    log.produce(
        [
            ProducedRecord(b"", timestamp_ms=at + late, partition=part)
            for part, late in ((0, 5_000), (0, 0), (1, 2_000))
        ],
        topic_name,
    )

    assert log.newest_times([topic_name]) == {topic_name: at + 5_000}
    assert log.newest_times([]) == {}
    assert log.configs([topic_name]) == {topic_name: log.config(topic_name)}
    assert log.configs([]) == {}


def test_our_brokers_partitions_have_a_size(broker, log, topic_name):
    log.create(a_topic(topic_name, partitions=2))
    log.produce([ProducedRecord(os.urandom(10_000), partition=1)], topic_name)

    sizes = partition_bytes(broker.log_file.parent.parent, [topic_name])[topic_name]

    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 11_000


def test_many_records_are_all_acknowledged_in_order(log, topic_name):
    log.create(a_topic(topic_name))
    seen, sent = list[int](), [b"%d" % n for n in range(50_000)]

    acknowledged = log.produce(map(ProducedRecord, sent), topic_name, on_progress=seen.append)

    assert acknowledged.count == seen[-1] == 50_000
    assert seen == sorted(seen)
    assert values(log, topic_name) == sent


def test_a_producer_kept_open_counts_over_topics(log, topic_name):
    one, other = f"{topic_name}.one", f"{topic_name}.other"
    for name in (one, other):
        log.create(a_topic(name))

    with log.producer() as producer:
        producer.send(one, ProducedRecord(b"1"))
        assert producer.flush().count == 1
        producer.send(other, ProducedRecord(b"2"))

    assert producer.acknowledged.count == 2
    assert producer.acknowledged.offsets == Offsets({one: {0: 1}, other: {0: 1}})


def test_a_record_too_large_is_said_with_what_was_acknowledged(log, topic_name):
    log.create(a_topic(topic_name, config={"max.message.bytes": "1000"}))
    producer = log.producer()
    producer.send(topic_name, ProducedRecord(b"small"))
    producer.flush()
    headers = (("random", bytes(range(256)) * 100),)
    producer.send(topic_name, ProducedRecord(b"x" * 500_000, headers=headers))

    with pytest.raises(KappaError, match="1 of 2 records were acknowledged"):
        producer.flush()


def test_a_partition_that_is_not_there_is_named(log, topic_name):
    log.create(a_topic(topic_name, partitions=2))

    sentence = f"topic {topic_name}, partition 7.*Unknown partition"
    with pytest.raises(KappaError, match=sentence) as refused:
        log.produce([ProducedRecord(b"x", partition=7)], topic_name)

    assert refused.value.hint.startswith("0 of 1 records were acknowledged; kappa topics list")


def test_a_topic_that_nobody_declares_keeps_all(log, topic_name):
    assert log.create_undeclared(topic_name, 3).partitions == 3
    assert log.config(topic_name)["retention.ms"] == "-1"
    with pytest.raises(Conflict, match=f"topic {topic_name} is there already, with 3 partitions"):
        log.create_undeclared(topic_name, 3)


def test_an_empty_topic_ends_where_it_begins(log, topic_name):
    log.create(a_topic(topic_name, partitions=2))

    assert log.beginning([topic_name]) == log.end([topic_name]) == Offsets.zero({topic_name: 2})
    assert values(log, topic_name) == []


def test_an_open_transaction_holds_the_end_back_and_an_aborted_one_leaves_a_hole(log, topic_name):
    log.create(a_topic(topic_name))
    log.produce([ProducedRecord(b"before")], topic_name)
    options = {"bootstrap.servers": log.bootstrap_servers, "transactional.id": topic_name}
    writer = KafkaProducer({**options, "log_level": 0})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic_name, b"aborted")
    writer.flush(30)

    assert log.end([topic_name]) == Offsets({topic_name: {0: 1}})
    assert log.high_watermark([topic_name]) == Offsets({topic_name: {0: 2}})
    writer.abort_transaction(30)
    writer.begin_transaction()
    writer.produce(topic_name, b"committed")
    writer.commit_transaction(30)
    # Two records and two markers are behind the first. Kafka writes the markers after it has
    # answered the commit.
    behind = Offsets({topic_name: {0: 5}})
    deadline = time.monotonic() + 20
    while log.end([topic_name]) != behind:
        assert time.monotonic() < deadline
    assert log.high_watermark([topic_name]) == behind
    assert values(log, topic_name) == [b"before", b"committed"]


def test_a_leader_that_is_away_is_asked_for_anew(log, topic_name, monkeypatch):
    """A missing leader is asked for again, although librdkafka remembers that there is none.

    This is the case after a broker that was suspended.
    """
    log.create(a_topic(topic_name, partitions=3))
    described = list[object]()
    real_describe, real_offsets = log.admin.describe_topics, log.admin.list_offsets

    def describe(topics, **options):
        described.append(topics)
        return real_describe(topics, **options)

    def offsets(asked, **options):
        if len(described) > 1:
            return real_offsets(asked, **options)
        failed = Future()
        failed.set_exception(KafkaException(KafkaError(KafkaError._NOENT)))
        return dict.fromkeys(asked, failed)

    monkeypatch.setattr(log.admin, "describe_topics", describe)
    monkeypatch.setattr(log.admin, "list_offsets", offsets)

    assert log.end([topic_name]) == Offsets.zero({topic_name: 3})


def test_a_topic_is_made_once_the_cluster_takes_its_broker_back(log, topic_name, monkeypatch):
    """A topic is created once the cluster unfences its broker; the refusals are simulated.

    The controller fences a broker that was suspended.
    """
    fenced = KafkaError(
        KafkaError.INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )
    refusals, real_create = [fenced] * 3, log.admin.create_topics

    def create(topics, **options):
        if not refusals:
            return real_create(topics, **options)
        failed = Future()
        failed.set_exception(KafkaException(refusals.pop()))
        return dict.fromkeys([each.topic for each in topics], failed)

    monkeypatch.setattr(log.admin, "create_topics", create)

    assert log.create(a_topic(topic_name)).partitions == 1


def test_a_client_that_found_no_broker_is_replaced():
    """A client that found no broker is replaced, because librdkafka may never look again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        log = Log(f"127.0.0.1:{silent.getsockname()[1]}", patience_seconds=1)
        client = log.admin
        with pytest.raises(Unreachable):
            log.topics()

        assert log.admin is not client


def test_a_cluster_whose_brokers_are_all_fenced_ends_no_process():
    """If all brokers are fenced, the process lives; librdkafka's DescribeCluster would end it."""
    with fenced_cluster() as cluster:
        log = Log(cluster.address, patience_seconds=2)
        assert log.brokers() == 1
        cluster.fenced = True

        with pytest.raises(Unreachable):
            log.brokers()
        cluster.fenced = False
        assert log.brokers() == 1


READS = [(0, 2, [b"0", b"1"]), (1, 3, [b"1", b"2"]), (2, 2, [])]


@pytest.mark.parametrize(("start", "end", "expected"), READS)
def test_reading_takes_the_start_and_leaves_the_end(log, topic_name, start, end, expected):
    log.create(a_topic(topic_name))
    log.produce((ProducedRecord(b"%d" % n) for n in range(4)), topic_name)

    between = (Offsets({topic_name: {0: offset}}) for offset in (start, end))
    assert values(log, topic_name, *between) == expected


def test_keys_are_read_from_an_offset_to_the_end_tombstones_too(log, topic_name):
    log.create(a_topic(topic_name, partitions=2, kind="compacted", key="id"))
    sent = [ProducedRecord(b"%d" % n, key=b"k%d" % n, partition=n % 2) for n in range(4)]
    late = ProducedRecord(b"9", key=b"\xff", partition=1)
    log.produce([*sent, ProducedRecord(None, key=b"k0", partition=0), late], topic_name)

    def keys(start):
        return sorted(log.keys(topic_name, Offsets({topic_name: start})))

    assert keys({0: 1, 1: 2}) == [b"k0", b"k2", b"\xff"]
    # A partition that is not named counts as 0.
    assert keys({0: 3}) == [b"k1", b"k3", b"\xff"]
    assert list(log.keys(topic_name, log.end([topic_name]))) == []


def test_keys_are_read_from_where_the_log_begins_where_that_is_later(log, topic_name):
    log.create(a_topic(topic_name, config={"retention.ms": "-1"}))
    log.produce([ProducedRecord(b"%d" % n, key=b"k%d" % n) for n in range(4)], topic_name)
    deleted = log.admin.delete_records([TopicPartition(topic_name, 0, 2)])
    for future in deleted.values():
        future.result(20)

    assert list(log.keys(topic_name, Offsets())) == [b"k2", b"k3"]


def test_a_topic_that_is_not_there_is_named(log, topic_name):
    with pytest.raises(UsageError, match=topic_name):
        log.produce([ProducedRecord(b"x")], topic_name)
    with pytest.raises(UsageError, match=topic_name):
        log.end([topic_name])


def test_a_broker_that_is_not_there_is_unreachable_and_the_hint_starts_it():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{nobody.getsockname()[1]}"

        with pytest.raises(Unreachable, match="kappa up -d"):
            Log(nowhere, patience_seconds=1.0).topics()


def test_an_option_that_kafka_does_not_know_is_a_usage_error():
    with pytest.raises(UsageError, match=r"kafka\.options"):
        Log("127.0.0.1:1", {"no.such.option": "1"}).topics()
