"""Generates the input, Nexmark's bids, in a topic of a real broker. Later runs reuse the topic.

An event is a JSON object with seven fields and about 205 bytes; its key is the bidder. Every value
is a hash of the event's number and a seed, so the same size always gives the same records. Bidders
and prices are uniformly distributed. Source: https://github.com/nexmark/nexmark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
from cells import PARTITIONS, STEP_MS, Cell

from kappa.declare.topic import Topic
from kappa.kafka.broker.broker import partition_bytes
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.state.offsets import Offsets

SEED = 20_130_101
_FORMAT = 1
_CHUNK = 100_000
_BEGIN_MS = 1_700_000_000_000

# `bidder` is the message's key too; `ms` is both the event's time and the record's.
_BIDS = """
    with drawn as (
        select i, hash(i, {seed}) as a, hash(i, {seed} + 1) as b, hash(i, {seed} + 2) as c
        from range({start}, {end}) t(i)
    ),
    bids as (
        select *, (a % {keys})::varchar as bidder, {begin} + i * {step} + b % 1000 as ms from drawn
    )
    select bidder, ms::bigint,
        '{{"auction":' || (1000 + b % 100000) || ',"bidder":' || bidder
        || ',"price":' || (100 + c % 10000000) || ',"channel":"channel-' || (a % 9999)
        || '","url":"https://www.nexmark.com/bids/x/item.htm?query=1&id=' || (b % 1000000)
        || '","dateTime":' || ms
        || ',"extra":"' || lower(to_hex(b)) || lower(to_hex(c)) || '"}}'
    from bids order by i
"""
_COLUMNS = (
    "auction bigint not null, bidder bigint not null, price bigint not null, channel string, url "
    "string, dateTime bigint not null, extra string"
)


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that contains the events of a cell.

    `bytes` is the size of the topic's files on the broker's disk, compressed with lz4.
    """

    topic: str
    id: str
    offsets: Offsets
    events: int
    bytes: int


def bids(start: int, end: int, keys: int) -> Iterator[ProducedRecord]:
    """Yields the events with the numbers from `start` up to, but not including, `end` as records.

    The same arguments always give the same records.
    """
    connection = duckdb.connect(":memory:")
    try:
        for first in range(start, end, _CHUNK):
            sql = _BIDS.format(
                seed=SEED,
                start=first,
                end=min(end, first + _CHUNK),
                keys=keys,
                begin=_BEGIN_MS,
                step=STEP_MS,
            )
            for bidder, at, value in connection.execute(sql).fetchall():
                yield ProducedRecord(value.encode(), key=bidder.encode(), timestamp_ms=at)
    finally:
        connection.close()


def ensure_input(
    log: Log, cell: Cell, folder: Path, root: Path, say: Callable[[str], None]
) -> Input:
    """Creates the topic of a cell with all its events, unless it is complete already.

    A note in `folder` records that the topic is complete. `root` is the broker's folder.
    """
    note = folder / f"{cell.topic}.json"
    found = _noted(note)
    if found is not None and _is_there(log, found):
        return found
    log.delete(cell.topic)
    say(f"making {cell.events:,} events with {cell.keys:,} keys: once, for all runs of this size")
    begun = time.monotonic()
    # Everybody reads the same log: nothing is cleaned away between two of them.
    config = {"min.compaction.lag.ms": str(2**63 - 1)} if cell.kind == "compacted" else {}
    facts = log.create(
        Topic(
            cell.topic,
            kind=cell.kind,
            partitions=PARTITIONS,
            key="bidder",
            event=_COLUMNS,
            config=config,
        )
    )
    log.produce(bids(0, cell.events, cell.keys), cell.topic)
    offsets = log.end([cell.topic])
    made = Input(
        cell.topic,
        facts.id,
        offsets,
        cell.events,
        sum(partition_bytes(root, [cell.topic])[cell.topic].values()),
    )
    folder.mkdir(parents=True, exist_ok=True)
    written = note.with_suffix(".new")
    written.write_text(
        json.dumps(
            {
                "format": _FORMAT,
                "topic": made.topic,
                "id": made.id,
                "offsets": offsets.plain(),
                "events": made.events,
                "bytes": made.bytes,
            }
        ),
        encoding="utf-8",
    )
    written.replace(note)
    say(
        f"made in {time.monotonic() - begun:.0f} s: {made.bytes / made.events:.0f} bytes an "
        "event on the broker's disk"
    )
    return made


def topic_files(root: Path, topic: str) -> list[Path]:
    """Returns the files in which the broker stores a topic's records."""
    return sorted((root / "broker" / "data").glob(f"{topic}-*/*.log"))


def warm_page_cache(files: Iterable[Path]) -> None:
    """Reads files once, so that they are in the page cache when the next rival reads them."""
    for each in files:
        with each.open("rb") as file:
            while file.read(1 << 24):
                pass


def _noted(note: Path) -> Input | None:
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
        return (
            Input(
                found["topic"],
                found["id"],
                Offsets.parse(found["offsets"]),
                found["events"],
                found["bytes"],
            )
            if found["format"] == _FORMAT
            else None
        )
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _is_there(log: Log, noted: Input) -> bool:
    facts = log.facts(noted.topic)
    return (
        facts is not None and facts.id == noted.id and log.end([noted.topic]).equals(noted.offsets)
    )
