"""A large slice has the same rows and counts, whatever the number of decoding tasks (law 4)."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kappa import Table, Topic
from kappa.base.duck import open_connection
from kappa.engine.children.rehearsal import MemoryLog
from kappa.engine.fold.latest import latest_input, latest_sql, latest_table
from kappa.engine.function.decoded_rows import ORDER_AND_FATE, with_fate
from kappa.engine.slice_in_spark import DecodedFiles
from kappa.records.decode.decode import ByteBudget, TooManyBytesError, decode_ranges, decode_table
from kappa.records.decode.decoder import Memories
from kappa.records.decode.outcome import VALID, Counts, counts_in, decoded_columns, joined
from kappa.records.decode.parquet_decoder import (
    LEAST_OFFSETS,
    Remembering,
    Undivided,
    carried_times,
    decode_to_file,
    shares_of,
)
from kappa.records.decode.raw_records import RawRange
from kappa.records.redrive import Original, Position
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.tables.shape import latest_birth

EVENT = "id int not null, name string, at timestamp"
EVENTS = Topic("events", event=EVENT, partitions=3, event_time="at", lateness="5 seconds")
THINGS = Topic("things", event=EVENT, partitions=3, kind="compacted", key="id")
KNOWN = Topic("known", event=EVENT, partitions=3, identity="id", identity_horizon="1 hour")
BEGAN_MS = 1_700_000_000_000
FEW = LEAST_OFFSETS - 1


def unread(_partition: int, _start: int, _end: int) -> Any:
    raise AssertionError("nothing is read to decide")


def ranges_of(*offsets: int) -> list[RawRange]:
    return [RawRange(number, 7, 7 + each, unread) for number, each in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "cores", "counts", "undivided"),
    [
        # As many ranges as cores, or more: no core waits.
        ([10**7] * 4, 4, [1, 1, 1, 1], None),
        ([10**7] * 4, 2, [1, 1, 1, 1], None),
        ([], 8, [], None),
        ([10**7] * 4, 8, [2, 2, 2, 2], None),
        ([10**7 + 3, 10**7, 10**7, 10**7 - 3], 8, [2, 2, 2, 2], None),
        ([10**7] * 3, 8, [3, 3, 2], None),
        ([9 * 10**6, 10**6], 8, [7, 1], None),
        ([10**7], 4, [4], None),
        # Only as far as each task has enough.
        ([2 * LEAST_OFFSETS], 8, [2], None),
        ([2 * LEAST_OFFSETS, FEW], 8, [2, 1], None),
        ([2 * LEAST_OFFSETS - 1], 8, [1], Undivided.FEW_OFFSETS),
        ([FEW] * 3, 8, [1, 1, 1], Undivided.FEW_OFFSETS),
    ],
)
def test_ranges_are_divided_where_cores_would_wait(
    offsets: list[int], cores: int, counts: list[int], undivided: Undivided | None
) -> None:
    found = shares_of(EVENTS, ranges_of(*offsets), cores)

    assert [
        sum(each.partition == number for each in found.ranges) for number in range(len(offsets))
    ] == counts
    assert found.undivided is undivided


def test_a_topic_with_an_identity_is_not_divided() -> None:
    ranges = ranges_of(10**7, 10**7)

    found = shares_of(KNOWN, ranges, 8)

    assert found.ranges == tuple(ranges)
    assert found.undivided is Undivided.IDENTITY
    assert shares_of(KNOWN, ranges, 2).undivided is None
    assert shares_of(KNOWN, ranges_of(FEW), 8).undivided is Undivided.FEW_OFFSETS


@pytest.mark.law
@examples(50)
@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=9), st.integers(1, 20))
def test_shares_are_the_ranges_each_offset_once(offsets: list[int], cores: int) -> None:
    ranges = ranges_of(*offsets)

    shares = shares_of(EVENTS, ranges, cores).ranges

    assert len(shares) <= max(cores, len(ranges))
    for each in ranges:
        own = [share for share in shares if share.partition == each.partition]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert [share.end for share in own[:-1]] == [share.start for share in own[1:]]
        assert len(own) == 1 or min(share.offsets for share in own) >= LEAST_OFFSETS


def random_log(draw: random.Random, topic: Topic) -> MemoryLog:
    """Returns records with every fate, with holes; brokers' clocks go back, sometimes far."""
    log, clock = MemoryLog(), BEGAN_MS
    for _ in range(draw.randrange(60)):
        clock += draw.choice([0, 1, 1, 400, -3_000, 60_000, -50_000])
        partition = draw.randrange(2)
        if draw.random() < 0.1:
            log.skip(topic.name, partition, draw.choice([1, 1, 12]))
            continue
        number, at = draw.randrange(5), clock - draw.choice([0, 0, 0, 4_000, 6_000])
        value = json.dumps({"id": number, "name": str(clock), "at": at}).encode()
        end = log.ends[topic.name, partition]
        redriven = topic is EVENTS and draw.random() < 0.1 and end
        log.add(
            topic.name,
            partition,
            draw.choice([value, value, value, value, b"{", None]),
            key=b"%d" % number if topic.key else None,
            ms=clock,
            headers=(Original(Position(topic.name, partition, draw.randrange(end)), at).header(),)
            if redriven
            else (),
        )
    return log


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.sort_by(
        [("_partition", "ascending"), ("_offset", "ascending")]
    ).to_pylist()
    return found


