"""Decodes the raw records of a topic, batch by batch, by the one definition of a valid record (kappa/record.py).

The same function runs in Spark's workers for large slices and in the job itself for small ones. On the way it takes the
log time, the running maximum of the broker's timestamp within a partition (law 4). That is right because a batch's
records are of one partition's range in the order of its offsets: engine/source.py never lets Spark split a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kappa.arrow import arrow_schema
from kappa.record import RecordReader, Rejected, Tombstone
from kappa.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Fate(IntEnum):
    """What became of a record."""

    DECODED = 0
    TOMBSTONE = 1
    REJECTED = 2


# What a pipeline's function sees beside the event's columns.
ORIGIN_COLUMNS = (("_topic", "string"), ("_partition", "int"), ("_offset", "bigint"), ("_timestamp", "timestamp"), ("_key", "string"))
# What only the platform sees. The raw record is kept only where it is rejected.
HIDDEN_COLUMNS = (("_log_time", "bigint"), ("_fate", "tinyint"), ("_reason", "string"), ("_detail", "string"), ("_raw_key", "binary"), ("_raw_value", "binary"))

# Per partition, the log time before the first record that is decoded.
Clock = Mapping[int, int]


def event_columns(topic: Topic) -> tuple[tuple[str, str], ...]:
    """The columns that a function sees: the event's, then where the record stands."""
    return (*((column.name, str(column.type)) for column in topic.columns), *ORIGIN_COLUMNS)


def decoded_columns(topic: Topic) -> tuple[tuple[str, str], ...]:
    """The columns of decoded records: those that a function sees, then what became of the record."""
    return (*event_columns(topic), *HIDDEN_COLUMNS)


def decode_table(raw: pa.Table, topic: Topic, clock: Clock) -> pa.Table:
    """Decodes one topic's raw records in this process."""
    batches = list(_decode_batches(raw.to_batches(), topic, clock))
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decode_frame(raw: DataFrame, topic: Topic, clock: Clock) -> DataFrame:
    """Decodes one topic's raw records in Spark's workers, when an action asks for them."""
    columns = ", ".join(f"`{name}` {kind}" for name, kind in decoded_columns(topic))
    return raw.mapInArrow(partial(_decode_batches, topic=topic, clock=clock), columns)


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
        rows: list[tuple[Any, ...]] = []
        tombstones: set[int] = set()
        rejected: dict[int, Rejected] = {}
        read = self._read
        for place, (key, value) in enumerate(zip(keys, values, strict=True)):
            try:
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
        columns += [_fates(len(rows), tombstones, rejected), *_why(len(rows), keys, values, rejected)]
        return pa.RecordBatch.from_arrays([_array(column, field.type) for column, field in zip(columns, self._schema, strict=True)], schema=self._schema)

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


def _why(count: int, keys: list[bytes | None], values: list[bytes | None], rejected: Mapping[int, Rejected]) -> list[Any]:
    if not rejected:
        return [pa.nulls(count, kind) for kind in (pa.string(), pa.string(), pa.binary(), pa.binary())]
    found = [(str(verdict.reason), verdict.detail, keys[place], values[place]) if (verdict := rejected.get(place)) else (None, None, None, None) for place in range(count)]
    return [list(column) for column in zip(*found, strict=True)]


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
