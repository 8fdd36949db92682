"""The archive of a topic: the decoded log, with each offset once, whichever process dies."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer as KafkaProducer

from kappa import Table, Topic, pipeline
from kappa.base.errors import Broken, DeclarationError, ExitCode, KappaError
from kappa.base.failpoint import acting
from kappa.code.fingerprint import _topic_text, declaration_lines
from kappa.declare.pipeline import Pipeline
from kappa.declare.values.tally import Tally
from kappa.engine.archive.archive_check import PartitionCheck, check_archive
from kappa.engine.archive.archive_writer import ArchiveWriter
from kappa.engine.archive.archiver import Archiver
from kappa.engine.children.rehearsal import MemoryLog
from kappa.engine.read.archive_reader import Archives, archive_fingerprint
from kappa.kafka.client import Log, TopicFacts
from kappa.kafka.producer import ProducedRecord
from kappa.records.decode.decode import decode_table
from kappa.records.decode.outcome import counts_in, decoded_columns
from kappa.state.files.address import arrow_source, files_in
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store
from kappa.state.witness import LostEnd, Witness, Witnesses
from kappa.tables.archive import ArchiveMark, folder, one_log, why_stopped
from kappa.tables.delta import Guard
from kappa.tables.stored_archive import Block, StoredArchive, open_archive
from kappa.tables.versions import files

pytestmark = pytest.mark.slow

EVENT = "visitor string not null, n int, tags array<string>, at timestamp"


def visits_topic(*, event: str = EVENT, key: str | None = "visitor", **more: Any) -> Topic:
    return Topic("visits", event=event, partitions=2, key=key, **more)


VISITS = visits_topic(archive=True)
ID = "topic-1"
FAILPOINTS = [
    *("archive.before_create", "archive.after_create"),
    *("archive.before_append", "archive.after_append"),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "ünder")


def some_log(records: int, seed: int = 7, *, is_valid: bool = False) -> MemoryLog:
    """Returns a log of events in two partitions, with holes, redriven records and decreasing times.

    Rejects and tombstones are among the records, unless `is_valid`.
    """
    draw, log = random.Random(seed), MemoryLog()
    clock = 1_700_000_000_000
    for number in range(records):
        clock += draw.choice([0, 1, 7, -40])
        part = draw.randrange(2)
        if draw.random() < 0.05:
            log.skip("visits", part, draw.randrange(1, 5))
        who = f"v{draw.randrange(9)}ü"
        event = {"visitor": who, "n": number, "tags": draw.choice([None, [], ["a", None]])}
        value = json.dumps({**event, "at": clock}).encode()
        headers = (
            (("kappa-redrive", f"visits:{part}:0@{clock}".encode()),)
            if draw.random() < 0.02 and log.ends["visits", part]
            else ()
        )
        sent = value if is_valid else draw.choice([value] * 8 + [None, b"{"])
        log.add("visits", part, sent, key=who.encode(), ms=clock, headers=headers)
    log.skip("visits", 0, 3)
    return log


def reading(log: MemoryLog) -> Callable[[int, int, int], Iterator[pa.RecordBatch]]:
    """Returns a reader of a partition of the log, in batches of a few records."""

    def read(partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        piece = Slice(0, 0, *(Offsets({"visits": {partition: at}}) for at in (start, end)))
        yield from log.read_records(piece).combine_chunks().to_batches(max_chunksize=40)

    return read


def archived(
    store: Store,
    log: MemoryLog,
    ends: Iterable[dict[int, int]],
    *,
    topic: Topic = VISITS,
    **options: int,
) -> ArchiveWriter:
    """Archives up to each of these offsets, one after the other; returns the writer."""
    writer = ArchiveWriter(store, topic, ID, **options)
    for each in ends:
        for partition, end in each.items():
            while (start := writer.mark().end.get(partition, 0)) < end:
                writer.append(partition, start, end, reading(log))
    return writer


def the_archive(store: Store, topic: Topic = VISITS) -> StoredArchive:
    found = open_archive(store.address(folder("visits", archive_fingerprint(topic))))
    assert found is not None
    return found


def rows(store: Store, topic: Topic = VISITS) -> pa.Table:
    """Returns all rows of the archive, read through Delta."""
    found = the_archive(store, topic)
    names = [name for name, _ in decoded_columns(topic)]
    return pa.concat_tables(
        pq.read_table(arrow_source(file), partitioning=None).select(names)
        for file in files(found.path, found.version, None)
    ).sort_by([("_partition", "ascending"), ("_offset", "ascending")])


def decoded(log: MemoryLog, end: Offsets, topic: Topic = VISITS) -> pa.Table:
    """Returns the same rows by decoding the log at once."""
    order = [("partition", "ascending"), ("offset", "ascending")]
    return decode_table(log.read_records(Slice(0, 0, Offsets(), end)).sort_by(order), topic, {}, {})


def steps(log: MemoryLog, at_once: int) -> Iterator[dict[int, int]]:
    """Yields offsets that approach the log's ends in steps."""
    ends = log.end.next["visits"]
    for reached in range(at_once, max(ends.values()) + at_once, at_once):
        yield {partition: min(reached, end) for partition, end in ends.items()}


