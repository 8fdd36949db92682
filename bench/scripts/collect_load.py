"""Runs clients of a collector: persistent connections, each with one open request at a time.

    python collect_load.py PORT TOPIC PID NAME CONNECTIONS EVENTS SECONDS LEDGER.parquet

A request contains one event, or EVENTS events with one per line. If EVENTS is 0, a request is `GET
/healthz`. Each acknowledged event is written to LEDGER.parquet with its partition and offset. The
measurement begins after one second and lasts SECONDS. Prints JSON: the events, the seconds, the CPU
seconds of the process PID, the p50 and p99 of the latencies of requests, and the first refused
answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

WARM_SECONDS = 1.0
TICK = os.sysconf("SC_CLK_TCK")
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)")
HEAD = (
    "POST /collect/{topic} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: load\r\nAccept: */*\r\n"
    "Content-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
)
EVENT = (
    '{{"id": "{id}", "page": "/jobs/{page}", "ms": 12, "agent": "Mozilla/5.0 (X11; Linux x86_64)", '
    '"at": "2026-01-31T14:05:00Z"}}'
)


class Load:
    """The settings, the counters and the received answers that all connections share."""

    def __init__(self, topic: str, name: str, events: int) -> None:
        self.topic, self.name, self.events = topic, name, events
        self.requests = 0
        # Of each answered request: its number, its answer's body, and its seconds.
        self.answered: list[tuple[int, bytes, float]] = []
        self.refused: list[bytes] = []
        self.is_ending = False
        self.open = 0
        self.ended = asyncio.Event()

    def request(self, number: int) -> bytes:
        if not self.events:
            return b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        lines = [
            EVENT.format(id=f"{self.name}-{number}-{line}", page=(number + line) % 100)
            for line in range(1, self.events + 1)
        ]
        kind = "application/json" if self.events == 1 else "application/x-ndjson"
        body = "\n".join(lines)
        return (HEAD.format(topic=self.topic, kind=kind, size=len(body)) + body).encode()


class Connection(asyncio.Protocol):
    """One connection. It sends its next request after receiving the answer to the previous one."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._read = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._load.open += 1
        self._next()

    def data_received(self, data: bytes) -> None:
        load = self._load
        self._read += data
        head = self._read.find(b"\r\n\r\n")
        length = LENGTH.search(self._read, 0, head + 2) if head > 0 else None
        if length is None or len(self._read) < head + 4 + int(length[1]):
            return
        if self._read.startswith(b"HTTP/1.1 200 "):
            took = time.perf_counter() - self._begun
            load.answered.append((self._number, self._read[head + 4 :], took))
        else:
            load.refused.append(self._read)
        self._read = b""
        if load.is_ending:
            self._transport.close()
        else:
            self._next()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._load.open -= 1
        if not self._load.open:
            self._load.ended.set()

    def _next(self) -> None:
        self._load.requests += 1
        self._number = self._load.requests
        self._begun = time.perf_counter()
        self._transport.write(self._load.request(self._number))


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


async def run(load: Load, port: int, pid: int, connections: int, seconds: float) -> Any:
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(load), "127.0.0.1", port)
    await asyncio.sleep(WARM_SECONDS)
    cpu, begun, first = cpu_of(pid), time.monotonic(), len(load.answered)
    await asyncio.sleep(seconds)
    cpu, took, last = cpu_of(pid) - cpu, time.monotonic() - begun, len(load.answered)
    load.is_ending = True
    await load.ended.wait()
    latencies = sorted(each[2] for each in load.answered[first:last])
    return {
        "events": (last - first) * max(1, load.events),
        "seconds": took,
        "cpu": cpu,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[len(latencies) * 99 // 100],
        "refused": [each.decode(errors="replace")[:300] for each in load.refused[:3]],
    }


def places(load: Load) -> pa.Table:
    """Returns a table of all acknowledged events, with the partition and offset of each."""
    rows: list[tuple[str, int, int]] = []
    for number, body, _ in load.answered if load.events else ():
        found = msgspec.json.decode(body)
        for line, each in enumerate(found.get("events", [found]), start=1):
            rows.append((f"{load.name}-{number}-{line}", each["partition"], each["offset"]))
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    types = {"id": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    return pa.table(
        {name: pa.array(column, types[name]) for name, column in zip(types, columns, strict=True)}
    )


port, topic, pid, name, connections, events, seconds, ledger = sys.argv[1:]
load = Load(topic, name, int(events))
took = uvloop.run(run(load, int(port), int(pid), int(connections), float(seconds)))
pq.write_table(places(load), ledger)
print(json.dumps(took))
