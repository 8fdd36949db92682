"""Decodes the raw records of a topic, batch by batch, by the one definition of a valid record (kappa/record.py).

The same function runs in Spark's workers for large slices and in the job itself for small ones. On the way it takes the
log time, the running maximum of the broker's timestamp within a partition (law 4), and finds what is late or a duplicate
(law 6). That is right because a batch's records are of one partition's range in the order of its offsets: engine/source.py
never lets Spark split a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.arrow import arrow_schema
from kappa.columns import HEADERS
from kappa.engine.remembered import get_memory, memory_offsets, put_memory
from kappa.identity import Memory, identity_of
from kappa.lateness import lateness_of
from kappa.pipeline import ORIGIN_COLUMNS
from kappa.record import Reason, RecordReader, Rejected, Tombstone
from kappa.redrive import HEADER, Original, Position, original_of
from kappa.topic import Topic, TopicKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Fate(IntEnum):
    """What became of a record."""

    DECODED = 0
    TOMBSTONE = 1
    REJECTED = 2
    DUPLICATE = 3


# What only the platform sees. The raw record is kept only where it is rejected; `_redrives` is the offset that a redriven one names.
HIDDEN_COLUMNS = (
    ("_log_time", "bigint"),
    ("_fate", "tinyint"),
    ("_reason", "string"),
    ("_detail", "string"),
    ("_raw_key", "binary"),
    ("_raw_value", "binary"),
    ("_raw_headers", HEADERS),
    ("_redrives", "bigint"),
)

_HEADERS_TYPE = arrow_schema([("headers", HEADERS)]).field(0).type
_COUNTS = ("decoded", "tombstone", "rejected", "duplicate", "late", "log_time", "redriven")
_SEEN_TYPES = (("partition", "int"), *((name, "bigint") for name in _COUNTS))
_SEEN_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _SEEN_TYPES)

# Per partition, the log time before the first record that is decoded.
Clock = Mapping[int, int]
# Per partition, the identities that were accepted before the first record that is decoded; decoding takes them along.
Memories = dict[int, Memory]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one partition in a slice: how many records of each fate, and the log time after the last of them.

    `late` of the rejected were so; `redriven` name an earlier one, whatever their fate, and those among them that are
    duplicates are known once they are settled (engine/redriven.py).
    """

    decoded: int
    tombstone: int
    rejected: int
    duplicate: int
    late: int
    log_time: int
    redriven: int = 0

    def then(self, more: Seen) -> Seen:
        """This and what was seen after it."""
        return Seen(
            self.decoded + more.decoded,
            self.tombstone + more.tombstone,
            self.rejected + more.rejected,
            self.duplicate + more.duplicate,
            self.late + more.late,
            more.log_time,
            self.redriven + more.redriven,
        )


@dataclass(frozen=True, slots=True)
class Remembering:
    """Where a large slice's tasks find the memories of a topic for its start, and put those for its end, per partition; no folder: it declares no identity."""

    folder: Path | None = None
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


def decoded_columns(topic: Topic) -> tuple[tuple[str, str], ...]:
    """The columns of decoded records: the event's, where the record stands, and what became of it."""
    return (*((column.name, str(column.type)) for column in topic.columns), *ORIGIN_COLUMNS, *HIDDEN_COLUMNS)


def decode_table(raw: pa.Table, topic: Topic, clock: Clock, memories: Memories) -> pa.Table:
    """Decodes one topic's raw records in this process."""
    decoder = _Decoder(topic, clock, memories, lambda _partition: Memory(topic.identity_horizon_ms))
    batches = [decoder.decode(batch) for batch in raw.to_batches() if batch.num_rows]
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decode_to_files(raw: DataFrame, topic: Topic, clock: Clock, remembering: Remembering, folder: Path) -> DataFrame:
    """Decodes one topic's raw records in Spark's workers into Parquet files of `folder`, when an action asks what was seen.

    Rows that went back to Spark to be kept by it would cost more than their decoding. The frame has a row per partition.
    """
    from pyspark.sql import functions as F  # noqa: PLC0415  # as above: not where it is decoded in the process

    # Spark asks for a batch's size after each row of it, and that walks over all null lists so far: with 50,000 rows a batch, by
    # far the most of what reading costs. Empty ones it counts as it goes.
    headers = F.coalesce("headers", F.array().cast(raw.schema["headers"].dataType))
    return raw.withColumn("headers", headers).mapInArrow(partial(_decode_into, topic=topic, clock=clock, remembering=remembering, folder=str(folder)), _SEEN_COLUMNS)