@pytest.mark.parametrize(
    ("at_once", "sizes"),
    [
        (10_000, {}),
        (19, {}),
        (90, {"block_bytes": 6_000, "group_rows": 50}),
        (10_000, {"block_bytes": 6_000, "group_rows": 50}),
    ],
)
def test_an_archive_holds_what_decoding_the_log_gives_in_whatever_steps_it_was_made(
    store: Store, at_once: int, sizes: dict[str, int]
) -> None:
    log = some_log(600)

    mark = archived(store, log, steps(log, at_once), **sizes).mark()

    assert rows(store).equals(decoded(log, log.end))
    assert mark.end == log.end.next["visits"]
    for partition, seen in counts_in(decoded(log, log.end)).items():
        span = mark.end[partition]
        held = seen.decoded + seen.rejected + seen.tombstone
        tally = Tally(seen.decoded, 0, seen.rejected, seen.tombstone, absent=span - held)
        assert mark.tally[partition] == tally
        assert mark.log_time[partition] == seen.log_time


RAW = visits_topic(archive="raw")
REDECLARED = visits_topic(
    event="visitor string not null, n bigint not null, page string default '/'", archive=True
)


def raw_rows(rows: pa.Table) -> list[tuple[object, ...]]:
    names = ("_partition", "_offset", "_raw_key", "_raw_value", "_raw_headers")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True))


def checked(
    store: Store, log: MemoryLog, into: Path, *, beginning: int = 0, topic: Topic = VISITS
) -> list[PartitionCheck]:
    into.mkdir()
    begins = {0: beginning, 1: beginning}
    return list(check_archive(the_archive(store), topic, begins, reading(log), into))


@pytest.mark.parametrize("at_once", [10_000, 19])
def test_a_raw_archive_has_each_record_as_in_the_log_from_then_on(
    any_store: Store, tmp_path: Path, at_once: int
) -> None:
    store = any_store
    log = some_log(300)
    first = archived(store, log, [{0: 60, 1: 60}])
    assert first.mark().raw == {}

    mark = archived(store, log, steps(log, at_once), topic=RAW).mark()

    assert mark.raw == {0: ((60, mark.end[0]),), 1: ((60, mark.end[1]),)}
    raw = {
        (part, offset): (key, value, [{"key": n, "value": v} for n, v in headers] or None)
        for _, part, offset, _, key, value, headers in log.records
    }
    kept = {
        (part, offset): tuple(record)
        for part, offset, *record in raw_rows(rows(store))
        if offset >= 60
    }
    assert kept == {place: record for place, record in raw.items() if place[1] >= 60}
    # All else is as it was without.
    others = [name for name, _ in decoded_columns(VISITS) if not name.startswith("_raw_")]
    assert rows(store).select(others).equals(decoded(log, log.end).select(others))
    assert [each.wrong for each in checked(store, log, tmp_path / "links", topic=RAW)] == [None] * 2


