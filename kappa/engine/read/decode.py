"""Decodes the raw records of a topic, batch by batch, by the one definition of a valid record (kappa/records/record.py).

The same function runs in Spark's workers for large slices and in the job itself for small ones. On the way it takes the
log time, the running maximum of the broker's timestamp within a partition (law 4), and finds what is late or a duplicate
(law 6). That is right because a batch's records are of one partition's range in the order of its offsets: engine/read/source.py
never splits a range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.declare.pipeline import ORIGIN_COLUMNS
from kappa.declare.topic import Topic, TopicKind
from kappa.engine.read.remembered import get_memory, memory_offsets, put_memory
from kappa.records.identity import Memory, identity_of
from kappa.records.lateness import lateness_of
from kappa.records.record import RecordReader, Tombstone
from kappa.records.redrive import HEADER, Original, Position, original_of
from kappa.values.arrow import HEADERS_TYPE, arrow_schema
from kappa.values.columns import HEADERS
from kappa.values.reason import Reason, Rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.engine.read.plain_events import Places, PlainEvents
    from kappa.engine.read.source import RawRange


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

# Columns with few different values.
_REPEATED = [
    "_topic",
    "_partition",
    *(name for name, _ in HIDDEN_COLUMNS if name not in {"_log_time", "_raw_headers"}),
]
_COUNTS = ("decoded", "tombstone", "rejected", "duplicate", "late", "log_time", "redriven")
_SEEN_TYPES = (("partition", "int"), *((name, "bigint") for name in _COUNTS))
_SEEN_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _SEEN_TYPES)

# Below so many records it costs more than it saves to read them together; so many more wait until that can be done.
_MANY = 500
_VERY_MANY = 10_000

# Per partition, the log time before the first record that is decoded.
Clock = Mapping[int, int]
# Per partition, the identities that were accepted before the first record that is decoded; decoding takes them along.
Memories = dict[int, Memory]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one partition in a slice: how many records of each fate, and the log time after the last of them.

    `late` of the rejected were so; `redriven` name an earlier one, whatever their fate, and those among them that are
    duplicates are known once they are settled (engine/function/redriven.py).
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
    return (
        *((column.name, str(column.type)) for column in topic.columns),
        *ORIGIN_COLUMNS,
        *HIDDEN_COLUMNS,
    )


def decode_table(raw: pa.Table, topic: Topic, clock: Clock, memories: Memories) -> pa.Table:
    """Decodes one topic's raw records in this process."""
    decoder = _Decoder(topic, clock, memories, lambda _partition: Memory(topic.identity_horizon_ms))
    batches = [decoder.decode(batch) for batch in raw.to_batches() if batch.num_rows]
    return pa.Table.from_batches(batches, schema=arrow_schema(decoded_columns(topic)))


def decoded_batches(
    batches: Iterable[pa.RecordBatch],
    topic: Topic,
    clock: Clock,
    *,
    raw: Iterable[tuple[int, int]] = (),
) -> Iterator[pa.RecordBatch]:
    """Decodes raw records in this process, batch by batch; the topic declares no identity. In these ranges all are kept as they lie in the log, too, not the rejects alone."""
    ranges = tuple(raw)
    decoder = _Decoder(topic, clock, {}, lambda _partition: Memory(topic.identity_horizon_ms))
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


def decode_to_files(
    spark: SparkSession,
    ranges: Sequence[RawRange],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    folder: Path,
    *,
    first: int = 0,
    left_out: frozenset[str] = frozenset(),
) -> dict[int, Seen]:
    """Decodes one topic's raw records in Spark's workers, a task for each range, into Parquet files of `folder` named by their numbers, from `first`.

    Columns of the event that are `left_out` decide what is valid as all do, and are not in the files.

    Rows that went back to Spark to be kept by it would cost more than their decoding. Gives what was seen of each partition.
    """
    decode = partial(
        _decode_ranges,
        ranges=ranges,
        topic=topic,
        clock=clock,
        remembering=remembering,
        folder=folder,
        first=first,
        left_out=left_out,
    )
    found = (
        spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(decode, _SEEN_COLUMNS).collect()
        if ranges
        else []
    )
    return {row.partition: Seen(*(row[name] for name in _COUNTS)) for row in found}


