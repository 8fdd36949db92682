"""Losses of a killed process, per guarantee: the second table of docs/explain/losses.md."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import quote

import pytest
from builds import JobProcess, Project
from changing import ChangingWorld
from collecting import Collector, collecting, until, write_project
from delivering import applied, known, once
from ports import free_port
from receiver import SECRET, Receiver
from sinking import (
    courier,
    cursor_of,
    ensure_has_all,
    records_of,
    rows_of_topic,
    served_records,
    wait_for,
)

from kappa import Topic
from kappa.declare.alert import AlertBirth
from kappa.declare.sink import SinkBirth
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.serving.outlets.alerts.outbox import read_outbox
from kappa.serving.query.reader.reader import open_reader
from kappa.serving.query.reader.relations import put_tables
from kappa.state.build import read_birth
from kappa.state.store import Store

AT_MOST, AT_LEAST, EXACTLY = "at most once", "at least once", "exactly once"
# Events that are sent in each way into the collector, which is killed at this datagram.
_EVENTS = {"udp": 1_000, "get": 1_000, "post": 300}
_KILLED_AT = 100
_NUMBERS = 600
_RATE_A_SECOND = 100
_CHANGES = 12
_PIXEL = "/collect/visits/pixel.gif?event="
_SOURCE = """
    from kappa import Table, Topic, pipeline

    NUMBERS = Topic("numbers", event="n int", partitions=1)

    @pipeline(reads={"numbers": NUMBERS}, writes=[Table("rows")])
    def shop(numbers):
        return {"rows": numbers.select("n")}
"""


@dataclass(frozen=True, slots=True)
class Crashed:
    """The counts of the events or changes that were sent in one way, after a kill."""

    guarantee: str
    way: str
    killed: str
    sent: int
    lost: int
    doubled: int

    @property
    def row(self) -> str:
        """Returns these counts as a row of the table."""
        counts = (f"{count:,}" for count in (self.sent, self.lost, self.doubled))
        return f"| {self.guarantee} | {' | '.join([self.way, self.killed, *counts])} |"

    def ensure_kept(self) -> None:
        """Asserts that the guarantee holds."""
        assert self.lost == 0 or self.guarantee == AT_MOST, self.row
        assert self.doubled == 0 or self.guarantee != EXACTLY, self.row


def crash_all(folder: Path, bootstrap_servers: str) -> list[Crashed]:
    """Kills a process of each way, and counts the losses and the duplicates."""
    log = Log(bootstrap_servers)
    return [
        *crash_collector(folder / "collector", log),
        crash_alerts(folder / "alerts"),
        crash_sink(folder / "sink", log),
        crash_job(folder / "job", log),
    ]


def table(crashed: Sequence[Crashed]) -> str:
    """Returns a table with a row for each way."""
    head = "| guarantee | way | killed | sent | lost | doubled |\n|---|---|---|---:|---:|---:|"
    return "\n".join([head, *(each.row for each in crashed)])


def crash_collector(folder: Path, log: Log) -> list[Crashed]:
    """Kills the collector while datagrams, pixels and repeated requests arrive; starts it again."""
    log.create(Topic("visits", event="id string, page string not null, ms int", partitions=3))
    ports = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
    project = write_project(folder, "visits", settings=f'udp = "127.0.0.1:{ports[1]}"\n')
    settings = (project / "kappa.toml").read_text().replace(":0", f":{ports[0]}")
    (project / "kappa.toml").write_text(settings)
    asking = Collector(None, "127.0.0.1", ports[0], "")  # type: ignore[arg-type]  # asked only
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    is_at_kill = threading.Event()
    answered: list[int] = []

    def event(way: str, number: int) -> str:
        return json.dumps({"page": f"{way}-{number}"})

    def pages() -> list[str]:
        return [json.loads(each.value or b"{}")["page"] for each in records_of(log, "visits")]

    def send_datagram(number: int) -> None:
        sender.sendto(f"visits {event('udp', number)}".encode(), ("127.0.0.1", ports[1]))
        if number == _KILLED_AT:
            is_at_kill.set()

    def get_pixel(number: int) -> None:
        if _status(asking, "GET", f"{_PIXEL}{quote(event('get', number))}") == 200:
            answered.append(number)

    def post(number: int) -> None:
        while _status(asking, "POST", "/collect/visits", event("post", number)) != 200:
            time.sleep(0.01)

    threads = [
        threading.Thread(target=_each_in_turn, args=(send, _EVENTS[way]), daemon=True)
        for way, send in (("udp", send_datagram), ("get", get_pixel), ("post", post))
    ]
    with collecting(project, log.bootstrap_servers) as collector:
        for thread in threads:
            thread.start()
        assert is_at_kill.wait(60)
        collector.process.kill()
        collector.process.wait()
    with collecting(project, log.bootstrap_servers) as collector:
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
        # Pixels and datagrams wait in one line on the disk.
        assert _status(collector, "GET", f"{_PIXEL}{quote(event('get', -1))}") == 200
        until(lambda: "get--1" in pages(), "all to be sent")
        found = Counter(pages())
    sender.close()
    # A pixel that was answered is on the disk.
    assert [number for number in answered if f"get-{number}" not in found] == []
    ways = {
        "udp": (AT_MOST, "a datagram to the collector"),
        "get": (AT_MOST, "a pixel, which nobody asks for again"),
        "post": (AT_LEAST, "an event that is posted until it is acknowledged, without an identity"),
    }
    return [
        Crashed(
            *told,
            "the collector, under load",
            _EVENTS[way],
            lost=sum(f"{way}-{number}" not in found for number in range(_EVENTS[way])),
            doubled=sum(max(0, found[f"{way}-{number}"] - 1) for number in range(_EVENTS[way])),
        )
        for way, told in ways.items()
    ]


def crash_alerts(folder: Path) -> Crashed:
    """Kills the courier between the sending of an alert and the note that it was sent."""
    root = folder / ".kappa"
    root.mkdir(parents=True)
    alert = AlertBirth("cities", "cities", "https://receiver.invalid")
    world = ChangingWorld(Store(root, syncs=False), 7, alerts=((alert,),), now=time.time())
    with Receiver().up() as there, pytest.MonkeyPatch.context() as environment:
        environment.setenv("KAPPA__ALERTS__SECRET", SECRET)
        environment.setenv("KAPPA__ALERTS__URLS__CITIES", there.url)
        nowhere = "127.0.0.1:1"
        with courier(folder, root, nowhere):
            wait_for(lambda: read_outbox(world.store, "cities") is not None, "the alert")
        with courier(folder, root, nowhere, fail="alert.after_send:kill:3") as process:
            while process.poll() is None:
                world.fold()
                time.sleep(0.05)
        with courier(folder, root, nowhere):
            for _ in range(_CHANGES):
                world.fold()
            wait_for(lambda: applied([], once(there.messages)) == known(world.store), "all")
        served = {row["city"]: row for row in known(world.store)}
        told = {row["city"]: row for row in applied([], once(there.messages))}
    world.close()
    return Crashed(
        AT_LEAST,
        "an alert, by webhook",
        "the courier, behind a message",
        len(once(there.messages)),
        lost=sum(told.get(city) != row for city, row in served.items()),
        doubled=len(there.messages) - len(once(there.messages)),
    )


def crash_sink(folder: Path, log: Log) -> Crashed:
    """Kills the courier before and after the commit of a sink's transaction."""
    (folder / "root").mkdir(parents=True)
    sink = SinkBirth("totals", "totals")
    world = ChangingWorld(Store(folder / "root"), 7, (sink,), now=time.time())
    world.fold()
    for point in ("sink.before_commit", "sink.after_commit"):
        with courier(
            folder, folder / "root", log.bootstrap_servers, fail=f"{point}:kill:2"
        ) as process:
            while process.poll() is None:
                world.fold()
                time.sleep(0.05)
    with courier(folder, folder / "root", log.bootstrap_servers):
        for _ in range(_CHANGES):
            world.fold()
        ensure_has_all(log, world.store, sink)
    records = records_of(log, "totals")
    rows, served = rows_of_topic(log, "totals"), served_records(world.store, "totals")
    world.close()
    return Crashed(
        EXACTLY,
        "a sink's records",
        "the courier, before and behind a commit",
        len(records),
        lost=sum(rows.get(key) != value for key, value in served.items()),
        doubled=len(records) - len({(each.key, cursor_of(each)) for each in records}),
    )


