"""The decoder of a topic's raw records, batch by batch.

kappa/records/record.py defines which records are valid. The same decoder runs in Spark's workers
for large slices and in the job itself for small slices. The decoder computes the log time, the
running maximum of the broker's timestamp within a partition (law 4), and finds late records and
duplicates (law 6). The result is right because a batch has records of one partition's range, in the
order of offsets. Where a range is divided among tasks, shares.py adds the facts that the later
tasks cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Places, arrow_schema
from kappa.declare.values.reason import Rejected
from kappa.records.decode.assemble import array_of_type, in_order, key_texts, rejected_columns
from kappa.records.decode.fate import Fate, decoded_columns
from kappa.records.decode.originals import Originals, originals_in
from kappa.records.identity import Memory, identity_of
from kappa.records.lateness import lateness_of
from kappa.records.record import RecordReader, Removal, Tombstone
from kappa.records.redrive import Original

if TYPE_CHECKING:
    from kappa.records.decode.plain_reader import PlainReader

# For fewer records than _MANY, reading records together costs more than it saves. From _VERY_MANY
# on, decoding waits until the module for reading together is loaded.
_MANY = 500
_VERY_MANY = 10_000

# Per partition, the log time before the first record that is decoded.
Clock = Mapping[int, int]
# Per partition, the identities that were accepted before the first record. Decoding updates the
# memories.
Memories = dict[int, Memory]


class Decoder:
    """A decoder of one topic, with log times and identities kept between batches."""

    def __init__(
        self,
        topic: Topic,
        clock: Clock,
        memories: Memories,
        memory_of: Callable[[int], Memory],
        *,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Takes the state before the first record.

        `memory_of` returns the memory of a partition that is not among the `memories`. Columns that
        are `left_out` may be null.
        """
        self._topic = topic
        self._read = RecordReader(topic).read
        self._refuse_late = lateness_of(topic)
        self._identity = identity_of(topic)
        self._memories = memories
        self._memory_of = memory_of
        self._left_out = left_out
        self._clock = dict(clock)
        self._schema = arrow_schema(decoded_columns(topic))
        self._event = pa.schema(list(self._schema)[: len(topic.columns)])
        self._plain: PlainReader | None = None
        self._may_read_together = True
        self._nothing = (None,) * len(topic.columns)
        self._key_place = (
            None
            if topic.key is None
            else [column.name for column in topic.columns].index(topic.key)
        )

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Decodes a batch of raw records to as many rows, in the same order."""
        count = len(batch)
        redriven = originals_in(batch, self._topic)
        partitions, times = (
            batch.column("partition").to_numpy(),
            np.floor_divide(batch.column("timestamp").cast(pa.int64()).to_numpy(), 1000),
        )
        log_times = self._log_times(partitions, times)
        plain = [] if redriven else self._readin_order(batch)
        # The records that are read singly.
        left = np.ones(count, bool)
        for places, _ in plain:
            left[places] = False
        alone = np.flatnonzero(left)
        rows, fates, rejected = self._read_alone(
            batch.take(pa.array(alone)) if plain else batch, alone, redriven, times, log_times
        )
        parts = (
            [
                (
                    alone,
                    pa.RecordBatch.from_arrays(
                        [
                            pa.array(column, field.type)
                            for column, field in zip(
                                zip(*rows, strict=True), self._event, strict=True
                            )
                        ],
                        schema=self._event,
                    ),
                )
            ]
            if rows
            else []
        )
        columns: list[Any] = in_order([*plain, *parts], self._event)
        columns += [
            pa.repeat(self._topic.name, count),
            batch.column("partition"),
            batch.column("offset"),
            batch.column("timestamp"),
            self._key_texts(batch.column("key"), columns),
            log_times,
        ]
        columns += [fates, *rejected_columns(batch, rejected)]
        columns += [
            [
                one.position.offset if isinstance(one := redriven.get(place), Original) else None
                for place in range(count)
            ]
            if redriven
            else pa.nulls(count, pa.int64())
        ]
        return pa.RecordBatch.from_arrays(
            [
                array_of_type(column, field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ],
            schema=self._schema,
        )

    def _read_alone(
        self,
        batch: pa.RecordBatch,
        places: Places,
        redriven: Originals,
        times: npt.NDArray[np.int64],
        log_times: npt.NDArray[np.int64],
    ) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.int8], dict[int, Rejected]]:
        """Reads the records at some places of a batch singly.

        Returns the rows, the fates of the batch that these records decide, and the rejected
        records.
        """
        rows: list[tuple[Any, ...]] = []
        fates = np.full(len(times), int(Fate.DECODED), np.int8)
        rejected: dict[int, Rejected] = {}
        read, refuse_late, identity_of_row = self._read, self._refuse_late, self._identity
        for place, key, value, partition in zip(
            places.tolist(),
            *(batch.column(name).to_pylist() for name in ("key", "value", "partition")),
            strict=True,
        ):
            try:
                original = redriven.get(place)
                if isinstance(original, Rejected):
                    raise original
                found = read(key, value)
                if isinstance(found, Removal):
                    fates[place] = Fate.TRUNCATION if found.truncates else Fate.DELETION
                    found = found.row
                if refuse_late is not None and not isinstance(found, Tombstone):
                    # A redriven record is as late as its original.
                    refuse_late(
                        found, int(times[place]) if original is None else original.timestamp_ms
                    )
            except Rejected as verdict:
                rejected[place] = verdict
                fates[place] = Fate.REJECTED
                rows.append(self._nothing)
            else:
                if isinstance(found, Tombstone):
                    fates[place] = Fate.TOMBSTONE
                    found = self._deleted(found)
                # A redriven record is judged only by the reject that the record names.
                elif identity_of_row is not None and original is None:
                    identity = identity_of_row(found)
                    if identity is not None and not self._memory(partition).accepts(
                        identity, int(log_times[place])
                    ):
                        fates[place] = Fate.DUPLICATE
                rows.append(found)
        return rows, fates, rejected

    def _readin_order(self, batch: pa.RecordBatch) -> list[tuple[Places, pa.RecordBatch]]:
        """Reads the records of a batch that can be read at once.

        Returns the rows with their places.
        """
        if len(batch) < _MANY or not self._may_read_together:
            return []
        if self._plain is None:
            readers = loading_plain_readers()
            if len(batch) < _VERY_MANY and not readers.done():
                return []
            self._plain = readers.result().plain_reader(self._topic, self._left_out)
        self._may_read_together = self._plain is not None and self._plain.pays
        return (
            self._plain.read(batch.column("key"), batch.column("value"))
            if self._plain is not None and self._may_read_together
            else []
        )

    def _key_texts(self, keys: pa.Array, columns: list[Any]) -> pa.Array:
        """Returns the keys as texts, those in a format as decoded."""
        if self._topic.key_format is None or self._key_place is None:
            return key_texts(keys)
        return columns[self._key_place].cast(pa.string())

    def _log_times(
        self, partitions: npt.NDArray[np.int32], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        log_times = np.empty_like(times)
        for partition in np.unique(partitions).tolist():
            own = partitions == partition
            # A new partition's log time begins with its first record, which may lie before 1970.
            before = self._clock.get(partition)
            risen = np.maximum.accumulate(times[own])
            log_times[own] = risen if before is None else np.maximum(risen, before)
            self._clock[partition] = int(log_times[own][-1])
        return log_times

    def _memory(self, partition: int) -> Memory:
        memory = self._memories.get(partition)
        if memory is None:
            memory = self._memories[partition] = self._memory_of(partition)
        return memory

    def _deleted(self, tombstone: Tombstone) -> tuple[Any, ...]:
        return tuple(
            tombstone.key if place == self._key_place else None
            for place in range(len(self._nothing))
        )


@cache
def loading_plain_readers() -> Future[Any]:
    """Loads the module that reads many records at once, in a thread.

    The module imports a compiler. A job with small slices does not need the module; a large slice
    waits a second for the import.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="plain-readers").submit(
        import_module, "kappa.records.decode.readers"
    )
