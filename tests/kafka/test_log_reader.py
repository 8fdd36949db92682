"""A reader reads range after range, each with the same result as Spark.

It reads across holes, and skips records that it received too early.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka import TopicPartition

from kappa.base.errors import Broken, KappaError, UsageError
from kappa.declare.topic import Topic
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice

pytestmark = pytest.mark.jvm
LOST = "the log no longer has what was to be read of"


@pytest.fixture
def reader(log):
    with log.reader() as opened:
        yield opened


def read(reader, topic: str, start: dict[int, int], end: dict[int, int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in end}
    for record in reader.read(Offsets({topic: start}), Offsets({topic: end})):
        found[record.partition].append(record.offset)
    return found


def produced(log, name: str, count: int, *, partitions: int = 2) -> None:
    log.create(Topic(name, event="id string", partitions=partitions))
    log.produce((ProducedRecord(b"%d" % n, partition=n % partitions) for n in range(count)), name)


def writing(log, name: str) -> KafkaProducer:
    """Returns a producer that is ready to begin transactions."""
    options = {"bootstrap.servers": log.bootstrap_servers, "transactional.id": name}
    writer = KafkaProducer({**options, "log_level": 0})
    writer.init_transactions(30)
    return writer


def test_ranges_follow_each_other_without_a_record_lost_or_read_twice(log, reader, topic_name):
    produced(log, topic_name, 2_000)

    assert read(reader, topic_name, {0: 0, 1: 0}, {0: 3, 1: 0}) == {0: [0, 1, 2], 1: []}
    assert read(reader, topic_name, {0: 3, 1: 0}, {0: 3, 1: 900}) == {0: [], 1: list(range(900))}
    rest = {0: list(range(3, 1000)), 1: list(range(900, 1000))}
    assert read(reader, topic_name, {0: 3, 1: 900}, {0: 1000, 1: 1000}) == rest


def test_a_range_may_begin_anywhere_also_before_the_last(log, reader, topic_name):
    produced(log, topic_name, 20)

    assert read(reader, topic_name, {0: 5}, {0: 8}) == {0: [5, 6, 7]}
    assert read(reader, topic_name, {0: 6}, {0: 7}) == {0: [6]}
    assert read(reader, topic_name, {0: 9, 1: 9}, {0: 10, 1: 10}) == {0: [9], 1: [9]}


def test_a_range_that_was_not_read_to_its_end_is_read_again(log, reader, topic_name):
    produced(log, topic_name, 20)

    cut_short = reader.read(Offsets({topic_name: {0: 0}}), Offsets({topic_name: {0: 9}}))
    assert next(cut_short).offset == 0
    cut_short.close()

    assert read(reader, topic_name, {0: 0}, {0: 4}) == {0: [0, 1, 2, 3]}


def test_small_and_large_slices_reach_ends_in_markers_and_aborted_records(log, reader, topic_name):
    from kappa.engine.read.source import KafkaAccess, LogSource

    produced(log, topic_name, 3, partitions=1)
    writer = writing(log, topic_name)
    for commit in (True, False, True, False):
        writer.begin_transaction()
        key, at = (b"\xff", -1) if commit else (None, 5)
        writer.produce(topic_name, b"in doubt", key=key, timestamp=at)
        writer.flush(30)
        writer.commit_transaction(30) if commit else writer.abort_transaction(30)
    log.produce([ProducedRecord(None, key=b"last")], topic_name)
    end = 12
    while log.end([topic_name]) != Offsets({topic_name: {0: end}}):
        pass

    source = LogSource(KafkaAccess(log.bootstrap_servers, {}), log)
    for cut in range(1, end):
        for start, stop in ((0, cut), (cut, end), (cut - 1, cut)):
            piece = Slice(1, 1, Offsets({topic_name: {0: start}}), Offsets({topic_name: {0: stop}}))
            assert source.read_records(piece).to_pylist() == [
                record
                for each in source.ranges(piece, topic_name)
                for batch in each.batches()
                for record in batch.to_pylist()
            ], (start, stop)
        first = read(reader, topic_name, {0: 0}, {0: cut})[0]
        assert first + read(reader, topic_name, {0: cut}, {0: end})[0] == [0, 1, 2, 3, 7, 11]
    source.close()


def test_it_waits_at_the_end_until_there_is_more_and_keeps_what_arrived(log, reader, topic_name):
    produced(log, topic_name, 4)
    end = Offsets({topic_name: {0: 2, 1: 2}})

    def more() -> bool:
        return any(reader.wait_beyond(end, 0.2) for _ in range(50))

    # From wherever the last range ended, and behind the range that ends here.
    for start in (0, 2):
        assert not any(reader.wait_beyond(end, 0.1) for _ in range(5))
        assert read(reader, topic_name, {0: start, 1: 2}, {0: 2, 1: 2})[0] == [0, 1][start:]
    log.produce([ProducedRecord(b"%d" % n, partition=1) for n in range(3)], topic_name)
    assert more()
    assert read(reader, topic_name, {0: 2, 1: 2}, {0: 2, 1: 4}) == {0: [], 1: [2, 3]}
    assert read(reader, topic_name, {0: 2, 1: 4}, {0: 2, 1: 5}) == {0: [], 1: [4]}

    # What only moves the end, and is not a record, is more, too.
    end = Offsets({topic_name: {0: 2, 1: 5}})
    assert not reader.wait_beyond(end, 0.1)
    writer = writing(log, topic_name)
    writer.begin_transaction()
    writer.produce(topic_name, b"in doubt", partition=0)
    writer.flush(30)
    assert not any(reader.wait_beyond(end, 0.1) for _ in range(5))
    writer.abort_transaction(30)
    assert more()


def test_what_the_log_has_lost_is_said_and_not_passed_over(log, reader, topic_name):
    produced(log, topic_name, 6, partitions=1)
    for future in log.admin.delete_records([TopicPartition(topic_name, 0, 4)]).values():
        future.result(20)

    with pytest.raises(Broken, match=f"{LOST} {topic_name} partition 0"):
        read(reader, topic_name, {0: 2}, {0: 6})


HEADERS = (("n\u00e4me", b"value"), ("n\u00e4me", b""), ("null", None))
ODD = (
    *(ProducedRecord(None, key=b"deleted"), ProducedRecord(b"", key=b"")),
    ProducedRecord(b"without a key", timestamp_ms=0),
    ProducedRecord(b"\xff" * 5_000, key=b"\x00", headers=HEADERS),
    ProducedRecord(b"last", key=b"last"),
)


@pytest.mark.parametrize("most", [1, 6_000, 64 << 20])
def test_large_slices_hold_byte_for_byte_what_small_ones_do(log, topic_name, monkeypatch, most):
    from kappa.engine.read.source import KafkaAccess, LogSource
    from kappa.kafka import bulk_reader

    monkeypatch.setattr(bulk_reader, "_BATCH_BYTES", most)
    log.create(Topic(topic_name, event="id string", partitions=1))
    log.produce(ODD * 3, topic_name)

    source = LogSource(KafkaAccess(log.bootstrap_servers, {}), log)
    piece = Slice(1, 1, Offsets({topic_name: {0: 0}}), Offsets({topic_name: {0: 14}}))
    here = source.read_records(piece).to_pylist()
    batches = list(source.batches(topic_name, 0, 0, 14))
    source.close()

    assert [record for batch in batches for record in batch.to_pylist()] == here
    assert [record["value"] for record in here[:3]] == [None, b"", b"without a key"]
    assert here[3]["headers"] == [{"key": key, "value": value} for key, value in HEADERS]
    assert len(batches) > 1 or most > 6_000
    for batch in batches:
        batch.validate(full=True)


def test_what_no_consumer_can_be_made_of_or_placed_at_is_said_clearly(log, topic_name):
    produced(log, topic_name, 1, partitions=1)

    # Requests for the broker's facts work with this option; a consumer does not.
    with pytest.raises(UsageError, match=r"kafka\.options: .*fetch\.max\.bytes"):
        list(Log(log.bootstrap_servers, {"fetch.max.bytes": "1"}).read_columns(topic_name, 0, 0, 1))
    unplaced = f"{topic_name} partition 0 could not be read from offset -77"
    with pytest.raises(KappaError, match=unplaced):
        list(log.read_columns(topic_name, 0, -77, 1))
    with pytest.raises(Broken, match=f"{LOST} {topic_name} partition 0"):
        list(log.read_columns(topic_name, 0, 7, 9))