def seen_in(decoded: pa.Table | pa.RecordBatch) -> dict[int, Seen]:
    """What was seen of each partition in decoded records, which are in the order of their offsets."""
    partitions = decoded.column("_partition").to_pylist()
    counts = Counter(zip(partitions, decoded.column("_fate").to_pylist(), strict=True))
    late = Counter(decoded.column("_partition").filter(pc.equal(decoded.column("_reason"), str(Reason.LATE))).to_pylist())
    # Within a partition the log time only rises, so its last one is its greatest.
    clock = dict(zip(partitions, decoded.column("_log_time").to_pylist(), strict=True))
    names = decoded.column("_redrives")
    redriven = Counter(decoded.filter(names.is_valid()).column("_partition").to_pylist() if names.null_count < len(names) else ())
    return {
        p: Seen(counts[p, Fate.DECODED], counts[p, Fate.TOMBSTONE], counts[p, Fate.REJECTED], counts[p, Fate.DUPLICATE], late[p], log_time, redriven[p])
        for p, log_time in clock.items()
    }


def of_topic(raw: pa.Table, name: str) -> pa.Table:
    """The raw records of one topic."""
    return raw.filter(pc.equal(raw.column("topic"), name))


def _decode_into(batches: Iterable[pa.RecordBatch], topic: Topic, clock: Clock, remembering: Remembering, folder: str) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext  # noqa: PLC0415  # is a worker's, and the job itself decodes without one

    context = TaskContext.get()
    assert context is not None
    # A task that is tried again writes its files again.
    seen = decode_to_file(batches, topic, clock, remembering, Path(folder) / f"{context.partitionId()}.parquet")
    yield pa.RecordBatch.from_pylist([{"partition": partition, **asdict(one)} for partition, one in seen.items()], schema=arrow_schema(_SEEN_TYPES))


def decode_to_file(batches: Iterable[pa.RecordBatch], topic: Topic, clock: Clock, remembering: Remembering, path: Path) -> dict[int, Seen]:
    """Decodes the raw records of some partitions into a Parquet file, as one of Spark's tasks does, and gives what was seen of each."""
    seen: dict[int, Seen] = {}
    schema = arrow_schema(decoded_columns(topic))
    memories: Memories = {}
    decoder = _Decoder(topic, clock, memories, partial(_remembered, remembering, topic.identity_horizon_ms))
    with pq.ParquetWriter(path, schema, compression="lz4") as file:
        for raw in batches:
            if raw.num_rows == 0:
                continue
            batch = decoder.decode(raw)
            file.write_batch(batch)
            for partition, more in seen_in(batch).items():
                before = seen.get(partition)
                seen[partition] = more if before is None else before.then(more)
    for partition, memory in memories.items():
        if remembering.folder is not None:
            put_memory(remembering.folder, partition, remembering.end[partition], memory, seen[partition].log_time)
    return seen


def _remembered(remembering: Remembering, horizon_ms: int, partition: int) -> Memory:
    """The memory of a partition as the slice begins; where none was put, nothing has been accepted in it."""
    folder, start = remembering.folder, remembering.start.get(partition, 0)
    if folder is None or start not in memory_offsets(folder, partition):
        return Memory(horizon_ms)
    return get_memory(folder, partition, start, horizon_ms)[0]


