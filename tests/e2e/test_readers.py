"""Readers through many promotes and undos under load.

They get no error (I4), no mix (I2) and nothing backward (I3), and the tables are right (I1).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from e2e_shop import ASKED, V1, V2, expected, item, order
from testbed import Testbed, platform

from kappa.journal.events import Held, Served, SwitchAsked
from kappa.journal.journal import Journal, JournalRecord
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from serving.pin.catalog import pin, pin_build
from serving.query.query import connect

# Odd generations of these tests serve V1, even ones V2, which counts no returns (negative amounts) among a customer's orders:
# only so do tables of both builds at equal offsets, in one answer, not add up. The view is held to the tables it stands on.
QUESTION = """
select (select sum(orders) from by_customer)::bigint, of_items.orders::bigint, of_log.orders, of_log.bought, (select sum(orders) from titled)::bigint, of_items.known::bigint
from (select sum(orders) as orders, sum(orders) filter (item in (select item from items)) as known from by_item) as of_items,
    (select count(*) as orders, count(*) filter (amount is null or amount >= 0) as bought from order_log) as of_log
"""
# One reader process: queries and rests in turn until its standard input ends; reports faults.
# Readers that never rest would leave the jobs none of two cores.
READER = """
import json, sys, threading
from kappa.state.store import Store
from serving.pin.catalog import pin
from serving.query.query import connect

store, stop = Store(sys.argv[1]), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
seen, told, queries, generations = {}, [], 0, set()
generation = 0
while not stop.wait(float(sys.argv[2])):
    queries += 1
    try:
        with pin(store, lease_seconds=30) as pinned:
            with connect(pinned.snapshot, store) as reader:
                ((by_customer, by_item, log, bought, titled, known),) = reader.rows(sys.argv[3]).rows
            pinned.confirm()
        snapshot = pinned.snapshot
        frontier = snapshot.frontiers[snapshot.build_of("shop")]
        decoded = sum(tally.decoded for tally in frontier.tally.get("orders", {}).values())
        counted = log if snapshot.generation % 2 else bought
        if not (by_item == log == decoded and by_customer == counted and titled == known):
            told.append(f"mixed: generation {snapshot.generation}, {by_item} {log} {decoded}, {by_customer} {counted}, {titled} {known}")
        if snapshot.generation < generation:
            told.append(f"backward: generation {snapshot.generation} after {generation}")
        for topic, partition, offset in frontier.offsets.items():
            if offset < seen.get((topic, partition), 0):
                told.append(f"backward: {topic} {partition} {offset} after {seen[topic, partition]}")
            seen[topic, partition] = offset
        generation = snapshot.generation
        generations.add(generation)
    except Exception as error:
        told.append(f"error: {error!r}")
print(json.dumps({"queries": queries, "told": told, "generations": len(generations)}))
"""


@contextmanager
def producing(bed: Testbed) -> Iterator[threading.Event]:
    """Orders arrive all the time, about 150 a second."""
    stop, log = threading.Event(), bed.log

    def go_on() -> None:
        number = 10_000
        with log.producer() as producer:
            while not stop.wait(0.1):
                for _ in range(15):
                    producer.send("orders", order(number))
                    number += 1
                if number % 60 == 0:
                    producer.send(
                        "items", item(number % 9, None if number % 120 else f"title {number}")
                    )
            producer.flush()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def served(
    store: Store, build: str | None, lease_seconds: float = 60.0
) -> tuple[Offsets, dict[str, list[tuple[object, ...]]]]:
    """Offsets and tables of the serving build, or of one named, all of one frontier."""
    with (
        pin(store, lease_seconds=lease_seconds)
        if build is None
        else pin_build(store, build, lease_seconds=lease_seconds) as pinned
    ):
        ((_, frontier),) = pinned.snapshot.frontiers.items()
        with connect(pinned.snapshot, store) as reader:
            tables = {
                table: [tuple(row) for row in reader.rows(sql).rows] for table, sql in ASKED.items()
            }
        pinned.confirm()
    tables["order_log"].sort(key=repr)
    return frontier.offsets, tables


def assert_right(bed: Testbed, *, version: int, build: str | None = None) -> None:
    """I1: what is served equals plain Python over the log's records up to exactly the frontier."""
    offsets, tables = served(bed.store, build)
    assert tables == expected(
        bed.log.records(["orders", "items"], Offsets(), offsets), version=version
    )


