"""Readers of the shop, each a process that asks continuously, and the content of an answer."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from e2e_shop import ASKED, expected, item, order
from testbed import Testbed

from kappa.serving.query.pin.catalog import pin_build, pin_served
from kappa.serving.query.query import connect_reader
from kappa.state.journal.events import Held, Served, SwitchAsked
from kappa.state.journal.journal import Journal, JournalRecord
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# V2 counts no returns (negative amounts) among a customer's orders: only so do tables of both
# builds at equal offsets, in one answer, not add up. The view is held to the tables it stands on.
QUESTION = """
select (select sum(orders) from by_customer)::bigint, of_items.orders::bigint, of_log.orders,
    of_log.bought, (select sum(orders) from titled)::bigint, of_items.known::bigint
from (
    select sum(orders) as orders, sum(orders) filter (item in (select item from items)) as known
    from by_item
) as of_items,
(
    select count(*) as orders, count(*) filter (amount is null or amount >= 0) as bought
    from order_log
) as of_log
"""
# One reader process: queries and rests in turn until its standard input ends; reports faults, and
# as which version each build counts. A file tells of each generation that it has read.
# Readers that never rest would leave the jobs no core.
_READER = """
import json, sys, threading
from datetime import UTC, datetime
from pathlib import Path
from kappa.base.settings import load_settings
from kappa.state.store import open_store
from kappa.serving.query.pin.catalog import pin_served
from kappa.serving.query.query import connect_reader

store, stop = open_store(load_settings(Path(sys.argv[1]))), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
seen, told, queries, generations, counted = {}, [], 0, set(), {}
generation = 0
while not stop.wait(float(sys.argv[2])):
    queries += 1
    try:
        with pin_served(store, lease_seconds=30) as pinned:
            with connect_reader(pinned.snapshot, store) as reader:
                (row,) = reader.rows(sys.argv[3]).rows
                by_customer, by_item, log, bought, titled, known = row
            pinned.confirm_kept()
        snapshot = pinned.snapshot
        build = snapshot.serving["shop"]
        frontier = snapshot.frontiers[build]
        decoded = sum(tally.decoded for tally in frontier.tally.get("orders", {}).values())
        what = f"generation {snapshot.generation}, {by_item} {log} {decoded}, {by_customer}"
        if not (by_item == log == decoded and titled == known and by_customer in (log, bought)):
            told.append(f"mixed: {what} {bought}, {titled} {known}")
        counted.setdefault(build, []).append(1 if by_customer == log else 2)
        if snapshot.generation < generation:
            told.append(f"backward: generation {snapshot.generation} after {generation}")
        for topic, partition, offset in frontier.offsets.items():
            if offset < seen.get((topic, partition), 0):
                before = seen[topic, partition]
                told.append(f"backward: {topic} {partition} {offset} after {before}")
            seen[topic, partition] = offset
        generation = snapshot.generation
        generations.add(generation)
        Path(sys.argv[4], str(generation)).touch()
    except Exception as error:
        told.append(f"error: {datetime.now(UTC).isoformat()} {error!r}")
counted = {build: sorted(set(versions)) for build, versions in counted.items()}
found = {"queries": queries, "faults": told, "generations": len(generations), "counted": counted}
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """The faults that one reader saw, and by build the versions that its answers match."""

    queries: int
    faults: Sequence[str]
    generations: int
    counted: Mapping[str, Sequence[int]]


