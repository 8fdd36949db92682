"""Decodes a topic's raw records, batch by batch.

kappa/records/record.py defines which records are valid. The same decoder decodes large slices on
Spark workers, and small slices in the job itself. The decoder computes the log time, which is the
running maximum of the broker's timestamps within a partition. It also finds late records and
duplicates. For a correct result, a batch must contain the records of a partition's range in the
order of offsets. If a range is divided among tasks, parquet_decoder.py adds the log times that the
later tasks cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.arrow import HEADERS_TYPE, Places, arrow_schema
from kappa.declare.values.reason import Rejected
from kappa.records.decode.outcome import Fate, decoded_columns
from kappa.records.identity import Memory, identity_of
from kappa.records.lateness import lateness_of
from kappa.records.record import RecordReader, Removal, Tombstone
from kappa.records.redrive import HEADER, Original, Position, original_of

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
    """A decoder of one topic, which stores the log times and identities between batches."""

    def __init__(
        self,
        topic: Topic,
        clock: Clock,
        memories: Memories,
        memory_of: Callable[[int], Memory],
        *,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """Creates the decoder with the state before the first record.

        `clock` contains the log times and `memories` the accepted identities, per partition.
        `memory_of` returns the accepted identities of a partition that is not in `memories`. The
        decoder may return null for the columns in `left_out`.
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
        """Decodes a batch of raw records. Returns a row for each record, in the same order."""
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
        """Decodes the records at the indexes `places` of a batch one by one.

        Returns three values: the rows of these records, an array with the fate of each record of
        the batch, and the rejects by their index in the batch. The array has the fate DECODED for
        all records that are not at `places`.
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
        """Decodes those records of a batch that compiled code can decode together.

        Returns parts. A part is a pair: the indexes of the part's records in the batch, and the
        rows. Returns an empty list if no record is decoded.
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
        """Returns the Kafka keys of records as texts.

        If the topic's keys have a format of their own, a text is the decoded key, taken from the
        event's `columns`.
        """
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
    """Loads the module that decodes many records together, in a thread.

    Returns a future, whose result is the module. The module imports a compiler, which takes a
    second. A job with small slices does not need the module; a large slice waits until the module
    is loaded.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="plain-readers").submit(
        import_module, "kappa.records.decode.readers"
    )


def in_order(parts: Sequence[tuple[Places, pa.RecordBatch]], schema: pa.Schema) -> list[pa.Array]:
    """Combines parts of a batch, and returns the columns of all rows.

    A part is a pair: the indexes of its rows in the batch, and the rows. The result has the order
    of the indexes.
    """
    if not parts:
        return [pa.array([], field.type) for field in schema]
    if len(parts) == 1:
        return list(parts[0][1].columns)
    order = pa.array(np.argsort(np.concatenate([places for places, _ in parts])))
    return [
        pa.concat_arrays([rows.column(place) for _, rows in parts]).take(order)
        for place in range(len(schema))
    ]


def key_texts(keys: pa.Array) -> pa.Array:
    """Returns keys as texts. Invalid bytes are decoded to the Unicode replacement character."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # A key without a declaration may be any bytes, and the record is valid all the same.
        return pa.array(
            [None if key is None else key.decode(errors="replace") for key in keys.to_pylist()],
            pa.string(),
        )


def rejected_columns(batch: pa.RecordBatch, rejected: Mapping[int, Rejected]) -> list[pa.Array]:
    """Returns columns with the reason, detail, key, value and headers of each reject.

    `rejected` contains the rejects by their index in the batch. The columns are null for all other
    records.
    """
    count = len(batch)
    if not rejected:
        return [
            pa.nulls(count, kind)
            for kind in (pa.string(), pa.string(), pa.binary(), pa.binary(), HEADERS_TYPE)
        ]
    raw = batch.take(pa.array(list(rejected)))
    headers = pa.array([each or None for each in raw.column("headers").to_pylist()], HEADERS_TYPE)
    found = [
        *(
            pa.array([str(getattr(verdict, name)) for verdict in rejected.values()], pa.string())
            for name in ("reason", "detail")
        ),
        raw.column("key"),
        raw.column("value"),
        headers,
    ]
    place_of = np.full(count, -1)
    place_of[list(rejected)] = np.arange(len(rejected))
    where = pa.array(place_of, mask=place_of < 0)
    return [column.take(where) for column in found]


def array_of_type(column: Any, kind: pa.DataType) -> pa.Array:
    """Returns `column` as an Arrow array of the type `kind`."""
    return (
        column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
    )


# By place in the batch, the original that a record names, or the reason why the record cannot be
# redriven.
Originals = Mapping[int, Original | Rejected]


def originals_in(batch: pa.RecordBatch, topic: Topic) -> dict[int, Original | Rejected]:
    """Returns the records that the redriven records of a batch replace (the originals).

    The key of an original is the index of the redriven record in the batch. If a redriven record
    names a record that it cannot replace, the result contains the Rejected exception instead of the
    original.
    """
    headers = batch.column("headers")
    # Nearly always no record has headers, or none of ours.
    names = pc.struct_field(headers.flatten(), "key")
    if (
        topic.kind is TopicKind.COMPACTED
        or topic.has_changes
        or not len(names)
        or not pc.any(pc.equal(names, HEADER)).as_py()
    ):
        return {}
    found: dict[int, Original | Rejected] = {}
    for place, (partition, offset, each) in enumerate(
        zip(
            batch.column("partition").to_pylist(),
            batch.column("offset").to_pylist(),
            headers.to_pylist(),
            strict=True,
        )
    ):
        try:
            original = original_of(
                [(header["key"], header["value"]) for header in each or ()],
                Position(topic.name, partition, offset),
            )
        except Rejected as verdict:
            found[place] = verdict
        else:
            if original is not None:
                found[place] = original
    return found
