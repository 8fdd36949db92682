"""A check that a partition's archive contains each record of the log exactly once.

Records that the topic has lost can no longer be compared with the archive. But the archiver has
read these records without a gap, and has stored their number in the metadata of its commits (the
mark). So for these records, the check compares the number of records in the archive's files with
the number in the mark.
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
from kappa.declare.values.tally import Tally
from kappa.engine.archive.archive_writer import Read
from kappa.engine.read.archive_reader import log_time_before, rows_of
from kappa.records.decode.decode import decoded_batches
from kappa.records.decode.outcome import decoded_columns
from kappa.state.files.address import share_file
from kappa.state.witness import LostEnd
from kappa.tables.archive import ArchiveMark
from kappa.tables.stored_archive import Block, StoredArchive

# Offsets `[from, to)`.
Ranges = Iterable[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PartitionCheck:
    """The result of the check of one partition.

    The archive contains the offsets `[start, end)` of the partition, with `records` records. The
    check compared the `compared` records from the offset `compared_from` on with the topic's
    records. `wrong` describes the first error, or is None.
    """

    partition: int
    start: int
    end: int
    records: int
    compared_from: int
    compared: int
    wrong: str | None


def check_archive(
    archive: StoredArchive,
    topic: Topic | None,
    beginning: dict[int, int],
    read: Read,
    into: Path,
    cut: Iterable[LostEnd] = (),
) -> Iterator[PartitionCheck]:
    """Checks all partitions of an archive, and yields a result for each partition.

    The archive's files are linked into the folder `into`, so the archiver may delete files during
    the check. `topic` is the declaration with which the archive was decoded; if `topic` is None, no
    records are compared. `beginning` contains the current first offsets of the topic's partitions,
    and `read` reads records of the topic. `cut` lists the partitions whose last records have
    changed in the topic or disappeared from the topic. Such a partition is compared only up to the
    first changed record, and its result describes the loss as an error.
    """
    mark = archive.mark()
    cut_at = {each.partition: each for each in cut}
    blocks = tuple(_linked(archive.blocks(), into))
    for partition, start in sorted(mark.start.items()):
        own = [block for block in blocks if block.partition == partition]
        end = mark.end[partition]
        wrong = _not_contiguous(mark, partition, own)
        since = max(start, beginning.get(partition, end))
        compared = 0
        lost = cut_at.get(partition)
        upto = end if lost is None else min(end, lost.first or since)
        if wrong is None and topic is not None and since < upto:
            compared, wrong = _compared(
                topic, partition, since, upto, own, read, mark.raw.get(partition, ())
            )
        if wrong is None and lost is not None:
            wrong = f"the topic has lost its end, and the archive has it: {lost}"
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
            share_file(block.path, str(path))
        except FileNotFoundError as error:
            raise Damaged(
                f"{block.path} is gone, and its archive needs it",
                hint="the archiver may have joined files just now: ask again",
            ) from error
        yield replace(block, path=str(path))


def _not_contiguous(mark: ArchiveMark, partition: int, blocks: Sequence[Block]) -> str | None:
    """Returns a description of the first error in the files of a partition, or None.

    Examples of errors are an unreadable file, a repeated offset, and a number of records that
    differs from the number in `mark`.
    """
    start, end, tally = (
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
            return (
                f"the file of offsets {block.least} to {block.greatest} does not hold what the "
                "table says of it"
            )
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
        count != tally.decoded + tally.rejected + tally.tombstone + tally.duplicate
        or count + tally.absent != end - start
    ):
        return (
            f"it holds {count} records of offsets {start} to {end}, and has counted "
            f"{tally.decoded + tally.rejected + tally.tombstone} and {tally.absent} offsets without"
        )
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
    """Decodes the topic's records in `[start, end)` again, and compares them with the archive.

    Returns the number of equal records before the first difference, and a description of this
    difference or None.
    """
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
    """Returns a description of the first difference between `held` and `given`, or None.

    `held` contains the archive's rows, and `given` contains the topic's decoded records.
    """
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
                return (
                    f"column {name} of offset {offset} is {held[name][place].as_py()!r}, and the "
                    f"topic gives {given[name][place].as_py()!r}"
                )
    return None