@contextmanager
def readers(bed: Testbed, count: int, *, rest_seconds: float, script: Path) -> Iterator[list[Seen]]:
    """Runs readers within the block; the list contains what they saw after the block.

    Each reader writes a file for each generation that it has read, in a folder next to the script.
    """
    script.write_text(_READER, encoding="utf-8")
    command = [sys.executable, str(script), str(bed.folder), str(rest_seconds), QUESTION]
    folders = [script.with_name(f"reader {number}") for number in range(count)]
    for folder in folders:
        folder.mkdir()
    running = [
        subprocess.Popen(
            [*command, str(folder)],
            env=bed.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder in folders
    ]
    seen: list[Seen] = []
    try:
        yield seen
    finally:
        said = [each.communicate(timeout=60)[0] for each in running]
    seen += [Seen(**json.loads(each)) for each in said]


@contextmanager
def producing(bed: Testbed) -> Iterator[threading.Event]:
    """Produces 300 orders every two seconds within the block."""
    stop, log = threading.Event(), bed.log

    def go_on() -> None:
        with log.producer() as producer:
            for turn in itertools.count():
                # Each time a slice for each job: more often would leave them no core.
                if stop.wait(2.0):
                    break
                for number in range(300 * turn, 300 * turn + 300):
                    producer.send("orders", order(number))
                producer.send("items", item(turn % 9, f"title {turn}" if turn % 4 else None))
            producer.flush()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def served(
    store: Store,
    build: str | None,
    lease_seconds: float = 60.0,
    asked: Mapping[str, str] = ASKED,
) -> tuple[Offsets, dict[str, list[tuple[object, ...]]]]:
    """Returns the offsets and tables of the serving build, or of `build`, at one frontier."""
    with (
        pin_served(store, lease_seconds=lease_seconds)
        if build is None
        else pin_build(store, build, lease_seconds=lease_seconds) as pinned
    ):
        ((_, frontier),) = pinned.snapshot.frontiers.items()
        with connect_reader(pinned.snapshot, store) as reader:
            tables = {
                table: [tuple(row) for row in reader.rows(sql).rows] for table, sql in asked.items()
            }
        pinned.confirm_kept()
    tables["order_log"].sort(key=repr)
    return frontier.offsets, tables


def version_of(bed: Testbed, build: str) -> int:
    """Returns 1 if a build of the shop has the version of the very first build, otherwise 2."""
    state = bed.state()
    return 1 if state.versions[build] == state.versions[state.rollouts[0].build] else 2


def assert_right(bed: Testbed, *, version: int, build: str | None = None) -> None:
    """Asserts I1: the tables equal plain Python over the records up to exactly the frontier."""
    offsets, tables = served(bed.store, build)
    assert tables == expected(
        bed.log.records(["orders", "items"], Offsets(), offsets), version=version
    )


def seconds_between(began: JournalRecord, ended: JournalRecord) -> float:
    return (datetime.fromisoformat(ended.at) - datetime.fromisoformat(began.at)).total_seconds()


def told(name: str, seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    middle, most = (ordered[len(ordered) * share // 100] for share in (50, 99))
    return f"{name}: p50 {middle:.2f} s, p99 {most:.2f} s, over {len(ordered)}"


def how_long(bed: Testbed) -> str:
    """Reports how long switches took from request to serving, and how long the holds lasted.

    During a hold, readers get nothing newer.
    """
    records = list(Journal(bed.store).after(0))
    asked = {record.number: record for record in records if isinstance(record.event, SwitchAsked)}
    held = {record.event.rollout: record for record in records if isinstance(record.event, Held)}
    switched = [
        record
        for record in records
        if isinstance(record.event, Served) and record.event.rollout in asked
    ]
    promotes = [seconds_between(asked[record.event.rollout], record) for record in switched]
    # What serves the same tables as before holds nothing.
    steps = [
        seconds_between(held[record.event.rollout], record)
        for record in switched
        if record.event.rollout in held
    ]
    return f"{told('switch', promotes)}; {told('staleness step', steps)}"


@contextmanager
def the_same_all_the_while(bed: Testbed) -> Iterator[Callable[[], None]]:
    """Pins a snapshot through the block and a collection; asserts that its answers stay the same.

    The block may call the yielded function to compare at any time.
    """
    with pin_served(bed.store, lease_seconds=60) as pinned:

        def answers() -> list[tuple[object, ...]]:
            with connect_reader(pinned.snapshot, bed.store) as reader:
                return [
                    row for sql in ASKED.values() for row in sorted(reader.rows(sql).rows, key=repr)
                ]

        at_first = answers()

        def assert_same() -> None:
            assert answers() == at_first
            pinned.confirm_kept()

        yield assert_same
        bed.must("gc")
        assert_same()
