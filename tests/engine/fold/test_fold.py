"""Folding equals an independent computation (law of slices, laws 4 and 9).

This holds for any slices and for each writer.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from msgspec import structs
from rehearsing import Rehearse, memory_log, pass_on

from kappa import (
    Fold,
    Table,
    Topic,
    and_,
    avg_,
    count,
    count_distinct,
    first,
    hll,
    kll,
    latest,
    max_,
    min_,
    or_,
    pipeline,
    sample,
    set_,
    sum_,
    theta,
    top_k,
)
from kappa.base.errors import Broken, KappaError
from kappa.base.failpoint import acting
from kappa.declare.options import REJECTS
from kappa.declare.values.tally import Tally
from kappa.kafka.client import TopicFacts
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.tables.versions import FileLists, files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kappa.engine.children.rehearsal import MemoryLog, Rehearsal
    from kappa.records.decode.raw_records import RawRange

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("interpreted")]

EVENT = (
    "k string, g int, day date, n bigint, small smallint, x double, f float, d decimal(12,3), "
    "s string, at timestamp, b boolean, tags array<string>"
)
EVENTS = Topic("events", event=EVENT, partitions=3)
OTHERS = Topic("others", event="s string", partitions=3)
LATEST = Topic(
    "things",
    kind="compacted",
    event="id int not null, v string, tags array<string>",
    partitions=3,
    key="id",
)
FOLDED = {
    "rows": count(),
    "texts": count("s"),
    "n": sum_("n"),
    "small": sum_("small"),
    "x": sum_("x"),
    "d": sum_("d"),
    "n_min": min_("n"),
    "n_max": max_("n"),
    "x_min": min_("x"),
    "f_max": max_("f"),
    "s_min": min_("s"),
    "s_max": max_("s"),
    "at_max": max_("at"),
    "day_min": min_("day"),
    "b_all": and_("b"),
    "b_any": or_("b"),
    "s_first": first("s"),
    "s_latest": latest("s"),
    "x_latest": latest("x"),
    "tags_latest": latest("tags"),
    "n_first": first("n"),
    "n_mean": avg_("n"),
    "x_mean": avg_("x"),
    "d_mean": avg_("d"),
}


@pipeline(
    reads={"events": EVENTS, "things": LATEST},
    writes=[
        Table("totals", keys=("k", "g"), fold=FOLDED),
        Table("days", keys=("day",), fold={"rows": count()}),
        Table("all"),
        Table("things", latest=LATEST),
    ],
)
def everything(events: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F

    by_python = F.udf(lambda key: key, "string")
    return {
        "totals": events,
        "days": events.where("n is not null"),
        "all": events.select(
            "k", "n", "x", "_topic", "_partition", "_offset", by_python("_key").alias("_key")
        ).withColumnsRenamed({"_topic": "topic", "_partition": "p", "_offset": "o", "_key": "key"}),
    }


# Spark plans each fold of each table in each slice: laws of one table need no others.
@pipeline(
    reads={"events": EVENTS, "things": LATEST},
    writes=[Table("totals", keys=("k",), fold={"n": sum_("n")}), Table("things", latest=LATEST)],
)
def narrow(events: DataFrame) -> dict[str, DataFrame]:
    return {"totals": events}


@pytest.fixture
def log() -> MemoryLog:
    return memory_log()


def rows_of(built: Rehearsal, table: str) -> list[dict[str, Any]]:
    """Returns a table's rows; asserts that a reader that follows the commits has its files."""
    path = next(w.path for w in built.slices.writers if w.birth.name == table)
    newest, lists = built.publisher.newest.versions[table], FileLists()
    followed = [lists.at(path, version, None) for version in range(newest + 1)]
    assert followed[-1] == files(path, newest, None)
    return built.table(table).to_pylist()


