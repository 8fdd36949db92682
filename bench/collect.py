"""Measures the collector: events per second of one core, as single events and in batches.

    python bench --cell collect

A collector runs on its own core, against a real broker, with `acks=all`. Its clients are a process
on another core. In each round, the clients send single events and batches of two sizes. For
comparison, they also send requests to `GET /healthz`, which does nothing. The rates are per second
of CPU time of the collector, summed over its threads. At the end, an independent consumer reads the
topic. The topic must contain each acknowledged event exactly once, at the partition and offset that
the collector's answer has named, and nothing else.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
from ground import ground, say
from oracle import consume
from screen import Report, spread_of, table

from kappa import Topic
from kappa.base.errors import KappaError
from kappa.base.process import start_tied
from kappa.kafka.client import Log

LOAD = Path(__file__).with_name("scripts") / "collect_load.py"
TOPIC = "collected"
EVENT = "id string, page string not null, ms int, agent string, at timestamp"
_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
_PIPELINE = f"""
from kappa import Table, Topic, count, pipeline

COLLECTED = Topic("{TOPIC}", event="{EVENT}", partitions=4, key="page")


@pipeline(
    reads={{"events": COLLECTED}},
    writes=[Table("hits", keys=("page",), fold={{"hits": count()}})],
)
def bench(events):
    return {{"hits": events}}
"""
# Connections, and events of a request.
_NOTHING, _SINGLE = (64, 0), (64, 1)
STRETCHES = (_NOTHING, _SINGLE, (16, 100), (8, 1000))


@dataclass(frozen=True, slots=True)
class Stretched:
    """The measurements for one kind of requests.

    `connections` is the number of connections, and `batch` the number of events per request.
    `events` events were sent in `seconds` seconds with `cpu` seconds of the collector's CPU time.
    `p50` and `p99` are the seconds per request.
    """

    connections: int
    batch: int
    events: int
    seconds: float
    cpu: float
    p50: float
    p99: float

    @property
    def of_a_core(self) -> float:
        """Returns the number of events per second of the collector's CPU time."""
        return self.events / self.cpu


def main(home: Path, rounds: int) -> Report | None:
    """Measures the collector.

    Returns None if the records in the topic differ from the acknowledged events.
    """
    folder = home / "run" / "collect"
    shutil.rmtree(folder, ignore_errors=True)
    found: list[Stretched] = []
    with ground(home) as here:
        if TOPIC in here.log.topics():
            here.log.delete(TOPIC)
        here.log.create(Topic(TOPIC, event=EVENT, partitions=4))
        with _collector(folder, here.log) as (port, pid):
            for number in range(rounds):
                for connections, batch in STRETCHES:
                    took = _stretch(folder, port, pid, f"r{number}", connections, batch)
                    found.append(took)
                    say(f"round {number + 1}: {_told(took)}")
        wrong = _differences(folder, here.log)
        here.log.delete(TOPIC)
    if wrong:
        say(f"no figure: {wrong}")
        return None
    return _report(found, rounds)


@contextmanager
def _collector(folder: Path, log: Log) -> Iterator[tuple[int, int]]:
    """Runs a collector on the first core. Yields its port and its process id."""
    (folder / "pipelines").mkdir(parents=True)
    (folder / "pipelines" / "bench.py").write_text(_PIPELINE, encoding="utf-8")
    (folder / "kappa.toml").write_text(
        f'[collect]\ntopics = ["{TOPIC}"]\nlisten = "127.0.0.1:0"\n', encoding="utf-8"
    )
    said = folder / "collector.log"
    with said.open("wb") as output:
        process = start_tied(
            [
                *(sys.executable, "-P", "-m", "kappa.serving.collect.collector"),
                *("--project", str(folder), "--root", str(folder / ".kappa")),
                *("--bootstrap", log.bootstrap_servers),
            ],
            output=output,
        )
    try:
        # Before it has threads, which take it over.
        os.sched_setaffinity(process.pid, _cores()[:1])
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (match := re.search(r"taken at http://[^:/]+:(\d+)/", said.read_text())):
            if process.poll() is not None or time.monotonic() > deadline:
                raise KappaError("the collector does not listen", hint=f"see {said}")
            time.sleep(0.05)
        yield int(match[1]), process.pid
    finally:
        process.kill()
        process.wait()