def decoded_by_tasks(
    folder: Path,
    topic: Topic,
    shares: list[RawRange],
    clock: dict[int, int],
    left_out: frozenset[str],
) -> tuple[DecodedFiles, dict[int, Counts]]:
    seen = [
        decode_to_file(
            share.batches(),
            topic,
            clock,
            Remembering(),
            folder / f"{number}.parquet",
            left_out=left_out,
        )
        for number, share in enumerate(shares)
    ]
    paths = tuple(str(folder / f"{number}.parquet") for number in range(len(shares)))
    files = DecodedFiles(topic.name, paths, None, left_out, carried_times(shares, seen))
    return files, reduce(joined, seen, {})


@pytest.mark.law
@pytest.mark.parametrize("topic", [EVENTS, THINGS])
@examples(12)
@given(st.integers(0, 10**9))
def test_any_number_of_tasks_gives_the_rows_and_counts_of_one(
    tmp_path_factory: pytest.TempPathFactory, topic: Topic, seed: int
) -> None:
    draw, folder = random.Random(seed), tmp_path_factory.mktemp("shares")
    log = random_log(draw, topic)
    begin = {
        partition: draw.choice([0, draw.randint(0, end)])
        for (_, partition), end in log.ends.items()
    }
    start = Offsets({topic.name: begin})
    before = decode_table(log.read_records(Slice(1, 0, Offsets(), start)), topic, {}, {})
    clock = {partition: one.log_time for partition, one in counts_in(before).items()}
    piece = Slice(1, 1, start, log.end)
    wanted = decode_table(log.read_records(piece), topic, clock, {})
    left_out = frozenset({"_log_time", "name"} if topic is EVENTS and draw.random() < 0.2 else ())

    files, seen = decoded_by_tasks(
        folder,
        topic,
        [
            share
            for each in log.ranges(piece, topic.name)
            for share in each.divided(draw.choice([1, 1, 2, 3, 9]))
        ],
        clock,
        left_out,
    )

    assert seen == counts_in(wanted)
    columns = [column for column in decoded_columns(topic) if column[0] not in left_out]
    names = [name for name, _ in columns]
    # The search for culprits takes them in this very order.
    chunks = [rows.select(names) for rows in files.valid(columns, 5)]
    valid = [row for rows in chunks for row in rows.to_pylist()]
    assert valid == in_order(with_fate(wanted, *VALID).select(names))
    if left_out or not seen:
        return
    places = files.places(pc.field("_offset") >= 0, ORDER_AND_FATE)
    assert in_order(places) == in_order(wanted.select(ORDER_AND_FATE))
    with open_connection() as duck:
        found = duck.execute(files.sql(columns, ())).to_arrow_table()
        assert in_order(found.cast(wanted.schema)) == in_order(wanted)
        if topic is THINGS:
            table = latest_birth(Table("newest", latest=THINGS))
            newest = latest_table(wanted, table)
            sql = latest_sql(table, files.sql(latest_input(table), ()))
            found = duck.execute(sql).to_arrow_table().cast(newest.schema)
            assert in_order(found) == in_order(newest)


@pytest.mark.law
@pytest.mark.parametrize("topic", [EVENTS, THINGS, KNOWN])
@examples(12)
@given(st.integers(0, 10**9))
def test_threads_decode_the_rows_of_one_reading(topic: Topic, seed: int) -> None:
    """Threads decode the same rows as one reading, and keep the same memories of identities."""
    draw = random.Random(seed)
    log = random_log(draw, topic)
    start = Offsets({topic.name: {part: end // 2 for (_, part), end in log.ends.items()}})
    remembered: tuple[Memories, Memories] = {}, {}
    for memories in remembered:
        before = decode_table(log.read_records(Slice(1, 0, Offsets(), start)), topic, {}, memories)
    clock = {partition: one.log_time for partition, one in counts_in(before).items()}
    piece = Slice(1, 1, start, log.end)
    wanted = decode_table(log.read_records(piece), topic, clock, remembered[0])

    with ThreadPoolExecutor(2) as threads:
        ranges = log.ranges(piece, topic.name)
        found = decode_ranges(ranges, topic, clock, remembered[1], threads, ByteBudget(1 << 20))

        assert in_order(found) == in_order(wanted)
        # The next record is judged alike.
        for partition, memory in remembered[0].items():
            for number in range(6):
                identity, at = (number,), clock.get(partition, BEGAN_MS) + 10**6
                assert memory.accepts(identity, at) == remembered[1][partition].accepts(
                    identity, at
                )
        if found.num_rows:
            with pytest.raises(TooManyBytesError):
                decode_ranges(ranges, topic, clock, {}, threads, ByteBudget(10))