def test_an_archive_that_keeps_raw_for_a_while_is_sound_and_says_where(
    any_store: Store, tmp_path: Path
) -> None:
    store = any_store
    log = some_log(300)
    for end, topic in ((20, RAW), (40, RAW), (60, VISITS), (90, RAW), (110, VISITS)):
        archived(store, log, [{0: end, 1: end}], topic=topic)

    assert the_archive(store).mark().raw == dict.fromkeys((0, 1), ((0, 40), (60, 90)))
    assert [each.wrong for each in checked(store, log, tmp_path / "links")] == [None] * 2
    # Of the log's beginning nothing reaches the topic any more.
    assert archive_all(store, REDECLARED, Broker(log, {0: 80, 1: 80})) == []
    assert the_archive(store, REDECLARED).mark().start == {0: 60, 1: 60}


class Broker:
    """A topic whose records before some offsets are lost; whoever asks for them is wrong."""

    def __init__(self, log: MemoryLog, begins: dict[int, int]) -> None:
        self.log = log
        self.begins = begins

    def facts(self, name: str) -> TopicFacts:
        return TopicFacts(name, ID, 2)

    def beginning(self, _topics: list[str]) -> Offsets:
        return Offsets({"visits": self.begins})

    def end(self, _topics: list[str]) -> Offsets:
        return self.log.end

    def last_before(self, _end: Offsets) -> dict[tuple[str, int], Witness]:
        return {}

    def lost_ends(self, _end: Offsets, _witnesses: Witnesses) -> tuple[LostEnd, ...]:
        return ()

    def batches(
        self, _topic: str, partition: int, start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        assert start >= self.begins[partition], "the topic has lost it"
        return reading(self.log)(partition, start, end)


def archive_all(store: Store, topic: Topic, broker: Broker) -> list[str]:
    """Runs an archiver until nothing is due; returns its messages."""
    said: list[str] = []
    work = Archiver(store, broker, broker, [topic], every_seconds=0.0, say=said.append)  # type: ignore[arg-type]  # what it asks of both
    while work.step(topic, threading.Event()):
        pass
    return said


@pytest.mark.parametrize("begins", [{0: 0, 1: 0}, {0: 90, 1: 30}, {0: 120, 1: 120}])
@pytest.mark.parametrize("done", [0, 50])
def test_a_changed_event_is_decoded_from_raw_records_that_the_topic_has_lost(
    store: Store, begins: dict[int, int], done: int
) -> None:
    log = some_log(400)
    archived(store, log, [{0: 120, 1: 120}], topic=RAW)
    archived(store, log, [{0: done, 1: done}], topic=REDECLARED)

    assert archive_all(store, REDECLARED, Broker(log, begins)) == []

    assert rows(store, REDECLARED).equals(decoded(log, log.end, REDECLARED))


def test_what_no_archive_has_raw_is_lost(store: Store) -> None:
    log = some_log(400)
    archived(store, log, [{0: 60, 1: 120}])
    archived(store, log, [{0: 120, 1: 120}], topic=RAW)

    # Partition 0 is there raw from 60 on, and partition 1 not at all.
    assert archive_all(store, REDECLARED, Broker(log, {0: 100, 1: 100})) == []

    mark = the_archive(store, REDECLARED).mark()
    assert mark.start == {0: 60, 1: 100}
    # What lies between the archive before and the topic is nowhere.
    log.skip("visits", 0, 500)
    assert archive_all(store, REDECLARED, Broker(log, {0: log.end.at("visits", 0), 1: 100})) == [
        (
            "topic visits is not archived any further: "
            "topic visits has lost records before they were archived: "
            f"partition 0 lost offsets {mark.end[0]} to {log.end.at('visits', 0) - 1}"
        )
    ]


def test_small_files_are_joined_and_what_they_replace_is_gone(any_store: Store) -> None:
    store = any_store
    log = some_log(400)

    archived(store, log, steps(log, 7))

    found = the_archive(store)
    path, blocks = found.path, found.blocks()
    assert len(blocks) < 2 * 9
    assert {f"{path}/{name}" for name in files_in(path)} == {block.path for block in blocks}
    # Its log is cut behind a checkpoint, now and then.
    commits = [name for name in files_in(f"{path}/_delta_log") if name.endswith(".json")]
    assert len(commits) == found.version % 50 + 1 < found.version
    # What was read bit by bit is not written so.
    assert all(pq.ParquetFile(arrow_source(block.path)).num_row_groups == 1 for block in blocks)
    # Each holds one stretch of one partition, and they follow one another.
    for partition in (0, 1):
        own = [block for block in found.blocks() if block.partition == partition]
        assert all(block.first <= block.least <= block.greatest for block in own)
        assert all(before.greatest < after.first for before, after in pairwise(own))


class _DiedError(Exception):
    """Stands for a process that is killed with -9."""


@pytest.mark.parametrize("point", FAILPOINTS)
def test_one_that_dies_goes_on_with_no_offset_twice_and_none_left_out(
    any_store: Store, point: str
) -> None:
    store = any_store
    log = some_log(300)
    passed = 0

    def die(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and (passed % 3 == 1):
            raise _DiedError

    with acting(die):
        for _ in range(200):
            try:
                archived(store, log, steps(log, 31))
                break
            except _DiedError:
                continue

    assert passed
    assert rows(store).equals(decoded(log, log.end))


def test_what_does_not_follow_is_refused(any_store: Store) -> None:
    store = any_store
    log = some_log(100)
    writer = archived(store, log, [{0: 20}])

    with pytest.raises(Broken, match="ends at 20"):
        writer.append(0, 25, 30, reading(log))
    # Who has looked before another one committed does not commit the same again.
    late = ArchiveWriter(store, VISITS, ID)
    writer.append(0, 20, 30, reading(log))
    with pytest.raises(KappaError, match="could not be appended"):
        late.append(0, 20, 30, reading(log))
    with pytest.raises(Broken, match="transaction 30 of kappa archive 0 is in"):
        the_archive(store).append(store, None, (), writer.mark(), Guard("kappa archive 0", 30))
    assert rows(store).equals(decoded(log, Offsets({"visits": {0: 30}})))


@pytest.mark.parametrize("is_valid", [False, True])
@pytest.mark.parametrize("cut", [0, 1, 57, 200])
def test_what_is_taken_of_a_range_is_what_decoding_it_gives(
    any_store: Store, tmp_path: Path, cut: int, *, is_valid: bool
) -> None:
    store = any_store
    log = some_log(500, is_valid=is_valid)
    writer = archived(store, log, steps(log, 45), block_bytes=5_000)
    before = decoded(log, Offsets({"visits": {0: cut, 1: cut}}))
    clock = {partition: seen.log_time for partition, seen in counts_in(before).items()}
    ends = writer.mark().end
    (tmp_path / "slice").mkdir()

    taken = Archives(store, [VISITS], {"visits": ID}).take(
        VISITS, {0: (cut, cut + 30), 1: (cut, ends[1] + 50)}, clock, tmp_path / "slice"
    )

    assert {partition: one.end for partition, one in taken.items()} == {0: cut + 30, 1: ends[1]}
    place, offset = pc.field("_partition"), pc.field("_offset")
    within = ((place == 0) & (offset >= cut) & (offset < cut + 30)) | (
        (place == 1) & (offset >= cut)
    )
    own = decoded(log, log.end).filter(within)
    assert {partition: one.seen for partition, one in taken.items()} == counts_in(own)
    linked = pa.concat_tables(
        pq.read_table(file, partitioning=None)
        for file in sorted((tmp_path / "slice").glob("*.parquet"), key=lambda file: int(file.stem))
    )
    assert linked.filter(within).select(own.schema.names).equals(own)
    for partition, one in taken.items():
        held = linked.filter(place == partition)
        assert one.is_whole is (held.num_rows == held.filter(within).num_rows)


def test_a_build_of_another_origin_topic_or_declaration_reads_the_log(
    store: Store, tmp_path: Path
) -> None:
    log = some_log(200)
    archived(store, log, [{0: 60, 1: 60}])
    into = tmp_path / "slice"
    into.mkdir()
    other = Topic("visits", event="visitor string not null, n bigint", partitions=2, key="visitor")

    assert set(Archives(store, [VISITS], {"visits": ID}).take(VISITS, {0: (0, 50)}, {}, into)) == {
        0
    }
    # Its log time would begin elsewhere.
    known = Archives(store, [VISITS], {"visits": ID})
    assert known.take(VISITS, {0: (40, 50)}, {}, into) == {}
    renewed = Archives(store, [VISITS], {"visits": "another"})
    assert renewed.take(VISITS, {0: (0, 50)}, {}, into) == {}
    assert Archives(store, [other], {"visits": ID}).take(other, {0: (0, 50)}, {}, into) == {}
    # What is asked for lies behind it.
    known = Archives(store, [VISITS], {"visits": ID})
    assert known.take(VISITS, {0: (60, 70), 1: (100, 120)}, {0: 1}, into) == {}
    known = Archives(store, [VISITS], {"visits": ID})
    assert known.end() == Offsets({"visits": {0: 60, 1: 60}})


@pytest.mark.parametrize("spoilt", ["file", "gone", "log"])
def test_an_archive_that_is_damaged_is_told_once_and_none(
    any_store: Store,
    object_files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoilt: str,
) -> None:
    store = any_store
    archived(store, some_log(200), [{0: 60, 1: 60}])
    archive = the_archive(store)
    # The file of partition 1, which is looked at after that of 0 was linked.
    path = object_files / folder("visits", archive_fingerprint(VISITS))
    file = (
        path / archive.blocks()[-1].path.rpartition("/")[2]
        if spoilt != "log"
        else max(path.glob("_delta_log/*.json"))
    )
    file.unlink() if spoilt == "gone" else file.write_bytes(b"no more")
    (tmp_path / "slice").mkdir()
    archives = Archives(store, [VISITS], {"visits": ID})

    for _ in range(2):
        assert archives.take(VISITS, {0: (0, 50), 1: (0, 50)}, {}, tmp_path / "slice") == {}
        assert list((tmp_path / "slice").iterdir()) == []
    if spoilt == "log":
        assert archives.marks() == ()
    told = "the archive of topic visits cannot be read, and the topic is read in its place"
    assert capsys.readouterr().err.count(told) == 1


def test_files_that_are_joined_while_a_slice_takes_them_are_looked_for_again(
    any_store: Store, tmp_path: Path
) -> None:
    store = any_store
    log = some_log(200)
    writer = archived(store, log, ({0: end} for end in range(5, 45, 5)))
    (tmp_path / "slice").mkdir()
    opened = 0

    class Overtaken(Archives):
        """Continues an archive each time it is opened, so that its small files get joined."""

        def _open(self, topic: str) -> tuple[StoredArchive, ArchiveMark] | None:
            nonlocal opened
            found = super()._open(topic)
            opened += 1
            if opened == 1:
                writer.append(0, 40, 45, reading(log))
            return found

    overtaken = Overtaken(store, [VISITS], {"visits": ID})
    taken = overtaken.take(VISITS, {0: (0, 45)}, {}, tmp_path / "slice")

    assert (opened, taken[0].end) == (2, 45)
    assert {0: taken[0].seen} == counts_in(decoded(log, Offsets({"visits": {0: 45}})))


def test_whether_a_topic_is_archived_decides_no_rows() -> None:
    unarchived = visits_topic()

    def reading(topic: Topic) -> Pipeline:
        return pipeline(name="p", reads={"visits": topic}, writes=[Table("all_visits")])(
            lambda visits: {"all_visits": visits}
        )

    assert archive_fingerprint(unarchived) == archive_fingerprint(VISITS)
    # Neither the version nor what a birth certificate says of it.
    assert _topic_text(unarchived, reading(unarchived)) == _topic_text(VISITS, reading(VISITS))
    assert declaration_lines(reading(unarchived)) == declaration_lines(reading(VISITS))
    assert archive_fingerprint(visits_topic(key=None)) != archive_fingerprint(VISITS)


@pytest.mark.parametrize("options", [{"kind": "compacted"}, {"identity": "visitor"}])
def test_what_cannot_be_archived_is_refused_where_it_is_declared(options: dict[str, str]) -> None:
    with pytest.raises(DeclarationError, match=r"test_archive.py:\d+: topic t "):
        Topic("t", event="visitor string not null", key="visitor", archive=True, **options)  # type: ignore[arg-type]  # options of texts


def test_what_is_no_way_to_archive_is_refused() -> None:
    with pytest.raises(DeclarationError, match="topic t has archive='all'") as refused:
        Topic("t", event="visitor string not null", archive="all")
    assert 'or "raw"' in refused.value.hint


def test_archive_and_topic_are_one_log_where_nothing_lies_between_them() -> None:
    mark = ArchiveMark("t", "1", "f", {0: 0, 1: 5, 2: 0}, {0: 50, 1: 60, 2: 10})

    assert one_log(Offsets({"t": {0: 50, 1: 30, 2: 11, 3: 4}, "u": {0: 3}}), [mark]) == Offsets(
        {"t": {0: 0, 1: 5, 2: 11, 3: 4}, "u": {0: 3}}
    )


def test_an_archive_that_cannot_be_gone_on_with_says_why() -> None:
    mark = ArchiveMark("t", "1", "f", {0: 0, 1: 5}, {0: 50, 1: 60})

    assert why_stopped(mark, "1", {0: 50, 1: 0, 2: 9}) is None
    assert why_stopped(mark, None, {}) == "topic t is gone; its archive stays as it is"
    assert "was created again" in str(why_stopped(mark, "2", {0: 0}))
    assert str(why_stopped(mark, "1", {0: 55, 1: 0})).endswith("partition 0 lost offsets 50 to 54")


@pytest.mark.parametrize("beginning", [0, 33])
def test_an_archive_is_compared_with_all_that_the_topic_still_has(
    any_store: Store, tmp_path: Path, beginning: int
) -> None:
    store = any_store
    log = some_log(300)
    archived(store, log, steps(log, 40), block_bytes=5_000)
    log.add("visits", 0, b"{}", key=b"later")

    found = checked(store, log, tmp_path / "links", beginning=beginning)

    held = rows(store)
    told = [(one.partition, one.wrong, one.compared_from) for one in found]
    assert told == [(part, None, beginning) for part in (0, 1)]
    assert sum(one.records for one in found) == held.num_rows
    kept = held.filter(pc.field("_offset") >= beginning).num_rows
    assert sum(one.compared for one in found) == kept


def another_value(held: pa.Table) -> pa.Table:
    place = held.schema.get_field_index("n")
    values = pc.if_else(pc.equal(held["_offset"], 5), pa.scalar(77, pa.int32()), held["n"])
    return held.set_column(place, held.schema.field(place), values)


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        (another_value, "column n of offset 5 is 77, and the topic gives"),
        (lambda held: held.filter(pc.field("_offset") != 5), "does not hold what the table says"),
        (
            lambda held: pa.concat_tables([held.slice(1, 1), held.slice(1)]),
            "does not hold what the table says|twice",
        ),
        (
            lambda held: pa.concat_tables([held.slice(0, 1), held.slice(2, 1), held.slice(2)]),
            "is there twice, or out of order",
        ),
        (None, "cannot be read"),
    ],
)
def test_what_is_not_as_it_was_written_is_found(
    store: Store, tmp_path: Path, spoilt: Callable[[pa.Table], pa.Table] | None, says: str
) -> None:
    log = MemoryLog()
    for n in range(20):
        value = json.dumps({"visitor": "v", "n": n}).encode()
        log.add("visits", 0, value, key=b"v", ms=1_700_000_000_000 + n)
    archived(store, log, [{0: 10}, {0: 20}])
    block: Block = the_archive(store).blocks()[0]
    if spoilt is None:
        Path(block.path).write_bytes(b"PAR1 and nothing else")
    else:
        pq.write_table(spoilt(pq.read_table(block.path, partitioning=None)), block.path)

    (found,) = checked(store, log, tmp_path / "links")

    assert re.search(says, str(found.wrong))