def seconds_between(began: JournalRecord, ended: JournalRecord) -> float:
    return (datetime.fromisoformat(ended.at) - datetime.fromisoformat(began.at)).total_seconds()


def told(name: str, seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    return f"{name}: p50 {ordered[len(ordered) // 2]:.2f} s, p99 {ordered[len(ordered) * 99 // 100]:.2f} s, over {len(ordered)}"


def how_long(bed: Testbed) -> str:
    """Reports how long switches took, from request to serving, and how long the hold lasted.

    During the hold readers get nothing newer.
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
    steps = [seconds_between(held[record.event.rollout], record) for record in switched]
    return f"{told('switch', promotes)}; {told('staleness step', steps)}"


@contextmanager
def the_same_all_the_while(bed: Testbed) -> Iterator[None]:
    """A reader pins a snapshot through it all and a collection: its answers stay the same."""
    with pin(bed.store, lease_seconds=60) as pinned:

        def answers() -> list[tuple[object, ...]]:
            with connect(pinned.snapshot, bed.store) as reader:
                return [
                    row for sql in ASKED.values() for row in sorted(reader.rows(sql).rows, key=repr)
                ]

        at_first = answers()
        yield
        bed.must("gc")
        assert answers() == at_first
        pinned.confirm()


@pytest.mark.jvm
@pytest.mark.parametrize(
    ("switches", "count", "rest_seconds"),
    [
        pytest.param(10, 6, 1.6, marks=pytest.mark.timeout(1200)),
        pytest.param(200, 16, 1.6, marks=[pytest.mark.sweep, pytest.mark.timeout(7200)]),
    ],
)
def test_readers_see_no_error_no_mix_and_nothing_backward_through_switches_under_load(
    tmp_path: Path, switches: int, count: int, rest_seconds: float
) -> None:
    with platform(
        tmp_path / "laden é", "[engine]\nlarge_rows = 0\nmaintenance_seconds = 5\n", shop=V1
    ) as bed:
        log = bed.log
        log.produce((order(number) for number in range(3_000)), "orders")
        log.produce((item(number % 9, f"title {number}") for number in range(40)), "items")
        bed.must("deploy", "--yes")
        assert_right(bed, version=1)
        script = tmp_path / "reader.py"
        script.write_text(READER, encoding="utf-8")
        readers = [
            subprocess.Popen(
                [sys.executable, str(script), str(bed.store.folder), str(rest_seconds), QUESTION],
                env=bed.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        with producing(bed), the_same_all_the_while(bed):
            assert_right(bed, version=1)
            bed.declare("shop", V2)
            bed.must("deploy", "--yes")
            assert_right(bed, version=2)
            for switch in range(switches - 1):
                bed.must("undo", "--yes")
                if switch % 5 == 0:
                    assert_right(bed, version=1 if switch % 2 == 0 else 2)
        assert bed.state().generation == switches + 1
        bed.wait_until_folded("shop", log.end(["orders", "items"]))
        live, idle = bed.live("shop"), bed.state().idle["shop"]
        bed.wait(
            lambda: (
                (found := bed.frontier(idle)) is not None
                and found.offsets.covers(log.end(["orders"]))
            ),
            "the idle build at the end",
        )
        assert_right(bed, version=1, build=live)
        assert_right(bed, version=2, build=idle)

        print(how_long(bed))
        queries = 0
        for reader in readers:
            said, _ = reader.communicate(timeout=60)
            seen = json.loads(said)
            assert seen["told"] == []
            assert seen["queries"] > 0
            assert seen["generations"] > 1
            queries += seen["queries"]
        print(f"{count} readers: {queries} queries, 0 errors, 0 mixed, 0 backward")
