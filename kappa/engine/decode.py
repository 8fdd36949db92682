"""Decodes the raw records of a topic, batch by batch, by the one definition of a valid record (kappa/record.py).

The same function runs in Spark's workers for large slices and in the job itself for small ones. On the way it takes the
log time, the running maximum of the broker's timestamp within a partition (law 4). That is right because a batch's
records are of one partition's range in the order of its offsets: engine/source.py never lets Spark split a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.arrow import arrow_schema
from kappa.columns import HEADERS
from kappa.pipeline import ORIGIN_COLUMNS
from kappa.record import RecordReader, Rejected, Tombstone
from kappa.redrive import HEADER, Original, Position, original_of
from kappa.topic import Topic, TopicKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Fate(IntEnum):
    """What became of a record."""

    DECODED = 0
    TOMBSTONE = 1
    REJECTED = 2


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
_SEEN_TYPES = (("partition", "int"), ("decoded", "bigint"), ("tombstone", "bigint"), ("rejected", "bigint"), ("log_time", "bigint"), ("redriven", "bigint"))
_SEEN_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _SEEN_TYPES)

# Per partition, the log time before the first record that is decoded.
Clock = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one partition in a slice: how many records of each fate, and the log time after the last of them.

    `redriven` of them name an earlier one, whatever their fate; `duplicate` is known once these are settled (engine/redriven.py).
    """

    decoded: int
    tombstone: int
    rejected: int
    log_time: int
    redriven: int = 0
    duplicate: int = 0

    def then(self, more: Seen) -> Seen:
        """This and what was seen after it."""
        return Seen(self.decoded + more.decoded, self.tombstone + more.tombstone, self.rejected + more.rejected, more.log_time, self.redriven + more.redriven)


def decoded_columns(topic: Topic) -> tuple[tuple[str, str], ...]:
    """The columns of decoded records: the event's, where the record stands, and what became of it."""
    return (*((column.name, str(column.type)) for column in topic.columns), *ORIGIN_COLUMNS, *HIDDEN_COLUMNS)


def decode_table(raw: pa.Table, topic: Topic, clock: Clock) -> pa.Table:
    """Decodes one topic's raw records in this process."""
    batches = list(_decode_batches(raw.to_batches(), topic, clock))
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decode_to_files(raw: DataFrame, topic: Topic, clock: Clock, folder: Path) -> DataFrame:
    """Decodes one topic's raw records in Spark's workers into Parquet files of `folder`, when an action asks what was seen.

    Rows that went back to Spark to be kept by it would cost more than their decoding. The frame has a row per partition.
    """
    return raw.mapInArrow(partial(_decode_into, topic=topic, clock=clock, folder=str(folder)), _SEEN_COLUMNS)


def seen_in(decoded: pa.Table | pa.RecordBatch) -> dict[int, Seen]:
    """What was seen of each partition in decoded records, which are in the order of their offsets."""
    partitions = decoded.column("_partition").to_pylist()
    counts = Counter(zip(partitions, decoded.column("_fate").to_pylist(), strict=True))
    # Within a partition the log time only rises, so its last one is its greatest.
    clock = dict(zip(partitions, decoded.column("_log_time").to_pylist(), strict=True))
    names = decoded.column("_redrives")
    redriven = Counter(decoded.filter(names.is_valid()).column("_partition").to_pylist() if names.null_count < len(names) else ())
    return {p: Seen(counts[p, Fate.DECODED], counts[p, Fate.TOMBSTONE], counts[p, Fate.REJECTED], clock[p], redriven[p]) for p in clock}


def _decode_into(batches: Iterable[pa.RecordBatch], topic: Topic, clock: Clock, folder: str) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext  # noqa: PLC0415  # is a worker's, and the job itself decodes without one

    context = TaskContext.get()
    assert context is not None
    seen: dict[int, Seen] = {}
    schema = arrow_schema(decoded_columns(topic))
    # A task that is tried again writes its file again.
    with pq.ParquetWriter(Path(folder) / f"{context.partitionId()}.parquet", schema, compression="lz4") as file:
        for batch in _decode_batches(batches, topic, clock):
            file.write_batch(batch)
            for partition, more in seen_in(batch).items():
                before = seen.get(partition)
                seen[partition] = more if before is None else before.then(more)
    counted = [{name: {"partition": partition, **asdict(one)}[name] for name, _ in _SEEN_TYPES} for partition, one in seen.items()]
    yield pa.RecordBatch.from_pylist(counted, schema=arrow_schema(_SEEN_TYPES))


