"""Decodes raw records in this process: a table, ranges in several threads, or single batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.records.decode.decoder import Clock, Decoder, Memories
from kappa.records.decode.outcome import decoded_columns
from kappa.records.decode.raw_records import RawRange
from kappa.records.identity import Memory


class TooManyBytesError(Exception):
    """The error for records that are too large to be decoded in memory."""


class ByteBudget:
    """The number of bytes of raw records that all threads together may still decode."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, count: int) -> None:
        """Subtracts `count` from the budget. Raises TooManyBytesError if too little is left."""
        self._left -= count
        if self._left < 0:
            raise TooManyBytesError


def decode_table(raw: pa.Table, topic: Topic, clock: Clock, memories: Memories) -> pa.Table:
    """Decodes the raw records of a topic in this process, and returns a row per record.

    `memories` contains the identities that each partition has accepted; decoding adds the newly
    accepted identities.
    """
    decoder = Decoder(topic, clock, memories, lambda _partition: Memory(topic.identity_horizon_ms))
    batches = [decoder.decode(batch) for batch in raw.to_batches() if batch.num_rows]
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decode_ranges(
    ranges: Sequence[RawRange],
    topic: Topic,
    clock: Clock,
    memories: Memories,
    threads: Executor,
    budget: ByteBudget,
) -> pa.Table:
    """Reads and decodes ranges of a topic in threads of this process.

    Returns a row per record. Each range must belong to a different partition. `memories` contains
    the identities that each partition has accepted; decoding adds the newly accepted identities.
    Raises TooManyBytesError if the raw records exceed the `budget`.
    """

    def decode(one: RawRange) -> tuple[list[pa.RecordBatch], Memories]:
        own = {one.partition: memories[one.partition]} if one.partition in memories else {}
        decoder = Decoder(
            topic,
            {one.partition: clock[one.partition]} if one.partition in clock else {},
            own,
            lambda _partition: Memory(topic.identity_horizon_ms),
        )
        batches: list[pa.RecordBatch] = []
        for raw in one.batches():
            budget.take(raw.nbytes)
            if raw.num_rows:
                batches.append(decoder.decode(raw))
        return batches, own

    decoded = list(threads.map(decode, ranges))
    for _, own in decoded:
        memories.update(own)
    return pa.Table.from_batches(
        [batch for batches, _ in decoded for batch in batches],
        schema=arrow_schema(decoded_columns(topic)),
    )


def decoded_batches(
    batches: Iterable[pa.RecordBatch],
    topic: Topic,
    clock: Clock,
    *,
    raw: Iterable[tuple[int, int]] = (),
) -> Iterator[pa.RecordBatch]:
    """Decodes the batches of a topic without an identity, and yields the decoded batches.

    For rejects, and for all records in the ranges of offsets in `raw`, the result includes the raw
    key, value and headers.
    """
    ranges = tuple(raw)
    decoder = Decoder(topic, clock, {}, lambda _partition: Memory(topic.identity_horizon_ms))
    decoded = ((batch, decoder.decode(batch)) for batch in batches if batch.num_rows)
    return (_with_raw(found, batch, ranges) if ranges else found for batch, found in decoded)


def _with_raw(
    decoded: pa.RecordBatch, batch: pa.RecordBatch, ranges: Sequence[tuple[int, int]]
) -> pa.RecordBatch:
    offsets = batch.column("offset").to_numpy()
    kept = pa.array(
        np.logical_or.reduce([(offsets >= start) & (offsets < end) for start, end in ranges])
    )
    for name in ("key", "value", "headers"):
        place = decoded.schema.get_field_index(f"_raw_{name}")
        decoded = decoded.set_column(
            place,
            decoded.schema.field(place),
            pc.if_else(kept, batch.column(name), decoded.column(place)),
        )
    return decoded


def of_topic(raw: pa.Table, name: str) -> pa.Table:
    """Returns the rows of `raw` that belong to the topic `name`."""
    return raw.filter(pc.equal(raw.column("topic"), name))