def crash_job(folder: Path, log: Log) -> Crashed:
    """Kills a job between its tables' commits and the frontier that names the commits."""
    project = Project(folder, log)
    project.bear("b-1", _SOURCE, {"rows": "n int"})
    jobs: list[JobProcess] = []
    try:
        for first in (0, _NUMBERS):
            log.produce(
                [
                    ProducedRecord(json.dumps({"n": number}).encode())
                    for number in range(first, first + _NUMBERS)
                ],
                "numbers",
            )
            fail = {} if first else {"KAPPA_FAIL": "job.before_frontier:kill"}
            jobs.append(project.start("b-1", **fail))
            if not first:
                assert jobs[-1].ended() == -signal.SIGKILL, jobs[-1].said()
        frontier = project.wait_until_folded("b-1", jobs[-1])
        with open_reader(None, served=True) as reader:
            put_tables(reader, "it", read_birth(project.store, "b-1"), frontier, project.store)
            rows = Counter(n for (n,) in reader.rows('select n from it."rows"').rows)
        assert jobs[-1].stop() == 0
    finally:
        for job in jobs:
            job.kill()
    return Crashed(
        EXACTLY,
        "a table's rows",
        "the job, between commit and frontier",
        2 * _NUMBERS,
        lost=2 * _NUMBERS - len(rows),
        doubled=rows.total() - len(rows),
    )


def _each_in_turn(send: Callable[[int], None], count: int) -> None:
    began = time.monotonic()
    for number in range(count):
        while (early := began + number / _RATE_A_SECOND - time.monotonic()) > 0:
            time.sleep(early)
        send(number)


def _status(collector: Collector, method: str, path: str, body: str | None = None) -> int:
    """Returns the status of an answer, or 0 if there is no answer."""
    try:
        connection = collector.connection(30)
        return collector.ask(method, path, body, connection=connection).status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