def _decode_batches(batches: Iterable[pa.RecordBatch], topic: Topic, clock: Clock) -> Iterator[pa.RecordBatch]:
    decoder = _Decoder(topic, clock)
    for batch in batches:
        if batch.num_rows:
            yield decoder.decode(batch)


class _Decoder:
    def __init__(self, topic: Topic, clock: Clock) -> None:
        self._topic = topic
        self._read = RecordReader(topic).read
        self._clock = dict(clock)
        self._schema = arrow_schema(decoded_columns(topic))
        self._nothing = (None,) * len(topic.columns)
        self._key_place = None if topic.key is None else [column.name for column in topic.columns].index(topic.key)

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of raw records, decoded: as many rows, in the same order."""
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        redriven = self._redriven(batch)
        rows: list[tuple[Any, ...]] = []
        tombstones: set[int] = set()
        rejected: dict[int, Rejected] = {}
        read = self._read
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
                if place in redriven and isinstance(refused := redriven[place], Rejected):
                    raise refused
                found = read(key, value)
            except Rejected as verdict:
                rejected[place] = verdict
                rows.append(self._nothing)
            else:
                if isinstance(found, Tombstone):
                    tombstones.add(place)
                    found = self._deleted(found)
                rows.append(found)
        columns = [list(column) for column in zip(*rows, strict=True)]
        # A key without a declaration may be any bytes, and the record is valid all the same.
        texts = [None if key is None else key.decode(errors="replace") for key in keys]
        columns += [[self._topic.name] * len(rows), batch.column("partition"), batch.column("offset"), batch.column("timestamp"), texts, self._log_times(batch)]
        columns += [_fates(len(rows), tombstones, rejected), *_why(keys, values, batch.column("headers"), rejected)]
        columns += [
            [one.position.offset if isinstance(one := redriven.get(place), Original) else None for place in range(len(rows))] if redriven else pa.nulls(len(rows), pa.int64())
        ]
        return pa.RecordBatch.from_arrays([_array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], schema=self._schema)

    def _redriven(self, batch: pa.RecordBatch) -> dict[int, Original | Rejected]:
        """By their place in the batch the records that stand for an earlier one, or name one that they cannot stand for."""
        headers = batch.column("headers")
        # Nearly always none has any, or none that is ours.
        if self._topic.kind is TopicKind.COMPACTED or headers.null_count == len(headers) or not pc.any(pc.equal(pc.struct_field(headers.flatten(), "key"), HEADER)).as_py():
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

    def _log_times(self, batch: pa.RecordBatch) -> list[int]:
        times = []
        clock = self._clock
        for partition, micros in zip(batch.column("partition").to_pylist(), batch.column("timestamp").cast(pa.int64()).to_pylist(), strict=True):
            # A new partition's log time begins with its first record, which may lie before 1970.
            clock[partition] = now = max(micros // 1000, clock.get(partition, micros // 1000))
            times.append(now)
        return times

    def _deleted(self, tombstone: Tombstone) -> tuple[Any, ...]:
        return tuple(tombstone.key if place == self._key_place else None for place in range(len(self._nothing)))


def _fates(count: int, tombstones: set[int], rejected: Mapping[int, Rejected]) -> list[int]:
    fates = [int(Fate.DECODED)] * count
    for place in tombstones:
        fates[place] = int(Fate.TOMBSTONE)
    for place in rejected:
        fates[place] = int(Fate.REJECTED)
    return fates


def _why(keys: list[bytes | None], values: list[bytes | None], headers: pa.Array, rejected: Mapping[int, Rejected]) -> list[Any]:
    """Reason, detail, key, value and headers of the records that are rejected, nulls for the others."""
    count = len(keys)
    if not rejected:
        return [pa.nulls(count, kind) for kind in (pa.string(), pa.string(), pa.binary(), pa.binary(), _HEADERS_TYPE)]
    found = [
        (str(verdict.reason), verdict.detail, keys[place], values[place], headers[place].as_py()) if (verdict := rejected.get(place)) else (None,) * 5 for place in range(count)
    ]
    return [list(column) for column in zip(*found, strict=True)]


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
