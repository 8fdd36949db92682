"""The decoding of raw records in this process, of a small slice or in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.records.decode.decoder import Clock, Decoder, Memories
from kappa.records.decode.fate import decoded_columns
from kappa.records.identity import Memory


def decode_table(raw: pa.Table, topic: Topic, clock: Clock, memories: Memories) -> pa.Table:
    """Decodes the raw records of a topic in this process."""
    decoder = Decoder(topic, clock, memories, lambda _partition: Memory(topic.identity_horizon_ms))
    batches = [decoder.decode(batch) for batch in raw.to_batches() if batch.num_rows]
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decoded_batches(
    batches: Iterable[pa.RecordBatch],
    topic: Topic,
    clock: Clock,
    *,
    raw: Iterable[tuple[int, int]] = (),
) -> Iterator[pa.RecordBatch]:
    """Decodes a topic without an identity in this process, batch by batch.

    In the ranges of `raw`, the bytes of all records are kept, not only of the rejects.
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
    """Selects the raw records of a topic."""
    return raw.filter(pc.equal(raw.column("topic"), name))