def test_a_record_that_was_left_out_by_who_wrote_it_is_found(store: Store, tmp_path: Path) -> None:
    log, without = MemoryLog(), MemoryLog()
    for n in range(20):
        log.add("visits", 0, b'{"visitor": "v"}', key=b"v")
        without.skip("visits", 0, 1) if n == 7 else without.add(
            "visits", 0, b'{"visitor": "v"}', key=b"v"
        )
    archived(store, without, [{0: 20}])

    assert [one.wrong for one in checked(store, log, tmp_path / "links")] == [
        "offset 7 is in the topic, and not in the archive"
    ]
    assert [one.wrong for one in checked(store, without, tmp_path / "others")] == [None]


@pytest.mark.jvm
def test_the_archiver_killed_in_the_middle_goes_on_and_the_archive_is_the_topic(
    log: Log, topic_name: str, tmp_path: Path
) -> None:
    event = "visitor string not null, n int"
    topic = Topic(topic_name, event=event, partitions=2, key="visitor", archive=True)
    facts = log.create(topic)
    log.produce((visit(n, headers=(("h", b"x"),)) for n in range(4_000)), topic_name)
    leave_holes(log, topic_name)
    log.produce((visit(n) for n in range(4_000, 5_000)), topic_name)
    project = a_project(tmp_path / "project", topic_name)

    killed = an_archiver(project, log, KAPPA_FAIL="archive.before_append:kill:2")
    assert killed.wait(240) == -signal.SIGKILL
    archiver = an_archiver(project, log)
    store, end = Store(project / ".kappa"), log.end([topic_name])
    archives = Archives(store, [topic], {topic_name: facts.id})
    wait_until(lambda: archives.end().equals(end), archiver)
    # Two would write beside each other.
    assert an_archiver(project, log).wait(240) == ExitCode.CONFLICT
    # What is made anew under the name is another topic.
    log.delete(topic_name)
    log.create(topic)
    log.produce((visit(n) for n in range(9_000)), topic_name)
    wait_until(lambda: "was created again" in (project / "said.log").read_text(), archiver)
    archiver.terminate()

    assert archiver.wait(240) == ExitCode.INTERRUPTED
    (mark,) = archives.marks()
    assert mark.end == end.next[topic_name]
    archive = open_archive(store.address(folder(topic_name, archive_fingerprint(topic))))
    assert archive is not None
    held = pa.concat_tables(
        pq.read_table(block.path, partitioning=None) for block in archive.blocks()
    )
    there = sorted(zip(held["n"].to_pylist(), held["visitor"].to_pylist(), strict=True))
    assert there == [(n, f"v{n % 7}") for n in range(5_000)]
    assert sum(tally.decoded for tally in mark.tally.values()) == 5_000
    assert sum(tally.absent for tally in mark.tally.values()) == sum(mark.end.values()) - 5_000 > 0


