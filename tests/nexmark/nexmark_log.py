"""Nexmark's events in an in-memory log, and the rows of a build that reads the log."""

from __future__ import annotations

from collections.abc import Iterable

from auction_events import PARTITIONS, Made
from auction_oracle import Rows, answers, ensure_equal

from kappa.base.duck import open_connection
from kappa.engine.children.rehearsal import MemoryLog, Rehearsal
from kappa.serving.query.reader.relations import tables_of
from kappa.state.offsets import Offsets
from kappa.tables.versions import files


def memory_log(events: Iterable[Made]) -> MemoryLog:
    """Returns a log of these events."""
    log = MemoryLog()
    put(log, events)
    return log


def put(log: MemoryLog, events: Iterable[Made]) -> None:
    """Adds events to a log, each in the partition of its key."""
    for each in events:
        partition = int(each.key) % PARTITIONS[each.topic]
        log.add(each.topic, partition, each.value, key=each.key, ms=each.sent_ms)


def ensure_answered(built: Rehearsal, log: MemoryLog, end: Offsets) -> dict[str, Rows]:
    """Asserts that a build at `end` has the right rows for all queries; returns them."""
    wanted = answers(
        (topic, partition, offset, micros // 1000, (value or b"").decode())
        for topic, partition, offset, micros, _, value, _ in log.records
        if offset < end.at(topic, partition)
    )
    served = tables_of(built.birth, built.publisher.newest, built.store, listed=files)
    with open_connection() as duck:
        for name, table in served.items():
            duck.execute(f"create view {name} as {table.sql}")

        def found(sql: str) -> Rows:
            result = duck.execute(sql)
            return tuple(name for name, *_ in result.description or ()), result.fetchall()

        ensure_equal(found, wanted)
    return wanted