def event(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def random_log(seed: int, records: int) -> MemoryLog:
    """Returns a log of random events and things, with holes.

    Events have null keys, null measures, extremes and rejects. Things have tombstones in several
    partitions.
    """
    draw, log, clock = random.Random(seed), memory_log(), 1_700_000_000_000
    for number in range(records):
        clock += draw.choice([0, 0, 1, 5, -3])
        partition = draw.randrange(3)
        if draw.random() < 0.05:
            log.skip(draw.choice(["events", "things"]), partition, draw.randrange(1, 4))
        if draw.random() < 0.3:
            thing, value = draw.randrange(8), None
            if draw.random() >= 0.3:
                value = event(id=thing, v=f"v{number}", tags=draw.choice([None, [], ["a", None]]))
            log.add("things", partition, value, key=str(thing).encode(), ms=clock)
        elif draw.random() < 0.1:
            value = draw.choice([None, b"", b"{", b'{"n": "1"}', b'{"n": 1.5}', b"\xff"])
            log.add("events", partition, value, key=b"\xfe", ms=clock)
        else:
            value, key = event(**random_event(draw)), draw.choice([None, b"k"])
            log.add("events", partition, value, key=key, ms=clock)
    return log


def doomed_log() -> Any:
    """Returns a log; if it is `doomed`, its topics are created again once a slice is read."""
    from kappa.engine.children.rehearsal import MemoryLog

    class Doomed(MemoryLog):
        doomed = re_created = False

        def read_records(self, piece: Slice) -> pa.Table:
            read = super().read_records(piece)
            self.re_created = self.doomed
            return read

        def facts(self, name: str) -> TopicFacts:
            found = super().facts(name)
            return replace(found, id="another") if self.re_created else found

    return Doomed()


def losing_log() -> Any:
    """Returns a log that lost the first four records of a partition, and raises if it is read."""
    from kappa.engine.children.rehearsal import MemoryLog

    class Losing(MemoryLog):
        def beginning(self, topics: Iterable[str]) -> Offsets:
            return Offsets({topic: {0: 0, 1: 4} for topic in topics})

        def read_records(self, piece: Slice) -> pa.Table:  # noqa: ARG002  # the signature of a log
            raise Broken("offsets are out of range")

    return Losing()


def random_event(draw: random.Random) -> dict[str, Any]:
    fields = {
        "k": draw.choice(["a", "b", "", "Ä"]),
        "g": draw.choice([1, 2]),
        "day": draw.choice(["2024-01-01", "1969-12-31"]),
        "n": draw.choice([0, 1, -1, 2**40, -(2**55), 2**55]),
        "small": draw.choice([32767, -32768, 3]),
        # The sums of these doubles are exact in any order.
        "x": draw.choice([0.0, -0.0, 0.5, -1.25, 1024.0]),
        "f": draw.choice([-0.0, 0.25, -3.5]),
        "d": draw.choice([0.001, -999999999.999, 999999999, 12.5]),
        "s": draw.choice(["x", "z", "ß", "\U0001f600", "Z"]),
        "at": draw.choice(["2024-01-01T00:00:00.000001Z", "0001-01-01T00:00:00Z", 253402300799999]),
        "b": draw.choice([True, True, True, False]),
        "tags": draw.choice([[], ["a"], ["b", None]]),
    }
    return {name: value for name, value in fields.items() if draw.random() > 0.2}


def expected(log: MemoryLog) -> dict[str, list[dict[str, Any]]]:
    """Computes the tables from the log in plain Python, one record after the other."""
    from kappa.declare.values.reason import Rejected
    from kappa.records.record import RecordReader, Tombstone

    readers = {topic.name: RecordReader(topic) for topic in (EVENTS, LATEST)}
    names = {topic.name: [column.name for column in topic.columns] for topic in (EVENTS, LATEST)}
    groups: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    days: dict[Any, int] = defaultdict(int)
    every, rejects = [], []
    newest: dict[int, tuple[tuple[int, int, int], Any]] = {}
    clocks: dict[tuple[str, int], int] = {}
    for topic, partition, offset, micros, key, value, _headers in sorted(
        log.records, key=lambda r: r[:3]
    ):
        ms = micros // 1000
        clocks[topic, partition] = clock = max(ms, clocks.get((topic, partition), ms))
        try:
            found = readers[topic].read(key, value)
        except Rejected as rejected:
            rejects.append((topic, partition, offset, key, value, str(rejected.reason)))
            continue
        if topic == "things":
            thing = found.key if isinstance(found, Tombstone) else found[0]
            new = (clock, partition, offset), None if isinstance(found, Tombstone) else found
            old = newest.get(thing, ((-1, -1, -1), None))
            newest[thing] = max(old, new, key=lambda each: each[0])
            continue
        row = dict(zip(names[topic], found, strict=True), order=(clock, partition, offset))
        groups[row["k"], row["g"]].append(row)
        if row["n"] is not None:
            days[row["day"]] += 1
        known_key = None if key is None else key.decode(errors="replace")
        every.append((row["k"], row["n"], row["x"], topic, partition, offset, known_key))

    def measures(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    def summed(values: list[Any]) -> Any:
        return sum(values[1:], values[0]) if values else None

    def mean(values: list[Any]) -> float | None:
        return float(summed(values)) / len(values) if values else None

    def by_order(rows: Sequence[dict[str, Any]], name: str, place: int) -> Any:
        found = measures(sorted(rows, key=lambda row: row["order"]), name)
        return found[place] if found else None

    totals = [
        (
            *key,
            len(rows),
            len(measures(rows, "s")),
            *(summed(measures(rows, name)) for name in ("n", "small", "x", "d")),
            min(measures(rows, "n"), default=None),
            max(measures(rows, "n"), default=None),
            min(measures(rows, "x"), default=None),
            max(measures(rows, "f"), default=None),
            min((s.encode() for s in measures(rows, "s")), default=None),
            max((s.encode() for s in measures(rows, "s")), default=None),
            max(measures(rows, "at"), default=None),
            min(measures(rows, "day"), default=None),
            all(measures(rows, "b")) if measures(rows, "b") else None,
            any(measures(rows, "b")) if measures(rows, "b") else None,
            by_order(rows, "s", 0),
            by_order(rows, "s", -1),
            by_order(rows, "x", -1),
            by_order(rows, "tags", -1),
            by_order(rows, "n", 0),
            *(mean(measures(rows, name)) for name in ("n", "x", "d")),
        )
        for key, rows in groups.items()
    ]
    things = [
        (thing, *(row[1:] if row else (None, None)), order, row is None)
        for thing, (order, row) in newest.items()
    ]
    return {
        "totals": plain(totals),
        "days": plain(days.items()),
        "all": plain(every),
        "things": plain(things),
        "rejects": plain(rejects),
    }


def plain(rows: Iterable[Any]) -> list[Any]:
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    match value:
        case float():
            # One zero: -0.0 and 0.0 are printed differently, and tables store 0.0.
            return value + 0.0
        case str():
            return value.encode()
        case Decimal():
            return value.normalize() + 0
        case list() | tuple():
            return tuple(_plain(each) for each in value)
        case _:
            return value


def found(built: Rehearsal) -> dict[str, list[Any]]:
    def table(name: str, columns: Sequence[str]) -> list[Any]:
        stored = built.table(name)
        arrays = []
        for column in columns:
            array = stored.column(column)
            if pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp("us")).cast(pa.int64())
            elif pa.types.is_date(array.type):
                array = array.cast(pa.int32())
            arrays.append(array.to_pylist())
        return list(zip(*arrays, strict=True))

    columns = ["id", "v", "tags", "_log_time", "_partition", "_offset", "_deleted"]
    things = [(*row[:3], row[3:6], row[6]) for row in table("things", columns)]
    columns = ["topic", "partition", "offset", "key", "value", "reason"]
    return {
        "totals": plain(table("totals", ["k", "g", *FOLDED])),
        "days": plain(table("days", ["day", "rows"])),
        "all": plain(table("all", ["k", "n", "x", "topic", "p", "o", "key"])),
        "things": plain(things),
        "rejects": plain(table("rejects", columns)),
    }


def cuts(log: MemoryLog, draw: random.Random, slices: int) -> list[Offsets]:
    """Draws the ends of slices up to the end of the log, for each partition independently."""
    ways = {
        part: [*sorted(draw.randrange(end + 1) for _ in range(slices - 1)), end]
        for part, end in log.ends.items()
    }
    return [
        Offsets.of_partitions({part: way[number] for part, way in ways.items()})
        for number in range(slices)
    ]


@pytest.mark.parametrize(
    ("seed", "slices", "driver_rows"),
    [
        (2, 7, 10_000),
        # `test_writers_may_take_turns_on_one_table` has Spark fold each kind, too.
        pytest.param(4, 1, 0, marks=pytest.mark.sweep),
        pytest.param(1, 1, 10_000, marks=pytest.mark.sweep),
        # Spark's rows onto Spark's: where writers take turns, they are folded onto others.
        pytest.param(5, 2, 25, marks=pytest.mark.sweep),
    ],
)
@pytest.mark.usefixtures("roots")
def test_any_cut_by_any_writer_gives_what_one_record_after_the_other_gives(
    rehearse: Rehearse, seed: int, slices: int, driver_rows: int
) -> None:
    log = random_log(seed, 250)
    built = rehearse(everything, log, driver_rows)

    for end in cuts(log, random.Random(seed), slices):
        built.fold(end)

    assert found(built) == expected(log)
    _adds_up(built, log)


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes each topic of a large slice be divided among eight tasks; returns the task counts."""
    from kappa.records.decode import parquet_decoder

    found, divided_among = [], parquet_decoder.shares_of

    def among_eight(
        topic: Topic, ranges: Sequence[RawRange], _cores: int
    ) -> parquet_decoder.Shares:
        made = divided_among(topic, ranges, 8)
        found.append(len(made.ranges))
        return made

    monkeypatch.setattr(parquet_decoder, "LEAST_OFFSETS", 1)
    monkeypatch.setattr(parquet_decoder, "shares_of", among_eight)
    return found


@pytest.mark.long
def test_more_tasks_than_partitions_give_what_one_record_after_the_other_gives(
    rehearse: Rehearse, divided: list[int]
) -> None:
    log = random_log(6, 250)
    built = rehearse(everything, log, driver_rows=0)

    for end in cuts(log, random.Random(6), 2):
        built.fold(end)

    assert found(built) == expected(log)
    _adds_up(built, log)
    assert divided == [8] * 4


def archived_log(log: MemoryLog) -> Any:
    """Returns the same log, which loses its archived records and refuses to read them."""
    from kappa.engine.children.rehearsal import MemoryLog

    class Archived(MemoryLog):
        kept = Offsets()

        def beginning(self, topics: Iterable[str]) -> Offsets:
            return super().beginning(topics).highest_with(self.kept)

        def read_records(self, piece: Slice) -> pa.Table:
            if any(
                end > piece.start.at(topic, part) < self.kept.at(topic, part)
                for topic, part, end in piece.end.items()
            ):
                raise Broken("offsets are out of range")
            return super().read_records(piece)

        def ranges(self, piece: Slice, topic: str) -> list[RawRange]:
            return super().ranges(
                replace(piece, start=piece.start.only({topic}), end=piece.end.only({topic})), topic
            )

    return Archived(log.records, log.ends)


def archive_of(log: MemoryLog, built: Rehearsal, end: Offsets) -> None:
    """Archives the log's events up to these offsets."""
    from kappa.engine.archive.archive_writer import ArchiveWriter

    def read(partition: int, start: int, last: int) -> Iterator[pa.RecordBatch]:
        here, there = (Offsets({"events": {partition: at}}) for at in (start, last))
        found = log.read_records(Slice(0, 0, here, there)).sort_by("offset")
        yield from found.to_batches(max_chunksize=9)

    writer = ArchiveWriter(built.store, EVENTS, "events")
    for _, partition, last in end.only({"events"}).items():
        writer.append(partition, 0, last // 2, read)
        writer.append(partition, last // 2, last, read)


@pytest.mark.long
def test_archived_records_are_folded_as_read_ones_across_a_crash(rehearse: Rehearse) -> None:
    """Archived records are folded the same, even if the topic has lost them since."""
    log = archived_log(random_log(8, 250))
    built = rehearse(everything, log, driver_rows=10_000)
    first, second, _ = cuts(log, random.Random(8), 3)
    died = False

    def die(name: str) -> None:
        nonlocal died
        if name == "job.between_tables" and not died:
            died = True
            raise KeyboardInterrupt

    with acting(die), pytest.raises(KeyboardInterrupt):
        built.fold(first)
    archive_of(log, built, second)
    # The slice that was begun from the log is ended from the archive, and another slice reaches
    # past the archive.
    log.kept = second.only({"events"})
    built.begin(driver_rows=0)
    built.fold(first)
    built.begin(driver_rows=10_000)
    built.fold(log.end)

    log.kept = Offsets()
    assert found(built) == expected(log)
    _adds_up(built, log)


@pipeline(
    reads={"events": EVENTS, "others": OTHERS},
    writes=[Table("ends", keys=("k",), fold={"first": first("s"), "latest": latest("s")})],
)
def both(events: DataFrame, others: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F

    return {
        "ends": events.unionByName(others, allowMissingColumns=True).withColumn("k", F.lit("all"))
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("driver_rows", "orders"),
    [
        (10_000, [[{"events"}, {"others"}], [{"others"}, {"events"}], [{"events", "others"}]]),
        (0, [[{"others"}, {"events"}]]),
    ],
)
def test_records_that_only_their_topics_names_tell_apart_are_in_one_order(
    rehearse: Rehearse, log: MemoryLog, driver_rows: int, orders: list[list[set[str]]]
) -> None:
    """The order is the same for any slices in which different topics end first."""
    log.add("events", 0, event(s="of events"))
    log.add("others", 0, event(s="of others"))
    for order in orders:
        built, reached = rehearse(both, log, driver_rows), Offsets()
        for topics in order:
            reached = reached.highest_with(log.end.only(topics))
            built.fold(reached)
        (row,) = rows_of(built, "ends")
        assert (row["first"], row["latest"]) == ("of events", "of others")


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[str]]]:
    """Records which columns of which topic each large slice left out."""
    from kappa.engine import slice_in_spark

    found, decode = [], slice_in_spark.decode_to_files

    def spy(spark: SparkSession, ranges: Any, topic: Topic, *others: Any, **more: Any) -> Any:
        found.append((topic.name, set(more["left_out"])))
        return decode(spark, ranges, topic, *others, **more)

    monkeypatch.setattr(slice_in_spark, "decode_to_files", spy)
    return found


WIDE = Topic(
    "wide",
    event="k string not null, n bigint, s string not null, x double, at timestamp, b boolean",
    partitions=1,
)
# What the function alone may need beside the event's columns.
BESIDE = {"_key", "_log_time"}
ALL_OF_WIDE = {column.name for column in WIDE.columns} | BESIDE


@pipeline(
    reads={"wide": WIDE, "others": OTHERS},
    writes=[Table("sums", keys=("k",), fold={"n": sum_("n")}), Table("marked")],
    on_error="reject",
)
def few(wide: DataFrame, others: DataFrame) -> dict[str, DataFrame]:
    from pyspark.sql import functions as F

    inverse = F.udf(lambda n: str(1 // n), "string")
    return {
        "sums": wide.where("b or b is null"),
        "marked": wide.select(inverse("n").alias("inverse"), F.col("_offset").alias("o")).unionAll(
            others.selectExpr("s", "_offset")
        ),
    }


@pytest.mark.parametrize(
    ("records", "fails"),
    [
        (30, False),
        # It takes long to find the record; test_culprits has it found in large slices.
        *(pytest.param(*each, marks=pytest.mark.sweep) for each in ((30, True), (3_000, False))),
    ],
)
def test_a_large_slice_keeps_the_used_columns_and_takes_the_same_records(
    rehearse: Rehearse,
    log: MemoryLog,
    left_out: list[tuple[str, set[str]]],
    records: int,
    fails: bool,
) -> None:
    """A large slice keeps only columns that the function used before.

    One slice on the driver has all columns.
    """
    draw = random.Random(records)
    # An unused column is wrong now and then, and makes its record a reject all the same.
    mistakes = [{"s": 1}, {"x": "1"}, {"at": "2024-13-01T00:00:00Z"}, {"x": -0.0, "s": None}]
    for number in range(records):
        is_last_but_one = number == records - 2
        wrong = {} if is_last_but_one or draw.random() > 0.1 else draw.choice(mistakes)
        # The function fails on 0.
        n = 0 if is_last_but_one and fails else draw.randrange(1, 5)
        usual = {"s": "é", "x": 1.5, "at": "2024-12-31T00:00:00Z", "b": number % 3 == 0}
        log.add("wide", 0, event(k=f"k{number % 7}", n=n, **usual | wrong))
        log.add("others", 0, event(s=f"{number}"))
    found = []
    large = (Offsets({"wide": {0: records // 3}}), log.end)
    for driver_rows, ends in ((10_000, (log.end,)), (0, large)):
        built = rehearse(few, log, driver_rows)
        for end in ends:
            built.fold(built.publisher.newest.offsets.highest_with(end))
        _adds_up(built, log)
        tables = ("sums", "marked", REJECTS)
        found.append({table: sorted(map(repr, rows_of(built, table))) for table in tables})

    assert found[0] == found[1]
    assert ("function_failed" in "".join(found[1][REJECTS])) == fails
    assert left_out == [("wide", set()), ("wide", {"s", "x", "at"} | BESIDE), ("others", set())]


def test_a_function_that_uses_more_than_it_did_before_begins_again_with_all_columns(
    rehearse: Rehearse, log: MemoryLog, tmp_path: Path, left_out: list[tuple[str, set[str]]]
) -> None:
    asked = ["k"]

    @pipeline(reads={"wide": WIDE}, writes=[Table("rows")], on_error="reject")
    def fickle(wide: DataFrame) -> dict[str, DataFrame]:
        return {"rows": wide.selectExpr(f"{asked[0]} as k")}

    for _ in range(4):
        log.add("wide", 0, event(k="k", s="s"))
    built = rehearse(fickle, log, 0)
    counts: list[dict[str, str]] = []

    def look(name: str) -> None:
        if name == "job.before_first_commit":
            counts.append({at.name: at.read_text() for at in tmp_path.rglob("_*.read")})

    with acting(look):
        built.fold(Offsets({"wide": {0: 2}}))
    # Spark's workers have counted what they read, beside files that Spark read after that.
    assert [sorted(each.values()) for each in counts] == [["0", "2"]]
    asked[0] = "s"
    with pytest.raises(KappaError, match="column s of topic wide is used in this slice") as refused:
        built.fold(log.end)
    built.begin(driver_rows=0)
    built.fold(log.end)

    assert not isinstance(refused.value, Broken)
    assert sorted(row["k"] for row in rows_of(built, "rows")) == ["k", "k", "s", "s"]
    assert rows_of(built, REJECTS) == []
    assert left_out == [("wide", set()), ("wide", ALL_OF_WIDE - {"k"}), ("wide", set())]


PLACE = "k string not null, n bigint, place struct<name: string, size: bigint>, t string"
PLACES, SAME = (Topic(name, event=PLACE, partitions=1) for name in ("places", "same"))


def test_parts_of_structs_are_used_and_each_topic_has_what_it_is_asked_for(
    rehearse: Rehearse, log: MemoryLog, left_out: list[tuple[str, set[str]]]
) -> None:
    """Another topic with the same columns keeps all of its columns."""

    @pipeline(reads={"places": PLACES, "same": SAME}, writes=[Table("names"), Table("texts")])
    def parts(places: DataFrame, same: DataFrame) -> dict[str, DataFrame]:
        return {
            "names": places.selectExpr("place.name as name"),
            "texts": places.selectExpr("k as text").union(same.where("n = 1").select("t")),
        }

    for number in range(6):
        for topic in ("places", "same"):
            place = {"name": f"at {number}", "size": number}
            log.add(topic, 0, event(k=f"{topic}{number}", n=1, place=place, t=f"t{number}"))
    built = rehearse(parts, log, 0)
    for end in (Offsets({"places": {0: 2}}), log.end):
        built.fold(built.publisher.newest.offsets.highest_with(end))

    names = sorted(row["name"] for row in rows_of(built, "names"))
    assert names == [f"at {number}" for number in range(6)]
    assert sorted(row["text"] for row in rows_of(built, "texts")) == sorted(
        f"{each}{number}" for number in range(6) for each in ("places", "t")
    )
    assert left_out == [("places", set()), ("places", {"n", "t"} | BESIDE), ("same", set())]


BIDS = Topic(
    "bids", event="Id string not null, Bid struct<dateTime: bigint, Items: array<struct<No: int>>>"
)


@pytest.mark.parametrize("driver_rows", [10_000, 0])
def test_names_of_columns_and_of_fields_keep_their_case(
    rehearse: Rehearse, log: MemoryLog, driver_rows: int
) -> None:
    @pipeline(
        reads={"bids": BIDS},
        writes=[Table("all"), Table("lasts", keys=("Id",), fold={"Last": latest("Bid")})],
    )
    def named(bids: DataFrame) -> dict[str, DataFrame]:
        return {"all": bids.select("Id", "Bid", "Bid.dateTime"), "lasts": bids}

    bid = {"dateTime": 1, "Items": [{"No": 2}]}
    log.add("bids", 0, event(Id="a", Bid=bid))
    built = rehearse(named, log, driver_rows)
    built.fold(log.end)

    assert rows_of(built, "all") == [{"Id": "a", "Bid": bid, "dateTime": 1}]
    assert rows_of(built, "lasts")[0]["Last"] == bid


@pytest.mark.long
def test_writers_may_take_turns_on_one_table(rehearse: Rehearse) -> None:
    log = random_log(7, 250)
    built = rehearse(everything, log)

    for end, (driver_rows, merge_bytes) in zip(
        cuts(log, random.Random(7), 3), [(10_000, 0), (0, 1), (0, 1_000_000)], strict=True
    ):
        built.begin(driver_rows=driver_rows, merge_bytes=merge_bytes)
        built.fold(end)

    assert found(built) == expected(log)
    # Spark commits its own results itself, except for small contributions by key.
    assert [_committed_by(built, table) for table in ("totals", "all")] == [
        ["delta-rs", "delta-rs", "delta-rs"],
        ["delta-rs", "spark", "spark"],
    ]


def _committed_by(built: Rehearsal, table: str) -> list[str]:
    path = next(writer.path for writer in built.slices.writers if writer.birth.name == table)
    lines = [
        json.loads(line)
        for file in sorted(Path(path, "_delta_log").glob("*.json"))
        for line in file.read_text().splitlines()
    ]
    engines = [each["commitInfo"].get("engineInfo", "") for each in lines if "commitInfo" in each]
    return ["spark" if "Spark" in engine else "delta-rs" for engine in engines[1:]]


def test_what_some_tables_have_of_a_slice_is_taken_back_and_it_is_folded_once(
    rehearse: Rehearse,
) -> None:
    log = random_log(8, 120)
    built = rehearse(everything, log)
    first, second = cuts(log, random.Random(8), 2)
    built.fold(first)
    _commit_only(built, Slice(1, 1, first, second), tables=("totals", "things"))
    built.begin(driver_rows=10_000)

    built.fold(second)

    assert found(built) == expected(log)
    _adds_up(built, log)


def test_a_slice_that_does_not_follow_stops_the_job(rehearse: Rehearse) -> None:
    log = random_log(9, 60)
    built = rehearse(everything, log)
    first, second = cuts(log, random.Random(9), 2)
    built.fold(first)

    for piece in (
        Slice(1, 1, Offsets(), second),
        Slice(1, 0, Offsets(), first),
        Slice(2, 0, second, second),
    ):
        with pytest.raises(Broken, match="has folded up to"):
            built._fold(piece, built.publisher)
    assert built.publisher.newest.offsets.equals(first)


@pytest.mark.parametrize("driver_rows", [10_000, 0])
def test_a_topic_re_created_before_a_slice_was_read_stops_the_job_uncommitted(
    rehearse: Rehearse, driver_rows: int
) -> None:
    """The job stops before any table has a commit of the slice."""
    log = doomed_log()
    built = rehearse(narrow, log)
    log.add("events", 0, event(k="a"))
    log.add("things", 0, event(id=7, v="a"), key=b"7")
    built.fold(log.end)
    before, versions = built.publisher.newest, built.slices.versions()
    log.add("events", 0, event(k="b"))
    log.add("things", 0, None, key=b"7")
    log.doomed = True
    built.begin(driver_rows=driver_rows)

    with pytest.raises(Broken, match="topic (events|things) was re-created: its id is another"):
        built.fold(log.end)

    built.begin(driver_rows=driver_rows)
    assert built.slices.versions() == versions
    assert built.publisher.newest.offsets.equals(before.offsets)


@pytest.mark.parametrize("driver_rows", [10_000, 0])
def test_what_the_log_has_lost_of_a_slice_is_named(rehearse: Rehearse, driver_rows: int) -> None:
    log = losing_log()
    log.skip("events", 1, 9)
    built = rehearse(narrow, log, driver_rows)

    with pytest.raises(
        Broken,
        match="no longer has what build b was about to read: "
        "events partition 1 lost offsets 0 to 3 and begins at 4, things partition 1 lost",
    ):
        built.fold(log.end)
    assert built.publisher.newest.offsets.equals(Offsets())


@pytest.mark.parametrize("driver_rows", [10_000, 0])
def test_a_sum_that_does_not_fit_is_null_and_comes_back(
    rehearse: Rehearse, log: MemoryLog, driver_rows: int
) -> None:
    built, seen = rehearse(narrow, log, driver_rows), []
    # Beyond the type within the first slice, and within the type at its end.
    for slice_ in ([2**63 - 1, 2**63 - 1, -(2**63), 0], [2], [None], [-1]):
        for n in slice_:
            log.add("events", 0, event(k="a", n=n))
        built.fold(log.end)
        seen += [(row["n"], row["n_overflow"]) for row in rows_of(built, "totals")]

    assert seen == [(2**63 - 2, False), (None, True), (None, True), (2**63 - 1, False)]


@pytest.mark.parametrize(
    ("driver_rows", "beside"),
    [(10_000, {}), (0, {}), (10_000, {"s": set_("s")})],
    ids=["driver", "spark", "combined"],
)
def test_an_average_is_right_whatever_its_sum(
    rehearse: Rehearse, log: MemoryLog, driver_rows: int, beside: dict[str, Fold]
) -> None:
    folds = {"mean": avg_("n"), "x_mean": avg_("x"), "x": sum_("x"), **beside}
    averaged = pass_on(EVENTS, Table("means", keys=("k",), fold=folds))
    built, seen = rehearse(averaged, log, driver_rows), []
    for n, x in ((2**63 - 1, 1.5e308), (2**63 - 1, 1.5e308), (-(2**63), -1.5e308)):
        log.add("events", 0, event(k="a", n=n, x=x))
        built.fold(log.end)
        (row,) = rows_of(built, "means")
        seen.append((row["mean"], row["x_mean"], row["x"], row["x_overflow"]))

    assert seen == [
        (float(2**63 - 1), 1.5e308, 1.5e308, False),
        (float(2**63 - 1), 1.5e308, None, True),
        ((2**63 - 2) / 3, pytest.approx(0.5e308), 1.5e308, False),
    ]


@pytest.mark.parametrize("of", "nwx")
def test_spark_folds_sums_near_the_ends_as_duckdb_does(spark: SparkSession, of: str) -> None:
    """Spark folds sums near the limits as DuckDB does, in merge, combination and first aggregate.

    The values are so large that only very many records would reach them.
    """
    import near_ends

    from kappa.base.sql import spark_ddl, spark_quote
    from kappa.engine.fold.combine import aggregates, combinations, combined_columns
    from kappa.tables.merge import contribution_columns, merge_for

    table = near_ends.born(of)
    columns, how = contribution_columns(table), merge_for(table, spark_quote)
    slices = near_ends.drawn(of, 5)
    names = [name for name, _ in table.columns]
    held: list[Any] = []
    for number, part in enumerate(slices):
        given = [near_ends.contribution(*each) for each in part.items()]
        stored = spark.createDataFrame(held, spark_ddl(table.columns))
        came = spark.createDataFrame(
            [tuple(row.get(name) for name, _ in columns) for row in given], spark_ddl(columns)
        )
        both = stored.alias("t").join(came.alias("s"), on=_same_key())
        left = stored.alias("t").join(came.alias("s"), on=_same_key(), how="left_anti")
        new = came.alias("s").join(stored.alias("t"), on=_same_key(), how="left_anti")
        merged = (
            both.selectExpr(*_named(names, how.update, "t"))
            .unionAll(left.selectExpr(*names))
            .unionAll(new.selectExpr(*_named(names, how.insert, "s")))
            .collect()
        )
        combined = (
            stored.selectExpr(*(name for name, _ in columns))
            .unionAll(came)
            .groupBy("k")
            .agg(*_exprs(combinations(table)))
            .selectExpr(*combined_columns(table))
            .collect()
        )
        assert sorted(map(repr, merged)) == sorted(map(repr, combined))
        for row in merged:
            wanted = near_ends.expected([p[row.k] for p in slices[: number + 1] if row.k in p])
            assert {name: row[name] for name in wanted} == wanted
        held = [tuple(row) for row in merged]
    kind = near_ends.KINDS[of]
    for sign in (1, -1):
        value = sign * near_ends.FIRST[of]
        rows = spark.createDataFrame([("a", value), ("a", None)], f"k string, {of} {kind}")
        (row,) = (
            rows.groupBy("k").agg(*_exprs(aggregates(table, {"k": "string", of: kind}))).collect()
        )
        wanted = near_ends.contribution("a", {of: near_ends.units(value, of)})
        assert row.asDict() == {name: wanted[name] for name, _ in columns}


def _same_key() -> Any:
    from pyspark.sql import functions as F

    return F.expr("s.k <=> t.k")


def _named(names: Sequence[str], sql: Mapping[str, str], side: str) -> list[str]:
    return [f"{sql.get(f'`{name}`', f'{side}.`{name}`')} as `{name}`" for name in names]


def _exprs(sql: Iterable[str]) -> list[Any]:
    from pyspark.sql import functions as F

    return [F.expr(each) for each in sql]


# Sets with and without overflow, ranks with ties and nulls, sketches beyond their exact size: with
# folds of each other kind beside them.
GATHERED = {
    "rows": count(),
    "n_sum": sum_("n"),
    "d_sum": sum_("d"),
    "s_min": min_("s"),
    "x_max": max_("x"),
    "b_all": and_("b"),
    "b_any": or_("b"),
    "d_mean": avg_("d"),
    "s_first": first("s"),
    "tags_latest": latest("tags"),
    "s_set": set_("s"),
    "n_set": set_("n", limit=3),
    "at_set": set_("at"),
    "s_distinct": count_distinct("s"),
    "n_distinct": count_distinct("n", limit=3),
    "x_distinct": count_distinct("x"),
    "tags_top": top_k("tags", 3, by="x"),
    "n_top": top_k("n", 2),
    "s_top": top_k("s", k=4, by="day"),
    "n_drawn": sample("n", 2),
    "pairs": sample(["s", "n"], 3, weight="x"),
    "s_hll": hll("s"),
    "n_hll": hll("n", lg_k=4),
    "n_theta": theta("n", lg_k=4),
    "n_half": kll("n", 0.5, k=16),
    "x_most": kll("x", 1),
}


gather = pass_on(
    EVENTS,
    Table("gathered", keys=("k", "g"), fold=GATHERED),
    Table("days", keys=("day",), fold={"rows": count()}),
)
# What concerns single folds of such tables needs no others.
FEW_GATHERED = {
    "n_sum": sum_("n"),
    "n_set": set_("n", limit=3),
    "n_top": top_k("n", 2),
    "n_distinct": count_distinct("n", limit=3),
}
gather_few = pass_on(EVENTS, Table("gathered", keys=("k",), fold=FEW_GATHERED))


def many_values(seed: int, records: int) -> MemoryLog:
    """Returns a log of events with few keys, one with many values and one with none.

    The events have nulls, empty texts, equal ranks and equal clocks.
    """
    draw, log = random.Random(seed), memory_log()
    for number in range(records):
        fields = random_event(draw) | {
            "n": draw.randrange(200) - 100,
            "s": draw.choice(["", "x", "z", "ß", "\U0001f600"]),
        }
        fields = (
            {name: value for name, value in fields.items() if draw.random() > 0.1}
            if draw.random() < 0.9
            else {"g": 2}
        )
        partition, key = draw.randrange(3), draw.choice([None, "a", "a", "a"])
        ms = 1_700_000_000_000 + number // 7
        log.add("events", partition, event(**fields | {"k": key}), ms=ms)
    log.add("events", 0, event(k="nothing"))
    return log


def gathered_from(log: MemoryLog, spark: SparkSession) -> dict[tuple[Any, Any], dict[str, Any]]:
    """Computes the table in plain Python; hashes and sketches come from Spark.

    Spark computes the hashes and sketches of all values at once.
    """
    from kappa.records.record import RecordReader

    names, groups = [column.name for column in EVENTS.columns], defaultdict(list)
    clocks: dict[int, int] = {}
    for _, partition, offset, micros, key, value, _headers in sorted(
        log.records, key=lambda record: record[1:3]
    ):
        clocks[partition] = max(micros // 1000, clocks.get(partition, 0))
        found = dict(
            zip(names, RecordReader(EVENTS).read(key, value), strict=True),
            order=(clocks[partition], partition, offset),
        )
        groups[found["k"], found["g"]].append(found)

    def values(rows: Sequence[dict[str, Any]], name: str) -> list[Any]:
        return [
            row[name] for row in sorted(rows, key=lambda row: row["order"]) if row[name] is not None
        ]

    hashes = dict(map(tuple, spark.sql("select id, xxhash64(id) from range(-100, 100)").collect()))

    def kept(
        rows: Sequence[dict[str, Any]], name: str, limit: int = 1000
    ) -> tuple[list[Any], bool]:
        distinct = set(values(rows, name))
        by_hash = sorted(distinct, key=lambda each: hashes.get(each, 0))
        return sorted(by_hash[:limit]), len(distinct) > limit

    def top(rows: Sequence[dict[str, Any]], name: str, k: int, by: str) -> tuple[list[Any], bool]:
        ranked = [
            (row[by], row["order"], row[name])
            for row in rows
            if row[by] is not None and row[name] is not None
        ]
        greatest = sorted(ranked, key=lambda each: each[:2], reverse=True)[:k]
        return [value for *_, value in greatest], len(ranked) > k

    every = [row for rows in groups.values() for row in rows]
    places = spark.createDataFrame(
        [
            (number, "events", *row["order"][1:], row["n"], row["s"])
            for number, row in enumerate(every)
        ],
        "number int, topic string, part int, at bigint, n bigint, s string",
    )
    found = places.selectExpr(
        "xxhash64(topic, part, at, n) as alone", "xxhash64(topic, part, at, s, n) as pair", "number"
    ).collect()
    drawn_by = {id(every[each.number]): each for each in found}

    def least(rows: Sequence[dict[str, Any]]) -> list[Any]:
        """Draws the two values with the least hashes."""
        taking_part = [row for row in rows if row["n"] is not None]
        taking_part.sort(key=lambda row: drawn_by[id(row)].alone)
        return [row["n"] for row in taking_part[:2]]

    def weighted(rows: Sequence[dict[str, Any]]) -> list[Any]:
        """Draws the three pairs with the greatest `u ** (1 / weight)`."""

        def rank(row: dict[str, Any]) -> float:
            uniform = ((drawn_by[id(row)].pair % 2**64 >> 11) + 0.5) / 2**53
            return math.log(uniform) / row["x"]

        taking_part = [row for row in rows if row["x"] is not None and row["x"] > 0]
        taking_part.sort(key=rank, reverse=True)
        return [{"s": row["s"], "n": row["n"]} for row in taking_part[:3]]

    placed = ", ".join(
        f"({place}, {each}L)"
        for place, rows in enumerate(groups.values())
        for each in values(rows, "n")
    )
    sketches = (
        "select place, hll_sketch_agg(xxhash64(n), 4) as h, theta_sketch_agg(xxhash64(n), 4) as t "
        f"from values {placed} as numbers(place, n) group by place"
    )
    found = spark.sql(
        "select place, hll_sketch_estimate(hll_union(h, h)), "
        f"theta_sketch_estimate(theta_union(t, t, 4)) from ({sketches})"
    ).collect()
    estimates = {place: estimated for place, *estimated in found}

    def of(place: int, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        sets = {"n": kept(rows, "n", 3), "s": kept(rows, "s"), "at": kept(rows, "at")}
        tops = {
            "tags": top(rows, "tags", 3, "x"),
            "n": top(rows, "n", 2, "n"),
            "s": top(rows, "s", 4, "day"),
        }
        n_hll, n_theta = estimates.get(place, (0, 0))
        return {
            "rows": len(rows),
            **{
                f"{name}_sum": sum(found[1:], found[0]) if (found := values(rows, name)) else None
                for name in ("n", "d")
            },
            "d_mean": float(sum(found[1:], found[0])) / len(found)
            if (found := values(rows, "d"))
            else None,
            "s_min": min(values(rows, "s"), key=str.encode, default=None),
            "x_max": max(values(rows, "x"), default=None),
            "b_all": all(found) if (found := values(rows, "b")) else None,
            "b_any": any(found) if found else None,
            "s_first": next(iter(values(rows, "s")), None),
            "tags_latest": next(reversed(values(rows, "tags")), None),
            **{f"{name}_set": found for name, (found, _) in sets.items()},
            **{f"{name}_set_overflow": over for name, (_, over) in sets.items()},
            **{f"{name}_top": found for name, (found, _) in tops.items()},
            **{f"{name}_top_overflow": over for name, (_, over) in tops.items()},
            **{f"{name}_distinct": len(set(values(rows, name))) for name in ("s", "x")},
            "n_distinct": found if (found := len(set(values(rows, "n")))) <= 3 else None,
            "n_drawn": least(rows),
            "n_drawn_overflow": len(values(rows, "n")) > 2,
            "pairs": weighted(rows),
            "pairs_overflow": sum(x > 0 for x in values(rows, "x")) > 3,
            "s_hll": len(set(values(rows, "s"))),
            "n_hll": n_hll,
            "n_theta": n_theta,
            "x_most": max(values(rows, "x"), default=None),
            "n": sorted(values(rows, "n")),
        }

    return {key: of(place, rows) for place, (key, rows) in enumerate(groups.items())}


def _hold_gathered(built: Rehearsal, log: MemoryLog, spark: SparkSession) -> None:
    """Asserts that the rows are those of plain Python.

    For approximate columns, the range must contain the true value, and the value must be near it.
    """
    stored = built.table("gathered").to_pylist()
    expected = gathered_from(log, spark)
    assert len(stored) == len(expected)
    for row in stored:
        wanted = expected[row["k"], row["g"]]
        ranked = wanted.pop("n")
        found = {name: row[name] for name in wanted}
        began = datetime(1970, 1, 1, tzinfo=UTC)
        found["at_set"] = [(at - began) // timedelta(microseconds=1) for at in row["at_set"]]
        assert found == wanted
        if ranked:
            true, error = ranked[(len(ranked) - 1) // 2], 2 * 2.296 / 16**0.9723
            assert row["_n_half_low"] <= true <= row["_n_half_high"]
            assert ranked.index(row["n_half"]) / len(ranked) <= 0.5 + error
            assert 1 - ranked[::-1].index(row["n_half"]) / len(ranked) >= 0.5 - error
        else:
            assert (row["n_half"], row["_n_half_low"], row["_n_half_high"]) == (None, None, None)


@pytest.mark.parametrize(
    ("slices", "turns"),
    [
        (3, [10_000, 0]),
        *(pytest.param(slices, [10_000], marks=pytest.mark.sweep) for slices in (1, 7)),
    ],
)
@pytest.mark.usefixtures("roots")
def test_rows_are_combined_the_same_however_they_are_cut_and_by_any_writer(
    spark: SparkSession, rehearse: Rehearse, slices: int, turns: list[int]
) -> None:
    log = many_values(slices, 260)
    built = rehearse(gather, log, turns[0])

    for end, driver_rows in zip(
        cuts(log, random.Random(slices), slices), itertools.cycle(turns), strict=False
    ):
        if len(turns) > 1:
            built.begin(driver_rows=driver_rows)
        built.fold(end)

    _hold_gathered(built, log, spark)


def test_what_has_overflowed_says_so_in_every_slice_from_then_on(
    rehearse: Rehearse, log: MemoryLog
) -> None:
    built, told = rehearse(gather_few, log), []
    for slice_ in ([1, 2], [3, 1], [4], [None]):
        for n in slice_:
            log.add("events", 0, event(k="a", n=n))
        built.fold(log.end)
        (row,) = rows_of(built, "gathered")
        known = row["_n_distinct_values"]
        told.append(
            (
                *(len(row["n_set"]), row["n_set_overflow"], row["n_top"], row["n_top_overflow"]),
                *(row["n_distinct"], known and sorted(known)),
            )
        )

    assert told == [
        (2, False, [2, 1], False, 2, [1, 2]),
        (3, False, [3, 2], True, 3, [1, 2, 3]),
        (3, True, [4, 3], True, None, None),
        (3, True, [4, 3], True, None, None),
    ]


def test_a_build_born_with_fewer_columns_and_narrow_sums_goes_on_as_it_was(
    rehearse: Rehearse, log: MemoryLog
) -> None:
    born = rehearse(gather_few, log).birth
    later = {"n_top_overflow", "n_sum_overflow", "_n_sum_sum"}
    tables = tuple(
        structs.replace(table, columns=tuple(c for c in table.columns if c[0] not in later))
        for table in born.tables
    )
    older = structs.replace(born, build="older", tables=tables)
    built = rehearse(gather_few, log, birth=older)
    for n in (2**63 - 4, 3):
        log.add("events", 0, event(k="a", n=n))
        built.fold(log.end)

    (row,) = rows_of(built, "gathered")
    assert (row["n_top"], row["n_sum"]) == ([2**63 - 4, 3], 2**63 - 1)
    assert not later & set(row)
    log.add("events", 0, event(k="a", n=1))
    with pytest.raises(Broken, match=r"folded into table gathered: .*OVERFLOW"):
        built.fold(log.end)


def test_what_a_combined_table_has_of_a_slice_is_taken_back_and_combined_once(
    spark: SparkSession, rehearse: Rehearse
) -> None:
    log = many_values(9, 60)
    built = rehearse(gather, log)
    start, end = cuts(log, random.Random(9), 2)
    built.fold(start)
    _commit_only(built, Slice(1, 1, start, end), tables=("gathered",))
    versions = built.slices.versions()
    built.begin(driver_rows=10_000)

    built.fold(end)

    assert built.publisher.newest.versions["gathered"] == versions["gathered"]
    assert built.publisher.newest.versions["days"] == versions["days"] + 1
    _hold_gathered(built, log, spark)


def test_a_sum_beside_a_set_that_does_not_fit_is_null_and_comes_back(
    rehearse: Rehearse, log: MemoryLog
) -> None:
    built, seen = rehearse(gather_few, log), []
    for n in (2**63 - 1, 1, -2):
        log.add("events", 0, event(k="a", n=n))
        built.fold(log.end)
        seen += [(row["n_sum"], row["n_sum_overflow"]) for row in rows_of(built, "gathered")]

    assert seen == [(2**63 - 1, False), (None, True), (2**63 - 2, False)]


@pytest.mark.parametrize("driver_rows", [10_000, 0])
def test_a_tombstone_is_not_undone_by_an_older_record_of_another_partition(
    rehearse: Rehearse, log: MemoryLog, driver_rows: int
) -> None:
    built = rehearse(narrow, log, driver_rows)

    def seen() -> list[Any]:
        built.fold(log.end)
        return [(row["id"], row["v"], row["_deleted"]) for row in rows_of(built, "things")]

    log.add("things", 1, None, key=b"7", ms=2_000)
    built.fold(log.end)
    log.add("things", 0, event(id=7, v="old"), key=b"7", ms=1_000)
    assert seen() == [(7, None, True)]
    log.add("things", 0, event(id=7, v="new"), key=b"7", ms=2_000)
    log.add("things", 0, event(id=7, v="newest"), key=b"7", ms=3_000)
    assert seen() == [(7, "newest", False)]


def test_log_time_never_goes_back_within_a_partition(rehearse: Rehearse, log: MemoryLog) -> None:
    built = rehearse(narrow, log)
    log.add("things", 0, event(id=1, v="a"), key=b"1", ms=5_000)
    built.fold(log.end)
    log.add("things", 0, event(id=1, v="b"), key=b"1", ms=1_000)
    built.fold(log.end)

    assert [row["v"] for row in rows_of(built, "things")] == ["b"]
    assert built.publisher.newest.log_time == {"things": {0: 5_000}}


def test_offsets_without_records_are_folded_and_counted(rehearse: Rehearse, log: MemoryLog) -> None:
    built = rehearse(narrow, log)
    log.skip("things", 2, 7)

    built.fold(log.end)

    assert built.publisher.newest.offsets.equals(Offsets({"things": {2: 7}}))
    assert built.publisher.newest.tally == {"things": {2: Tally(absent=7)}}


def _adds_up(built: Rehearsal, log: MemoryLog) -> None:
    for (topic, partition), end in log.ends.items():
        tally = built.publisher.newest.tally.get(topic, {}).get(partition, Tally())
        counted = tally.decoded + tally.duplicate + tally.rejected + tally.tombstone + tally.absent
        assert counted == end


def _commit_only(built: Rehearsal, piece: Slice, *, tables: tuple[str, ...]) -> None:
    """Commits a slice to some tables and fails before it is published, as a job that dies."""
    writers = built.slices.writers
    built.slices.writers = tuple(writer for writer in writers if writer.birth.name in tables)
    publish = built.publisher.publish

    class Died(Exception):
        pass

    def die(*_arguments: object, **_named: object) -> None:
        raise Died

    built.publisher.publish = die  # type: ignore[method-assign, assignment]
    with pytest.raises(Died):
        built._fold(piece, built.publisher)
    built.publisher.publish = publish  # type: ignore[method-assign]
    built.slices.writers = writers