class _Decoder:
    def __init__(self, topic: Topic, clock: Clock, memories: Memories, memory_of: Callable[[int], Memory]) -> None:
        """`memory_of` gives the memory of a partition that is not among the `memories`."""
        self._topic = topic
        self._read = RecordReader(topic).read
        self._refuse_late = lateness_of(topic)
        self._identity = identity_of(topic)
        self._memories = memories
        self._memory_of = memory_of
        self._clock = dict(clock)
        self._schema = arrow_schema(decoded_columns(topic))
        self._nothing = (None,) * len(topic.columns)
        self._key_place = None if topic.key is None else [column.name for column in topic.columns].index(topic.key)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of raw records, decoded: as many rows, in the same order."""
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        redriven = self._redriven(batch)
        partitions, times = batch.column("partition").to_pylist(), [micros // 1000 for micros in batch.column("timestamp").cast(pa.int64()).to_pylist()]
        log_times = self._log_times(partitions, times)
        rows: list[tuple[Any, ...]] = []
        tombstones: set[int] = set()
        duplicates: set[int] = set()
        rejected: dict[int, Rejected] = {}
        read, refuse_late, identity_of_row = self._read, self._refuse_late, self._identity
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                original = redriven.get(place)
                if isinstance(original, Rejected):
                    raise original
                found = read(key, value)
                if refuse_late is not None and not isinstance(found, Tombstone):
                    # What is redriven is as late as the one that it stands for.
                    refuse_late(found, times[place] if original is None else original.timestamp_ms)
            except Rejected as verdict:
                rejected[place] = verdict
                rows.append(self._nothing)
            else:
                if isinstance(found, Tombstone):
                    tombstones.add(place)
                    found = self._deleted(found)
                # A redriven one is judged by the reject that it stands for, and by nothing else.
                elif identity_of_row is not None and original is None:
                    identity = identity_of_row(found)
                    if identity is not None and not self._memory(partitions[place]).accepts(identity, log_times[place]):
                        duplicates.add(place)
                rows.append(found)
        columns = [list(column) for column in zip(*rows, strict=True)]
        # A key without a declaration may be any bytes, and the record is valid all the same.
        texts = [None if key is None else key.decode(errors="replace") for key in keys]
        columns += [[self._topic.name] * len(rows), batch.column("partition"), batch.column("offset"), batch.column("timestamp"), texts, log_times]
        columns += [_fates(len(rows), tombstones, duplicates, rejected), *_why(keys, values, batch.column("headers"), rejected)]
        columns += [
            [one.position.offset if isinstance(one := redriven.get(place), Original) else None for place in range(len(rows))] if redriven else pa.nulls(len(rows), pa.int64())
        ]
        return pa.RecordBatch.from_arrays([_array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], schema=self._schema)

    def _redriven(self, batch: pa.RecordBatch) -> dict[int, Original | Rejected]:
        """By their place in the batch the records that stand for an earlier one, or name one that they cannot stand for."""
        headers = batch.column("headers")
        # Nearly always none has any, or none that is ours.
        names = pc.struct_field(headers.flatten(), "key")
        if self._topic.kind is TopicKind.COMPACTED or not len(names) or not pc.any(pc.equal(names, HEADER)).as_py():
            return {}
        found: dict[int, Original | Rejected] = {}
        for place, (partition, offset, each) in enumerate(zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), headers.to_pylist(), strict=True)):
            try:
                original = original_of([(header["key"], header["value"]) for header in each or ()], Position(self._topic.name, partition, offset))
            except Rejected as verdict:
                found[place] = verdict
            else:
                if original is not None:
                    found[place] = original
        return found

    def _log_times(self, partitions: list[int], times: list[int]) -> list[int]:
        log_times = []
        clock = self._clock
        for partition, time in zip(partitions, times, strict=True):
            # A new partition's log time begins with its first record, which may lie before 1970.
            clock[partition] = now = max(time, clock.get(partition, time))
            log_times.append(now)
        return log_times

    def _memory(self, partition: int) -> Memory:
        memory = self._memories.get(partition)
        if memory is None:
            memory = self._memories[partition] = self._memory_of(partition)
        return memory

    def _deleted(self, tombstone: Tombstone) -> tuple[Any, ...]:
        return tuple(tombstone.key if place == self._key_place else None for place in range(len(self._nothing)))


def _fates(count: int, tombstones: set[int], duplicates: set[int], rejected: Mapping[int, Rejected]) -> list[int]:
    fates = [int(Fate.DECODED)] * count
    for place in tombstones:
        fates[place] = int(Fate.TOMBSTONE)
    for place in duplicates:
        fates[place] = int(Fate.DUPLICATE)
    for place in rejected:
        fates[place] = int(Fate.REJECTED)
    return fates


def _why(keys: list[bytes | None], values: list[bytes | None], headers: pa.Array, rejected: Mapping[int, Rejected]) -> list[Any]:
    """Reason, detail, key, value and headers of the records that are rejected, nulls for the others."""
    count = len(keys)
    if not rejected:
        return [pa.nulls(count, kind) for kind in (pa.string(), pa.string(), pa.binary(), pa.binary(), _HEADERS_TYPE)]
    found = [
        (str(verdict.reason), verdict.detail, keys[place], values[place], headers[place].as_py() or None) if (verdict := rejected.get(place)) else (None,) * 5
        for place in range(count)
    ]
    return [list(column) for column in zip(*found, strict=True)]


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
