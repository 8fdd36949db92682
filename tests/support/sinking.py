"""A simple consumer of a sink's topic, and a courier in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from house import HOUSE

from kappa.declare.sink import SinkBirth
from kappa.kafka.client import Log
from kappa.kafka.reader import Record
from kappa.serving.outlets.changes.filter import Filter
from kappa.serving.outlets.changes.follower import Follower
from kappa.serving.outlets.sinks.sink_outlet import SinkOutlet
from kappa.serving.outlets.sinks.sink_topic import CURSOR
from kappa.state.store import Store

PATIENCE_SECONDS = 90.0
# Nobody sets it.
_PAUSE = threading.Event()


def records_of(log: Log, topic: str) -> list[Record]:
    """Returns the records that a read-committed consumer of a topic gets, in order."""
    if log.facts(topic) is None:
        return []
    return list(log.records([topic], log.beginning([topic]), log.end([topic])))


def rows_of_topic(log: Log, topic: str) -> dict[str, str]:
    """Returns the newest value of each key."""
    rows: dict[str, str] = {}
    for record in records_of(log, topic):
        assert record.key is not None
        if record.value is None:
            rows.pop(record.key.decode(), None)
        else:
            rows[record.key.decode()] = record.value.decode()
    return rows


def served_records(store: Store, table: str, chosen: Filter | None = None) -> dict[str, str]:
    """Returns the records that a topic must have: those of a served table's snapshot."""
    with Follower(store, table, chosen=chosen).next_change_set() as snapshot:
        assert snapshot is not None
        return {
            key: value for key, value in snapshot.key_and_row_messages(chosen) if value is not None
        }


def cursor_of(record: Record) -> str:
    """Returns the cursor of the change set to which a record belongs."""
    return {name: value or b"" for name, value in record.headers}[CURSOR].decode()


def ensure_sent_once(log: Log, topic: str) -> list[str]:
    """Returns the cursors of a topic of one partition, in order.

    Asserts that each change set has a key at most once, and that no change set is split.
    """
    records = records_of(log, topic)
    times = Counter((record.key, cursor_of(record)) for record in records)
    cursors = [cursor for cursor, _ in groupby(map(cursor_of, records))]
    assert max(times.values(), default=1) == 1
    assert len(set(cursors)) == len(cursors)
    return cursors


def wait_for(reached: Callable[[], bool], what: str = "it") -> None:
    """Waits until `reached` returns True."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        _PAUSE.wait(0.05)


def ensure_has_all(log: Log, store: Store, sink: SinkBirth) -> None:
    """Waits until a sink's topic has the rows that are served."""
    chosen = Filter(sink.columns, sink.where)
    wait_for(
        lambda: rows_of_topic(log, sink.topic) == served_records(store, sink.of, chosen),
        f"topic {sink.topic}",
    )


@contextmanager
def running_outlet(outlet: SinkOutlet) -> Iterator[SinkOutlet]:
    """Runs a sink in a thread, as a courier does."""
    stop = threading.Event()
    thread = threading.Thread(target=outlet.run, args=(stop,), daemon=True)
    thread.start()
    try:
        yield outlet
    finally:
        stop.set()
        thread.join(60)


def courier_command(project: Path, root: Path | str, bootstrap_servers: str) -> list[str]:
    """Returns the command line of a courier."""
    return [
        *(sys.executable, "-P", "-m", "kappa.serving.outlets.courier"),
        *("--project", str(project), "--root", str(root), "--bootstrap", bootstrap_servers),
    ]


@contextmanager
def courier(
    project: Path,
    root: Path | str,
    bootstrap_servers: str,
    *,
    fail: str = "",
    log: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a courier within the block. It dies at the failpoint `fail`, if one is given.

    The courier's output is written to `log`, or to a file in the root.
    """
    (project / "kappa.toml").touch()
    with (log or Path(root) / "courier.log").open("ab") as output:
        process = subprocess.Popen(
            courier_command(project, root, bootstrap_servers),
            cwd=HOUSE,
            env={**os.environ, "KAPPA_FAIL": fail},
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