def seen_in(decoded: pa.Table | pa.RecordBatch) -> dict[int, Seen]:
    """What was seen of each partition in decoded records, which are in the order of their offsets."""
    fates = _counted(decoded, "_partition", "_fate")
    late = _counted(
        decoded.filter(pc.equal(decoded.column("_reason"), str(Reason.LATE))), "_partition"
    )
    redriven = _counted(decoded.filter(decoded.column("_redrives").is_valid()), "_partition")
    # Within a partition the log time only rises, so its last one is its greatest.
    clock = (
        pa.table([decoded.column("_partition"), decoded.column("_log_time")], names=["p", "t"])
        .group_by("p")
        .aggregate([("t", "max")])
    )
    return {
        p: Seen(
            fates[p, Fate.DECODED],
            fates[p, Fate.TOMBSTONE],
            fates[p, Fate.REJECTED],
            fates[p, Fate.DUPLICATE],
            late[p,],
            log_time,
            redriven[p,],
        )
        for p, log_time in zip(clock["p"].to_pylist(), clock["t_max"].to_pylist(), strict=True)
    }


def _counted(decoded: pa.Table | pa.RecordBatch, *by: str) -> Counter[tuple[int, ...]]:
    """How many rows there are of each combination of values."""
    if len(decoded) == 0:
        return Counter()
    found = (
        pa.table([decoded.column(name) for name in by], names=list(by))
        .group_by(list(by))
        .aggregate([([], "count_all")])
    )
    return Counter(
        dict(
            zip(
                zip(*(found[name].to_pylist() for name in by), strict=True),
                found["count_all"].to_pylist(),
                strict=True,
            )
        )
    )


def of_topic(raw: pa.Table, name: str) -> pa.Table:
    """The raw records of one topic."""
    return raw.filter(pc.equal(raw.column("topic"), name))


def _decode_ranges(
    numbers: Iterable[pa.RecordBatch],
    ranges: Sequence[RawRange],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    folder: Path,
    first: int,
    left_out: frozenset[str],
) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
        # A task that is tried again writes its files again.
        seen = decode_to_file(
            ranges[number](),
            topic,
            clock,
            remembering,
            folder / f"{first + number}.parquet",
            left_out=left_out,
        )
        yield pa.RecordBatch.from_pylist(
            [{"partition": partition, **asdict(one)} for partition, one in seen.items()],
            schema=arrow_schema(_SEEN_TYPES),
        )


def decode_to_file(
    batches: Iterable[pa.RecordBatch],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    path: Path,
    *,
    left_out: frozenset[str] = frozenset(),
) -> dict[int, Seen]:
    """Decodes raw records into a Parquet file, as one of Spark's tasks does, and gives what was seen of each."""
    seen: dict[int, Seen] = {}
    schema = arrow_schema(
        [column for column in decoded_columns(topic) if column[0] not in left_out]
    )
    memories: Memories = {}
    decoder = _Decoder(
        topic,
        clock,
        memories,
        partial(_remembered, remembering, topic.identity_horizon_ms),
        left_out=left_out,
    )
    with decoded_file(path, schema) as file:
        for raw in batches:
            if raw.num_rows == 0:
                continue
            batch = decoder.decode(raw).select(schema.names)
            file.write_batch(batch)
            for partition, more in seen_in(batch).items():
                before = seen.get(partition)
                seen[partition] = more if before is None else before.then(more)
    for partition, memory in memories.items():
        if remembering.folder is not None:
            put_memory(
                remembering.folder,
                partition,
                remembering.end[partition],
                memory,
                seen[partition].log_time,
            )
    return seen