def visit(n: int, headers: tuple[tuple[str, bytes], ...] = ()) -> ProducedRecord:
    who = f"v{n % 7}"
    value = json.dumps({"visitor": who, "n": n}).encode()
    return ProducedRecord(value, key=who.encode(), headers=headers)


def leave_holes(log: Log, topic: str) -> None:
    """Writes an aborted transaction and a commit marker: offsets without a record for readers."""
    options = {"bootstrap.servers": log.bootstrap_servers, "transactional.id": topic}
    producer = KafkaProducer(options)
    producer.init_transactions()
    for ending in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        if ending == producer.abort_transaction:
            for part in (0, 1):
                producer.produce(topic, b"{}", partition=part)
        producer.flush()
        ending()


def a_project(folder: Path, topic: str) -> Path:
    (folder / "pipelines").mkdir(parents=True)
    (folder / "kappa.toml").touch()
    (folder / "pipelines" / "p.py").write_text(
        f"""
from kappa import Table, Topic, pipeline
EVENT = "visitor string not null, n int"
VISITS = Topic({topic!r}, event=EVENT, partitions=2, key="visitor", archive=True)
@pipeline(reads={{"visits": VISITS}}, writes=[Table("all_visits")])
def p(visits):
    return {{"all_visits": visits}}
"""
    )
    return folder


def an_archiver(project: Path, log: Log, **environment: str) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "kappa.engine.archive.archiver"),
        *("--project", str(project), "--root", str(project / ".kappa")),
        *("--bootstrap", log.bootstrap_servers),
    ]
    with (project / "said.log").open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            start_new_session=True,
        )


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)
