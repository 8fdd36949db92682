"""A collector in its own process, and its clients."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from house import HOUSE

from kappa import Topic
from kappa.kafka.client import Log
from kappa.kafka.reader import Record
from kappa.records.identity import Memory, identity_of
from kappa.records.record import RecordReader, Tombstone
from kappa.state.offsets import Offsets

PATIENCE_SECONDS = 180.0

PIPELINE = """
from kappa import Table, Topic, count, pipeline

VISITS = Topic("{visits}", event="id string, page string not null, ms int", partitions=3,
    key={key}, identity={identity}, config={config})


@pipeline(
    reads={{"visits": VISITS}},
    writes=[Table("hits", keys=("page",), fold={{"hits": count()}})],
)
def web(visits):
    return {{"hits": visits}}
"""


EVENT = "id string, page string not null, ms int"
IDENTIFIED = Topic(
    "kept",
    event=EVENT,
    partitions=3,
    identity="id",
    config={"message.timestamp.type": "LogAppendTime"},
)


def records_of(log: Log, topic: str) -> list[Record]:
    """Returns all records of a topic."""
    return list(log.records([topic], Offsets(), log.end([topic])))


def ids_of(log: Log, topic: str) -> list[int]:
    """Returns the ids of a topic's events, in the order of the log."""
    return [int(json.loads(each.value or b"")["id"]) for each in records_of(log, topic)]


def folded(found: Iterable[Record]) -> Counter[str]:
    """Returns how often each event is folded: once, unless a repeat was not recognized."""
    identity, reader = identity_of(IDENTIFIED), RecordReader(IDENTIFIED)
    assert identity is not None
    memories: dict[int, Memory] = {}
    counted: Counter[str] = Counter()
    for record in found:
        row = reader.read(record.key, record.value)
        assert not isinstance(row, Tombstone)
        memory = memories.setdefault(record.partition, Memory(600_000))
        digest = identity(row)
        assert digest is not None
        if memory.accepts(digest, record.timestamp_ms):
            counted[row[0]] += 1
    return counted


def write_project(
    folder: Path,
    topic: str,
    *,
    settings: str = "",
    key: str | None = "page",
    identity: str = "",
) -> Path:
    """Writes a project whose pipeline reads a topic that the collector fills."""
    (folder / "pipelines").mkdir(parents=True, exist_ok=True)
    config = {"message.timestamp.type": "LogAppendTime"} if identity else {}
    (folder / "pipelines" / "web.py").write_text(
        PIPELINE.format(
            visits=topic, key=repr(key), identity=repr(identity or ()), config=repr(config)
        )
    )
    (folder / "kappa.toml").write_text(
        f'[collect]\ntopics = ["{topic}"]\nlisten = "127.0.0.1:0"\n{settings}'
    )
    return folder


@dataclass(frozen=True, slots=True)
class Replied:
    """An answer of the collector."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Collector:
    """A running collector."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    said: str

    def connection(self, patience_seconds: float = PATIENCE_SECONDS) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=patience_seconds)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        *,
        connection: http.client.HTTPConnection | None = None,
        **headers: str,
    ) -> Replied:
        """Sends a request. Each `_` in a header's name is sent as `-`."""
        own = connection or self.connection()
        try:
            own.request(
                method,
                path,
                body.encode() if isinstance(body, str) else body,
                {name.replace("_", "-"): value for name, value in headers.items()},
            )
            got = own.getresponse()
            return Replied(
                got.status, got.read(), {name.lower(): value for name, value in got.getheaders()}
            )
        finally:
            if connection is None:
                own.close()

    def post(self, topic: str, body: bytes | str, **headers: str) -> Replied:
        """Sends one event."""
        return self.ask("POST", f"/collect/{topic}", body, **headers)

    def post_lines(self, topic: str, *lines: str | bytes, **headers: str) -> Replied:
        """Sends several events, one per line."""
        body = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
        return self.post(topic, body, content_type="application/x-ndjson", **headers)

    def metric(self, name: str, **labels: str) -> float:
        """Returns a metric's value, or 0 if there is no such sample."""
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if line.startswith((f"{name} ", f"{name}{{")) and all(
                f'{label}="{value}"' in line for label, value in labels.items()
            ):
                return float(line.rpartition(" ")[2])
        return 0.0


def request(topic: str, body: str, *headers: str) -> bytes:
    """Returns a request as bytes."""
    lines = [f"POST /collect/{topic} HTTP/1.1", "Host: 127.0.0.1", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


class Connected:
    """One connection to a server of this machine, on which requests are sent as bytes.

    All answers are read from one buffer, since answers to pipelined requests may come together.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, content: bytes) -> None:
        self._socket.sendall(content)

    def answer(self) -> tuple[int, dict[str, str], str]:
        """Reads the next answer, and returns its status, headers and body."""
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._file.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return status, headers, self._file.read(int(headers["content-length"])).decode()

    def is_ended(self) -> bool:
        """Waits for the next byte, and tells whether the server ended the connection instead."""
        return self._file.read(1) == b""

    def answers(self, count: int) -> list[tuple[int, str]]:
        found = (self.answer() for _ in range(count))
        return [(status, body) for status, _, body in found]


def collector_command(project: Path, bootstrap_servers: str) -> list[str]:
    """Returns the command line of a collector."""
    return [
        *(sys.executable, "-P", "-m", "kappa.serving.collect.collector"),
        *("--project", str(project), "--root", str(project / ".kappa")),
        *("--bootstrap", bootstrap_servers),
    ]


@contextmanager
def collecting(project: Path, bootstrap_servers: str) -> Iterator[Collector]:
    """Runs a collector within the block, and kills it at the end."""
    log = project / "collector.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            collector_command(project, bootstrap_servers),
            cwd=HOUSE,
            env=os.environ,
            stdout=output,
            stderr=output,
        )
    try:
        said, host, port = _place(process, log)
        found = Collector(process, host, port, said)
        until(lambda: _is_there(found), "the collector to listen")
        yield found
    finally:
        process.kill()
        process.wait()


def _place(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str, int]:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        text = log.read_text()
        if match := re.search(r"events are taken at http://([^:/]+):(\d+)/.*\n", text):
            return text, match[1], int(match[2])
        assert process.poll() is None, text
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def _is_there(collector: Collector) -> bool:
    try:
        return collector.ask("GET", "/healthz").status == 200
    except OSError:
        return False


def until(reached: Any, what: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until `reached` returns True; fails with `what` if that takes too long."""
    deadline = time.monotonic() + patience_seconds
    while not reached():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