def decoded_file(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A file that takes decoded records, and that is read once or twice: what would make it smaller, or searched quicker, costs more than it saves."""
    return pq.ParquetWriter(
        path, schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
    )


def _remembered(remembering: Remembering, horizon_ms: int, partition: int) -> Memory:
    """The memory of a partition as the slice begins; where none was put, nothing has been accepted in it."""
    folder, start = remembering.folder, remembering.start.get(partition, 0)
    if folder is None or start not in memory_offsets(folder, partition):
        return Memory(horizon_ms)
    return get_memory(folder, partition, start, horizon_ms)[0]


class _Decoder:
    def __init__(
        self,
        topic: Topic,
        clock: Clock,
        memories: Memories,
        memory_of: Callable[[int], Memory],
        *,
        left_out: frozenset[str] = frozenset(),
    ) -> None:
        """`memory_of` gives the memory of a partition that is not among the `memories`; columns that are `left_out` may be null."""
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
        self._plain: PlainEvents | None = None
        self._may_read_together = True
        self._nothing = (None,) * len(topic.columns)
        self._key_place = (
            None
            if topic.key is None
            else [column.name for column in topic.columns].index(topic.key)
        )

    def decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """One batch of raw records, decoded: as many rows, in the same order."""
        count = len(batch)
        redriven = self._redriven(batch)
        partitions, times = (
            batch.column("partition").to_numpy(),
            np.floor_divide(batch.column("timestamp").cast(pa.int64()).to_numpy(), 1000),
        )
        log_times = self._log_times(partitions, times)
        plain = [] if redriven else self._read_together(batch)
        # Those that are read by themselves.
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
        columns: list[Any] = _together([*plain, *parts], self._event)
        columns += [
            pa.repeat(self._topic.name, count),
            batch.column("partition"),
            batch.column("offset"),
            batch.column("timestamp"),
            _key_texts(batch.column("key")),
            log_times,
        ]
        columns += [fates, *_why(batch, rejected)]
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
                _array(column, field.type)
                for column, field in zip(columns, self._schema, strict=True)
            ],
            schema=self._schema,
        )

    def _read_alone(
        self,
        batch: pa.RecordBatch,
        places: Places,
        redriven: Mapping[int, Original | Rejected],
        times: npt.NDArray[np.int64],
        log_times: npt.NDArray[np.int64],
    ) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.int8], dict[int, Rejected]]:
        """The rows of records that stand at these places of their batch; the fates of all of that, as far as these decide them, and who is rejected why."""
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
                if refuse_late is not None and not isinstance(found, Tombstone):
                    # What is redriven is as late as the one that it stands for.
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
                # A redriven one is judged by the reject that it stands for, and by nothing else.
                elif identity_of_row is not None and original is None:
                    identity = identity_of_row(found)
                    if identity is not None and not self._memory(partition).accepts(
                        identity, int(log_times[place])
                    ):
                        fates[place] = Fate.DUPLICATE
                rows.append(found)
        return rows, fates, rejected

    def _read_together(self, batch: pa.RecordBatch) -> list[tuple[Places, pa.RecordBatch]]:
        """The rows that can be read of the whole batch at once, with their places."""
        if len(batch) < _MANY or not self._may_read_together:
            return []
        if self._plain is None:
            events = loading_plain_events()
            if len(batch) < _VERY_MANY and not events.done():
                return []
            self._plain = events.result().PlainEvents.of(self._topic, self._left_out)
        self._may_read_together = self._plain is not None and self._plain.pays
        return (
            self._plain.read(batch.column("key"), batch.column("value"))
            if self._plain is not None and self._may_read_together
            else []
        )

    def _redriven(self, batch: pa.RecordBatch) -> dict[int, Original | Rejected]:
        """By their place in the batch the records that stand for an earlier one, or name one that they cannot stand for."""
        headers = batch.column("headers")
        # Nearly always none has any, or none that is ours.
        names = pc.struct_field(headers.flatten(), "key")
        if (
            self._topic.kind is TopicKind.COMPACTED
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
                    Position(self._topic.name, partition, offset),
                )
            except Rejected as verdict:
                found[place] = verdict
            else:
                if original is not None:
                    found[place] = original
        return found

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
def loading_plain_events() -> Future[Any]:
    """The module that reads many records at once, which comes with a compiler: a job whose slices are small does without, and only a large one waits the second that it takes."""
    return ThreadPoolExecutor(1, thread_name_prefix="plain-events").submit(
        import_module, "kappa.engine.read.plain_events"
    )


def _together(parts: Sequence[tuple[Places, pa.RecordBatch]], schema: pa.Schema) -> list[pa.Array]:
    """The columns of all parts, in the order of the places."""
    if not parts:
        return [pa.array([], field.type) for field in schema]
    if len(parts) == 1:
        return list(parts[0][1].columns)
    order = pa.array(np.argsort(np.concatenate([places for places, _ in parts])))
    return [
        pa.concat_arrays([rows.column(place) for _, rows in parts]).take(order)
        for place in range(len(schema))
    ]


def _key_texts(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # A key without a declaration may be any bytes, and the record is valid all the same.
        return pa.array(
            [None if key is None else key.decode(errors="replace") for key in keys.to_pylist()],
            pa.string(),
        )


def _why(batch: pa.RecordBatch, rejected: Mapping[int, Rejected]) -> list[pa.Array]:
    """Reason, detail, key, value and headers of the records that are rejected, nulls for the others."""
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


def _array(column: Any, kind: pa.DataType) -> pa.Array:
    return (
        column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
    )
