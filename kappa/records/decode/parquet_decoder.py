"""Decodes a topic's large slice into Parquet files, on Spark workers.

A task decodes one share. Normally, a share is the whole range of a partition. If cores would be
idle and the range has enough offsets, the range is divided into several shares. A record's own
content decides its fate and its columns, with two exceptions: its log time, and whether it is a
duplicate. Because of duplicates, a topic with an identity is not divided. The log time before a
share is known only after the earlier shares are decoded. So each share is decoded with the log time
before the slice, which may be too low. When the rows are read, `CarriedTimes` replaces the log
times that are too low.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kappa.base.log_lines import Level, write_log_line
from kappa.base.sections import StorageSettings
from kappa.base.sql import spark_quote
from kappa.declare.formats.registry_schemas import SchemaSource, open_schemas, opened_schemas
from kappa.declare.topic import Topic
from kappa.declare.values.arrow import arrow_schema
from kappa.records.decode.decoder import Clock, Decoder, Memories
from kappa.records.decode.identity_file import get_memory, put_memory
from kappa.records.decode.outcome import HIDDEN_COLUMNS, Counts, counts_in, decoded_columns, joined
from kappa.records.decode.raw_records import RawRange
from kappa.records.identity import Memory
from kappa.state.build_status import read_counter
from kappa.state.files.address import copy_file, open_buckets, opened_bucket_settings, writing_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """The folder with a topic's remembered identities, and the bounds of a large slice.

    Tasks read the identities that were stored for the slice's start, and store the identities for
    its end. `start`, `end` and `origin` contain offsets per partition; `origin` contains the
    build's first offsets. `folder` is None if the topic declares no identity.
    """

    folder: str | None = None
    origin: Mapping[int, int] = field(default_factory=dict)
    start: Mapping[int, int] = field(default_factory=dict)
    end: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecodedShares:
    """A topic's decoded files in the order of its partitions, with the counts per partition.

    Some log times in the files are too low. `carried` contains the log times that replace them.
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
    """Decodes a topic's raw records on Spark workers, with a task and a Parquet file per share.

    `folder` is the path or URL for the files. Each attempt of a task has its own file, since an
    attempt that is lost with its worker may still write. Only the files of successful attempts are
    returned. Event columns in `left_out` are checked like all columns, but are not written. The
    tasks do not return the rows to Spark: storing the rows there would cost more than decoding.
    """
    cores = spark.sparkContext.defaultParallelism
    shares = shares_of(topic, ranges, cores)
    if shares.undivided is Undivided.IDENTITY and topic.name not in _named:
        _named.add(topic.name)
        write_log_line(
            f"topic {topic.name} is decoded by {len(ranges)} of {cores} cores: {shares.undivided}",
            Level.WARN,
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
    """Yields the paths of the files that were linked from an archive into `folder`, in order.

    `place` is the folder that the workers can read. If it is another folder, the files are copied
    into it.
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
    """Decodes raw records into a Parquet file, as a Spark task does.

    Returns the counts per partition. If the topic has an identity, the identities at the end of the
    slice are stored too.
    """
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
    """Opens a Parquet file for writing decoded records.

    The file is read only once or twice. So stronger compression or statistics would cost more time
    than they save.
    """
    return pq.ParquetWriter(
        path, schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
    )


def _remembered_memory(remembering: Remembering, horizon_ms: int, partition: int) -> Memory:
    """Returns the identities that a partition has accepted before the slice's start.

    At the build's first offset there are no identities. For any other start, the job has stored a
    file. The file is opened by its name, since the newest files may be missing when a machine lists
    the folder.
    """
    folder, start = remembering.folder, remembering.start.get(partition, 0)
    if folder is None or start <= remembering.origin.get(partition, 0):
        return Memory(horizon_ms)
    return get_memory(folder, partition, start, horizon_ms)[0]


# A task has a consumer, a decoder and a file of its own, which cost as much as some ten thousand
# records.
LEAST_OFFSETS = 100_000

_LOG_TIME = "_log_time"


class Undivided(StrEnum):
    """The reason why no range is divided into shares although some cores are idle."""

    FEW_OFFSETS = "a task of its own costs more than so few records"
    IDENTITY = "whether a record is a duplicate depends on those before it in its partition"


@dataclass(frozen=True, slots=True)
class Shares:
    """The ranges that tasks decode, in the order of the partitions and of the log.

    If no range is divided although some cores are idle, `undivided` is the reason.
    """

    ranges: tuple[RawRange, ...]
    undivided: Undivided | None = None


def shares_of(topic: Topic, ranges: Sequence[RawRange], cores: int) -> Shares:
    """Divides a topic's ranges into shares, so that more cores can decode the topic.

    The ranges stay whole if there are as many ranges as cores, if a share would have too few
    offsets, or if the topic declares an identity.
    """
    whole = tuple(ranges)
    if not 0 < len(whole) < cores:
        return Shares(whole)
    counts = _share_counts([each.offsets for each in whole], cores)
    if sum(counts) == len(whole):
        return Shares(whole, Undivided.FEW_OFFSETS)
    if topic.identity:
        return Shares(whole, Undivided.IDENTITY)
    return Shares(
        tuple(
            share
            for each, count in zip(whole, counts, strict=True)
            for share in each.divided(count)
        )
    )


def _share_counts(offsets: Sequence[int], cores: int) -> list[int]:
    """Returns the number of shares into which each range is divided.

    `offsets` contains the number of offsets of each range. Shares are added one by one, each to the
    range whose shares are the largest.
    """
    counts = [1] * len(offsets)
    while sum(counts) < cores:
        most = max(range(len(offsets)), key=lambda place: offsets[place] / counts[place])
        if offsets[most] < (counts[most] + 1) * LEAST_OFFSETS:
            break
        counts[most] += 1
    return counts


@dataclass(frozen=True, slots=True)
class CarriedTimes:
    """The log time before each share, except before the first share of a partition.

    Each item contains a partition, an offset and a log time. No record of the partition from that
    offset on has a lower log time. Within a partition, the items are in ascending order.
    """

    times: tuple[tuple[int, int, int], ...] = ()

    def in_frame(self, rows: DataFrame) -> DataFrame:
        """Returns a Spark frame in which log times that are too low are replaced.

        A frame without the column of log times is returned unchanged.
        """
        if not self.times or _LOG_TIME not in rows.columns:
            return rows
        return rows.selectExpr(
            *(
                f"{self._sql()} as {name}" if name == _LOG_TIME else spark_quote(name)
                for name in rows.columns
            )
        )

    def in_sql(self, rows: str) -> str:
        """Returns a DuckDB query for the rows of the query `rows`, with corrected log times.

        Log times that are too low are replaced. The query `rows` must have the column of log times.
        """
        if not self.times:
            return rows
        return f"select * replace ({self._sql()} as {_LOG_TIME}) from ({rows})"

    def in_rows(self, rows: pa.Table) -> pa.Table:
        """Returns an Arrow table in which log times that are too low are replaced.

        A table without the column of log times is returned unchanged.
        """
        place = rows.schema.get_field_index(_LOG_TIME)
        if not self.times or place < 0:
            return rows
        partitions, offsets = (rows.column(name).to_numpy() for name in ("_partition", "_offset"))
        log_times = rows.column(place).to_numpy().copy()
        for partition, offset, log_time in self.times:
            later = (partitions == partition) & (offsets >= offset)
            log_times[later] = np.maximum(log_times[later], log_time)
        return rows.set_column(place, rows.schema.field(place), pa.array(log_times))

    def _sql(self) -> str:
        cases = (
            f"when _partition = {partition} and _offset >= {offset}"
            f" then greatest({_LOG_TIME}, {log_time})"
            for partition, offset, log_time in reversed(self.times)
        )
        return " ".join(["case", *cases, f"else {_LOG_TIME} end"])


def carried_times(ranges: Iterable[RawRange], seen: Iterable[Mapping[int, Counts]]) -> CarriedTimes:
    """Returns the log time before each share, computed from the counts of the earlier shares.

    `ranges` are the shares in the order of the log, and `seen` contains the counts of each share.
    """
    times: list[tuple[int, int, int]] = []
    reached: dict[int, int] = {}
    for share, counts in zip(ranges, seen, strict=True):
        partition = share.partition
        if partition in reached:
            times.append((partition, share.start, reached[partition]))
        if partition in counts:
            log_time = counts[partition].log_time
            reached[partition] = max(log_time, reached.get(partition, log_time))
    return CarriedTimes(tuple(times))
