"""Checks an archive: each partition is one stretch of the log, each offset is there once, and it is what decoding the topic gives.

What the topic has lost cannot be compared any more; that it was read without a gap is what the marks of the commits say, and what
is checked is that the files hold exactly what the marks have counted. Read next: engine/archive/archiver.py, which writes archives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.base.errors import Damaged
from kappa.declare.topic import Topic
from kappa.engine.archive.archive_writer import Read
from kappa.engine.decode.decode import decoded_batches
from kappa.engine.decode.fate import decoded_columns
from kappa.engine.read.archived import log_time_before, rows_of
from kappa.tables.archive import ArchiveMark
from kappa.tables.delta import Block, StoredArchive, link_file
from kappa.values.tally import Tally

# Offsets `[from, to)`.
Ranges = Iterable[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """What was found of one partition: `[start, end)` with so many records, of which those from `compared_from` on were compared with the topic's.

    `wrong` says what is not as it should be; None: all is.
    """

    partition: int
    start: int
    end: int
    records: int
    compared_from: int
    compared: int
    wrong: str | None


def check_archive(
    archive: StoredArchive, topic: Topic | None, beginning: dict[int, int], read: Read, into: Path
) -> Iterator[PartitionCheck]:
    """Checks all partitions of an archive as it is now; its files are linked into a folder, and may be let go of meanwhile.

    `topic` is the declaration that it was made by, and `beginning` where its partitions begin now; without, nothing is compared.
    """
    mark = archive.mark()
    blocks = tuple(_linked(archive.blocks(), into))
    for partition, start in sorted(mark.start.items()):
        own = [block for block in blocks if block.partition == partition]
        end = mark.end[partition]
        wrong = _not_contiguous(mark, partition, own)
        since = max(start, beginning.get(partition, end))
        compared = 0
        if wrong is None and topic is not None and since < end:
            compared, wrong = _compared(
                topic, partition, since, end, own, read, mark.raw.get(partition, ())
            )
        yield PartitionCheck(
            partition,
            start,
            end,
            sum(block.rows for block in own),
            min(since, end),
            compared,
            wrong,
        )


def _linked(blocks: Iterable[Block], into: Path) -> Iterator[Block]:
    for number, block in enumerate(blocks):
        path = into / f"{number}.parquet"
        try:
            link_file(Path(block.path), path)
        except FileNotFoundError as error:
            raise Damaged(
                f"{block.path} is gone, and its archive needs it",
                hint="the archiver may have joined files just now: ask again",
            ) from error
        yield replace(block, path=str(path))


def _not_contiguous(mark: ArchiveMark, partition: int, blocks: Sequence[Block]) -> str | None:
    """What is wrong with a partition's files as they follow one another; None where nothing is."""
    start, end, told = (
        mark.start[partition],
        mark.end[partition],
        mark.tally.get(partition, Tally()),
    )
    last, last_time, count = start - 1, None, 0
    for block in blocks:
        try:
            rows = pq.read_table(
                block.path, columns=["_partition", "_offset", "_log_time"], partitioning=None
            )
        except (OSError, pa.ArrowException) as error:
            return f"the file of offsets {block.least} to {block.greatest} cannot be read: {error}"
        offsets, times = rows["_offset"].to_pylist(), rows["_log_time"].to_pylist()
        if (
            len(offsets) != block.rows
            or offsets[0] != block.least
            or offsets[-1] != block.greatest
            or pc.unique(rows["_partition"]).to_pylist() != [partition]
        ):
            return f"the file of offsets {block.least} to {block.greatest} does not hold what the table says of it"
        found = next(
            (after for before, after in pairwise([last, *offsets]) if after <= before), None
        )
        if found is not None:
            return f"offset {found} is there twice, or out of order"
        if times != sorted(times) or (last_time is not None and times[0] < last_time):
            return f"the log time goes back among offsets {block.least} to {block.greatest}"
        last, last_time, count = offsets[-1], times[-1], count + len(offsets)
    if last >= end:
        return f"offset {last} is there, and the archive ends at {end}"
    if (
        count != told.decoded + told.rejected + told.tombstone + told.duplicate
        or count + told.absent != end - start
    ):
        return f"it holds {count} records of offsets {start} to {end}, and has counted {told.decoded + told.rejected + told.tombstone} and {told.absent} offsets without"
    if last_time != mark.log_time.get(partition):
        return (
            f"its log time ends at {last_time}, and the archive says {mark.log_time.get(partition)}"
        )
    return None


def _compared(
    topic: Topic,
    partition: int,
    start: int,
    end: int,
    blocks: Sequence[Block],
    read: Read,
    raw: Ranges,
) -> tuple[int, str | None]:
    """How many records were compared, and the first difference between the archive and the topic, which is decoded again."""
    before = log_time_before(start, blocks)
    names = [name for name, _ in decoded_columns(topic)]
    reached, count = start, 0
    for batch in decoded_batches(
        read(partition, start, end), topic, {} if before is None else {partition: before}, raw=raw
    ):
        following = int(batch.column("_offset")[-1].as_py()) + 1
        wrong = _difference(
            _held(blocks, names, reached, following, batch.schema), pa.Table.from_batches([batch])
        )
        if wrong is not None:
            return count, wrong
        reached, count = following, count + batch.num_rows
    rest = _held(blocks, ["_offset"], reached, end, pa.schema([("_offset", pa.int64())]))
    return (
        count,
        f"offset {rest['_offset'][0].as_py()} is in the archive, and not in the topic"
        if rest.num_rows
        else None,
    )


def _held(
    blocks: Sequence[Block], names: list[str], start: int, end: int, schema: pa.Schema
) -> pa.Table:
    found = [
        rows_of(block, names, start, end).select(names).cast(schema)
        for block in blocks
        if block.least < end and block.greatest >= start
    ]
    return pa.concat_tables([schema.empty_table(), *found])


def _difference(held: pa.Table, given: pa.Table) -> str | None:
    """The first difference between what an archive holds and what the topic gives; None where they are equal."""
    if held.equals(given):
        return None
    mine, others = held["_offset"].to_pylist(), given["_offset"].to_pylist()
    if mine != others:
        offset = min(set(mine) ^ set(others))
        return (
            f"offset {offset} is in the topic, and not in the archive"
            if offset in set(others)
            else f"offset {offset} is in the archive, and not in the topic"
        )
    for place, offset in enumerate(mine):
        for name in held.schema.names:
            if held[name][place].as_py() != given[name][place].as_py():
                return f"column {name} of offset {offset} is {held[name][place].as_py()!r}, and the topic gives {given[name][place].as_py()!r}"
    return None
