"""The decoding of a topic's large slice into Parquet files, in Spark's workers."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.section.storage import StorageSettings
from kappa.declare.formats.registry_schemas import SchemaSource, open_schemas, opened_schemas
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.records.decode.decoder import Clock, Decoder, Memories
from kappa.records.decode.fate import HIDDEN_COLUMNS, Counts, counts_in, decoded_columns, joined
from kappa.records.decode.raw import RawRange
from kappa.records.decode.remembered import get_memory, put_memory
from kappa.records.decode.shares import CarriedTimes, Undivided, carried_times, shares_of
from kappa.records.identity import Memory
from kappa.state.build_status import read_counter
from kappa.state.files.address import copy_file, open_buckets, opened_bucket_settings, writing_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Columns with few different values.
_REPEATED = [
    "_topic",
    "_partition",
    *(name for name, _ in HIDDEN_COLUMNS if name not in {"_log_time", "_raw_headers"}),
]
# The interval at which a task reports the number of records read, for people who watch.
_COUNT_SECONDS = 0.5
# Topics that this process has reported as not divided.
_named = set[str]()
_COUNTS = (
    *("decoded", "tombstone", "rejected", "duplicate"),
    *("late", "log_time", "redriven", "truncations"),
)
_SEEN_TYPES = (
    *(("file", "string"), ("share", "int"), ("partition", "int")),
    *((name, "bigint") for name in _COUNTS),
)
_SEEN_COLUMNS = ", ".join(f"{name} {kind}" for name, kind in _SEEN_TYPES)


@dataclass(frozen=True, slots=True)
class Remembering:
    """The folder of a topic's memories in a large slice, and the slice's bounds.

    Tasks read the memories of the slice's start, and put the memories of its end. Offsets are per
    partition; `origin` has the build's first offsets. Without a folder the topic declares no
    identity.
    """

    folder: str | None = None
    origin: Mapping[int, int] = field(default_factory=dict)
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecodedShares:
    """A topic's decoded files in the order of its partitions, and their counts.

    Counts are per partition; `carried` are the log times that complete the files' rows.
    """

    files: tuple[str, ...]
    counts: dict[int, Counts]
    carried: CarriedTimes


def decode_to_files(
    spark: SparkSession,
    ranges: Sequence[RawRange],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    folder: str,
    *,
    left_out: frozenset[str] = frozenset(),
) -> DecodedShares:
    """Decodes a topic's raw records in Spark's workers, a task and a Parquet file per share.

    `folder` is the path or URL of the files. Each attempt of a task has a file of its own, and only
    the files that count are named: an attempt that is lost with its worker may still write. Columns
    of the event that are `left_out` decide validity as all columns do, and are not in the files.
    Returning the rows to Spark and keeping them there would cost more than decoding.
    """
    cores = spark.sparkContext.defaultParallelism
    shares = shares_of(topic, ranges, cores)
    if shares.undivided is Undivided.IDENTITY and topic.name not in _named:
        _named.add(topic.name)
        print(
            f"topic {topic.name} is decoded by {len(ranges)} of {cores} cores: {shares.undivided}",
            file=sys.stderr,
            flush=True,
        )
    count = len(shares.ranges)
    decode = partial(
        _decode_shares,
        ranges=shares.ranges,
        topic=topic,
        clock=clock,
        remembering=remembering,
        folder=folder,
        left_out=left_out,
        schemas=opened_schemas(),
        buckets=opened_bucket_settings(),
    )
    found = (
        spark.range(0, count, 1, count).mapInArrow(decode, _SEEN_COLUMNS).collect() if count else []
    )
    of_shares = {row.share: row.file for row in found}
    seen: list[dict[int, Counts]] = [{} for _ in shares.ranges]
    for row in found:
        if row.partition is not None:
            seen[row.share][row.partition] = Counts(*(row[name] for name in _COUNTS))
    return DecodedShares(
        tuple(f"{folder}/{of_shares[share]}" for share in sorted(of_shares)),
        reduce(joined, seen, {}),
        carried_times(shares.ranges, seen),
    )


def _decode_shares(
    numbers: Iterable[pa.RecordBatch],
    ranges: Sequence[RawRange],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    folder: str,
    left_out: frozenset[str],
    schemas: SchemaSource | None,
    buckets: Sequence[tuple[str, StorageSettings]],
) -> Iterator[pa.RecordBatch]:
    open_schemas(schemas)
    open_buckets(buckets)
    for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
        name = f"{number}-{secrets.token_hex(8)}.parquet"
        with writing_file(f"{folder}/{name}") as path:
            seen = decode_to_file(
                ranges[number].batches(), topic, clock, remembering, path, left_out=left_out
            )
        counted = [{"partition": partition, **asdict(one)} for partition, one in seen.items()]
        # A range without records has a file, too, with columns but no rows.
        yield pa.RecordBatch.from_pylist(
            [{"file": name, "share": number, **one} for one in counted or [{}]],
            schema=arrow_schema(_SEEN_TYPES),
        )


def linked_for_workers(folder: Path, place: str) -> Iterator[str]:
    """Yields the files that were linked from an archive into `folder`, in order.

    The files are copied if the workers' `place` is another folder.
    """
    linked = (path for path in folder.glob("*.parquet") if path.stem.isdecimal())
    for path in sorted(linked, key=lambda path: int(path.stem)):
        seen = f"{place}/{path.name}"
        if seen != str(path):
            copy_file(str(path), seen)
        yield seen


def decode_to_file(
    batches: Iterable[pa.RecordBatch],
    topic: Topic,
    clock: Clock,
    remembering: Remembering,
    path: Path,
    *,
    left_out: frozenset[str] = frozenset(),
) -> dict[int, Counts]:
    """Decodes raw records into a Parquet file, as a task of Spark's. Returns the counts."""
    seen: dict[int, Counts] = {}
    schema = arrow_schema(
        [column for column in decoded_columns(topic) if column[0] not in left_out]
    )
    memories: Memories = {}
    decoder = Decoder(
        topic,
        clock,
        memories,
        partial(_remembered_memory, remembering, topic.identity_horizon_ms),
        left_out=left_out,
    )
    count = read_counter(path.parent, path.stem.lstrip("_").partition("-")[0])
    read, due = 0, time.monotonic() + _COUNT_SECONDS
    with decoded_file(path, schema) as file:
        for raw in batches:
            if raw.num_rows == 0:
                continue
            read += raw.num_rows
            if time.monotonic() >= due:
                count(read)
                due = time.monotonic() + _COUNT_SECONDS
            batch = decoder.decode(raw)
            file.write_batch(batch.select(schema.names))
            seen = joined(seen, counts_in(batch))
    count(read)
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
    """Opens a file that takes decoded records.

    The file is read once or twice, so a smaller file, or a file that is quicker to search, costs
    more than it saves.
    """
    return pq.ParquetWriter(
        path, schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
    )


def _remembered_memory(remembering: Remembering, horizon_ms: int, partition: int) -> Memory:
    """Returns a partition's memory at the slice's start; empty at the build's origin.

    At any other start, the job has put a memory. The file is opened by name, because a machine's
    list of a folder may be late.
    """
    folder, start = remembering.folder, remembering.start.get(partition, 0)
    if folder is None or start <= remembering.origin.get(partition, 0):
        return Memory(horizon_ms)
    return get_memory(folder, partition, start, horizon_ms)[0]