def _stretch(
    folder: Path, port: int, pid: int, name: str, connections: int, batch: int
) -> Stretched:
    ledger = folder / f"{name}-{batch}.parquet"
    command = [sys.executable, str(LOAD), str(port), TOPIC, str(pid), f"{name}-{batch}"]
    done = subprocess.run(
        [*command, str(connections), str(batch), str(_SECONDS), str(ledger)],
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, _cores()[-1:]),
    )
    if done.returncode:
        raise KappaError(f"the clients ended with {done.returncode}", hint=done.stderr[-300:])
    took = json.loads(done.stdout)
    if refused := took.pop("refused"):
        raise KappaError("the collector has refused events", hint=refused[0])
    return Stretched(connections, batch, **took)


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def _differences(folder: Path, log: Log) -> str:
    """Compares the topic's records with the acknowledged events. Returns "" if they are equal."""
    raw = folder / "raw.parquet"
    consume(log.bootstrap_servers, TOPIC, log.end([TOPIC]), raw)
    with duckdb.connect(":memory:") as connection:
        connection.execute(
            f"""create view log as select value->>'id' as id, "partition", "offset" from '{raw}'"""
        )
        connection.execute(f"create view acknowledged as from '{folder}/r*-*.parquet'")
        lacking, more, every = connection.execute(
            "select (select count(*) from (from acknowledged except all from log)),"
            "(select count(*) from (from log except all from acknowledged)),"
            "(select count(*) from acknowledged)"
        ).fetchall()[0]
    if lacking or more:
        return f"the log lacks {lacking} acknowledged events, and has {more} others"
    say(f"{every:,} events were acknowledged, and each is at its place in the log, once")
    return ""


def _told(took: Stretched) -> str:
    what = {0: "nothing", 1: "single events"}.get(took.batch, f"batches of {took.batch}")
    return (
        f"{what}, {took.connections} connections: {took.of_a_core:,.0f}/s of a core, "
        f"{took.events / took.seconds:,.0f}/s; p50 {took.p50 * 1e3:.1f} ms"
    )


def _report(found: Sequence[Stretched], rounds: int) -> Report:
    by = {
        each: [took for took in found if (took.connections, took.batch) == each]
        for each in STRETCHES
    }
    ratio = spread_of(
        [
            single.cpu / single.events * nothing.events / nothing.cpu
            for single, nothing in zip(by[_SINGLE], by[_NOTHING], strict=True)
        ],
        "{:.2f}",
    )
    figures, line = [], []
    for (connections, batch), each in by.items():
        what = {0: "`GET /healthz`, for scale", 1: "1"}.get(batch, str(batch))
        cores = spread_of([took.of_a_core for took in each], "{:,.0f}")
        figures.append(
            (
                what,
                str(connections),
                cores,
                spread_of([took.cpu / took.events * 1e6 for took in each], "{:.1f}"),
                spread_of([took.events / took.seconds for took in each], "{:,.0f}"),
                spread_of([took.p50 * 1e3 for took in each], "{:.1f}"),
                spread_of([took.p99 * 1e3 for took in each], "{:.1f}"),
            )
        )
        line.append(f"{batch or 'nothing'}: {cores}/s of a core")
    head = (
        *("events a request", "connections", "events/s of a core", "CPU us/event", "events/s"),
        *("p50, ms", "p99, ms"),
    )
    note = f"{rounds} rounds. A single event costs {ratio} times the CPU of `GET /healthz`."
    return Report(
        f"bench collect, {rounds} rounds: {'; '.join(line)}; single {ratio}x nothing",
        found,
        f"{table(head, figures)}\n\n{note}",
    )
