"""Readers through 20 promotes and undos under load: no error (I4), no mix (I2), nothing backward (I3); and the tables right (I1)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from e2e_shop import ASKED, V1, V2, expected, item, order
from testbed import Testbed, platform

from kappa.offsets import Offsets
from kappa.store import Store
from serving.catalog import pin, pin_build
from serving.query import connect

READERS = 8
SWITCHES = 20

# One reader: a process of its own, asking twice a second (eight that never rest would leave the jobs none of two cores) until its standard input ends, telling what it saw of anything wrong.
READER = """
import json, sys, threading
from kappa.store import Store
from serving.catalog import pin
from serving.query import connect

store, stop = Store(sys.argv[1]), threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
seen, told, queries, generations = {}, [], 0, set()
generation = 0
while not stop.wait(0.4):
    queries += 1
    try:
        with pin(store, lease_seconds=30) as pinned:
            with connect(pinned.snapshot, store) as reader:
                ((by_item, log, titled),) = reader.rows("select (select sum(orders) from by_item)::bigint, (select count(*) from order_log), (select count(*) from titled)").rows
            pinned.confirm()
        snapshot = pinned.snapshot
        frontier = snapshot.frontiers[snapshot.build_of("shop")]
        decoded = sum(tally.decoded for tally in frontier.tally.get("orders", {}).values())
        if not by_item == log == decoded:
            told.append(f"mixed: {by_item} {log} {decoded}")
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
    """Orders arrive all the time, about 300 a second."""
    stop, log = threading.Event(), bed.log

    def go_on() -> None:
        number = 10_000
        with log.producer() as producer:
            while not stop.wait(0.05):
                for _ in range(15):
                    producer.send("orders", order(number))
                    number += 1
                if number % 60 == 0:
                    producer.send("items", item(number % 9, None if number % 120 else f"title {number}"))
            producer.flush()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join()


def served(store: Store, build: str | None, lease_seconds: float = 60.0) -> tuple[Offsets, dict[str, list[tuple[object, ...]]]]:
    """Offsets and tables of the serving build, or of one named, all of one frontier."""
    with pin(store, lease_seconds=lease_seconds) if build is None else pin_build(store, build, lease_seconds=lease_seconds) as pinned:
        ((_, frontier),) = pinned.snapshot.frontiers.items()
        with connect(pinned.snapshot, store) as reader:
            tables = {table: [tuple(row) for row in reader.rows(sql).rows] for table, sql in ASKED.items()}
        pinned.confirm()
    tables["order_log"].sort(key=repr)
    return frontier.offsets, tables


def assert_right(bed: Testbed, *, version: int, build: str | None = None) -> None:
    """I1: what is served equals plain Python over the log's records up to exactly the frontier."""
    offsets, tables = served(bed.store, build)
    assert tables == expected(bed.log.records(["orders", "items"], Offsets(), offsets), version=version)


@pytest.mark.jvm
@pytest.mark.timeout(1200)
def test_readers_see_no_error_no_mix_and_nothing_backward_through_twenty_switches_under_load(tmp_path: Path) -> None:
    with platform(tmp_path / "laden é", shop=V1) as bed:
        log = bed.log
        log.produce((order(number) for number in range(3_000)), "orders")
        log.produce((item(number % 9, f"title {number}") for number in range(40)), "items")
        bed.must("deploy", "--yes")
        assert_right(bed, version=1)
        script = tmp_path / "reader.py"
        script.write_text(READER, encoding="utf-8")
        readers = [
            subprocess.Popen([sys.executable, str(script), str(bed.store.folder)], env=bed.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(READERS)
        ]
        with producing(bed):
            assert_right(bed, version=1)
            bed.declare("shop", V2)
            bed.must("deploy", "--yes")
            assert_right(bed, version=2)
            for switch in range(SWITCHES - 1):
                bed.must("undo", "--yes")
                if switch % 5 == 0:
                    assert_right(bed, version=1 if switch % 2 == 0 else 2)
        assert bed.state().generation == SWITCHES + 1
        bed.wait_until_folded("shop", log.end(["orders", "items"]))
        live, idle = bed.live("shop"), bed.state().idle["shop"]
        bed.wait(lambda: (found := bed.frontier(idle)) is not None and found.offsets.covers(log.end(["orders"])), "the idle build at the end")
        assert_right(bed, version=1, build=live)
        assert_right(bed, version=2, build=idle)

        for reader in readers:
            said, _ = reader.communicate(timeout=60)
            seen = json.loads(said)
            print(f"reader: {seen['queries']} queries over {seen['generations']} generations, {len(seen['told'])} wrong")
            assert seen["told"] == []
            assert seen["queries"] > 0
            assert seen["generations"] > 1
