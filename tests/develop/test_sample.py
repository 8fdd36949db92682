"""The sample of a topic: records of the topic, or events of the project's files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from kappa import Debezium, Topic
from kappa.base.errors import Unreachable, UsageError
from kappa.develop import sample as sampled
from kappa.develop.sample import (
    Samples,
    event_files,
    first_and_newest,
    read_events,
    read_topic,
)
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.state.offsets import Offsets

VISITS = Topic("visits", partitions=3, key="visitor", event="visitor string not null, n int")
CHANGES = Topic(
    "app.orders",
    format=Debezium(exactly_once=True),
    key="id",
    event="id int not null, amount int",
)


class FakeLog:
    """A log of one topic, in which each record's value is its offset."""

    def __init__(self, begin: dict[int, int], end: dict[int, int]) -> None:
        self.begin, self.ends = begin, end
        self.asked = 0

    def facts(self, name: str) -> str | None:
        self.asked += 1
        return name if name == "visits" else None

    def beginning(self, topics: Iterable[str]) -> Offsets:
        return Offsets(dict.fromkeys(topics, self.begin))

    def end(self, topics: Iterable[str]) -> Offsets:
        return Offsets(dict.fromkeys(topics, self.ends))

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        for name, partition, last in end.only({*topics}).items():
            for offset in range(start.at(name, partition), last):
                yield Record(name, partition, offset, 7, None, b"%d" % offset, ())


def test_the_first_and_the_newest_of_each_partition() -> None:
    begin = Offsets({"t": {0: 10, 1: 0, 2: 5}})
    end = Offsets({"t": {0: 9_000, 1: 2_100, 2: 5}})

    assert [*first_and_newest(begin, end)] == [
        (Offsets({"t": {0: 10, 1: 0}}), Offsets({"t": {0: 2_010, 1: 2_000}})),
        (Offsets({"t": {0: 8_800, 1: 2_000}}), Offsets({"t": {0: 9_000, 1: 2_100}})),
    ]


@pytest.mark.jvm
def test_records_of_a_real_topic(log: Log, topic_name: str) -> None:
    topic = Topic(topic_name, partitions=2, event="n int")
    log.create(topic)
    sent = [ProducedRecord(b"%d" % n, b"k", 1000 + n, (("h", b"x"),), n % 2) for n in range(5)]
    log.produce(sent, topic_name)

    found = read_topic(log, topic_name)

    assert found is not None
    assert sorted(found.records) == [
        (topic_name, n % 2, n // 2, (1000 + n) * 1000, b"k", b"%d" % n, (("h", b"x"),))
        for n in (0, 2, 4, 1, 3)
    ]
    assert read_topic(log, f"{topic_name}-missing") is None


def test_many_partitions_share_the_sample() -> None:
    ends = Offsets({"t": dict.fromkeys(range(100), 1_000_000)})

    ranges = [*first_and_newest(Offsets(), ends)]

    assert 15_000 < sum(stop.distance(start) for start, stop in ranges) <= 20_000


def test_a_topic_is_read_once(tmp_path: Path) -> None:
    log = FakeLog({0: 5}, {0: 8})
    samples = Samples(tmp_path, lambda: log)

    found = samples.sample(VISITS)

    assert [(each[1], each[2], each[3], each[5]) for each in found.records] == [
        (0, offset, 7_000, b"%d" % offset) for offset in (5, 6, 7)
    ]
    assert found.text == "3 records of topic visits"
    log.ends = {0: 9}
    assert samples.sample(VISITS) is found
    samples.forget()
    assert len(samples.sample(VISITS).records) == 4
    assert log.asked == 2


@pytest.mark.parametrize("is_up", [True, False])
def test_without_records_the_files_are_read(tmp_path: Path, is_up: bool) -> None:
    """An empty topic, a missing topic, and a broker that does not answer count as no broker."""

    def open_log() -> FakeLog:
        if not is_up:
            raise Unreachable("the broker does not answer")
        return FakeLog({0: 5}, {0: 5})

    samples = Samples(tmp_path, open_log)
    assert samples.sample(VISITS).text == (
        "no event of topic visits (write some to events/visits.ndjson)"
    )
    (tmp_path / "events").mkdir()
    file = tmp_path / "events" / "visits.ndjson"
    file.write_text('{"visitor": "ann"}\n')
    first = samples.sample(VISITS)
    assert first.text == "1 record of events/visits.ndjson"
    assert samples.sample(VISITS) is first
    file.write_text('{"visitor": "ann"}\n{"visitor": "bob"}\n')
    assert len(samples.sample(VISITS).records) == 2


def test_files_of_a_topic_by_their_names(tmp_path: Path) -> None:
    names = [
        *("visits.ndjson", "visits.envelopes.ndjson", "visits.csv"),
        *("visits.old.ndjson", "visits.md", "other.ndjson", "later"),
    ]
    for name in names:
        (tmp_path / name).touch()

    assert [file.name for file in event_files(tmp_path, "visits")] == [
        *("visits.csv", "visits.envelopes.ndjson", "visits.ndjson")
    ]
    assert event_files(tmp_path / "missing", "visits") == ()


def test_events_are_read_as_kappa_produce_reads_them(tmp_path: Path) -> None:
    lines = tmp_path / "visits.ndjson"
    lines.write_text('{"visitor": "ann", "n": 1}\n\n{"visitor": "bob"}\nno JSON\n')
    rows = tmp_path / "visits.csv"
    rows.write_text("visitor,n\nann,2\n")
    envelopes = tmp_path / "visits.envelopes.ndjson"
    envelopes.write_text('{"key": "x", "value": null, "timestamp": 5, "partition": 2}\n')

    found = read_events((lines, rows, envelopes), VISITS).records

    ann, bob = sum(b"ann") % 3, sum(b"bob") % 3
    assert [(key, value) for *_, key, value, _ in found[:2]] == [
        (b"ann", b'{"visitor": "ann", "n": 1}'),
        (b"bob", b'{"visitor": "bob"}'),
    ]
    assert [each[1] for each in found] == [ann, bob, 0, ann, 2]
    assert found[2][5] == b"no JSON"
    assert found[3][5] == b'{"visitor":"ann","n":2}'
    assert found[4][3:6] == (5_000, b"x", None)
    # Each partition counts on across the files.
    assert sorted((each[1], each[2]) for each in found) == sorted(
        (partition, offset)
        for partition in {each[1] for each in found}
        for offset in range(sum(each[1] == partition for each in found))
    )


def test_changes_of_a_database_are_envelopes(tmp_path: Path) -> None:
    file = tmp_path / "app.orders.ndjson"
    file.write_text('{"key": "{\\"id\\": 1}", "value": {"op": "c", "after": {"id": 1}}}\n')

    (record,) = read_events([file], CHANGES).records

    assert record[4:6] == (b'{"id": 1}', b'{"op": "c", "after": {"id": 1}}')


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "events" / "visits.envelopes.ndjson"
    file.parent.mkdir()
    file.write_text('{"value": null}\n{"valeu": 1}\n')

    with pytest.raises(UsageError, match="events/visits.envelopes.ndjson line 2 has a field valeu"):
        Samples(tmp_path, lambda: None).sample(VISITS)


def test_a_large_file_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "_MOST_RECORDS", 3)
    file = tmp_path / "events" / "visits.ndjson"
    file.parent.mkdir()
    file.write_text('{"visitor": "ann"}\n' * 9)

    assert len(Samples(tmp_path, lambda: None).sample(VISITS).records) == 3
    assert len(read_events([file], VISITS).records) == 9
