"""The records of an archive's file, and the counts of records.

The file's statistics have the counts if all records are valid, which is nearly always so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from kappa.records.decode.fate import Counts, Fate, counts_in
from kappa.state.files.address import arrow_source
from kappa.tables.stored_archive import Block

# The columns whose statistics an archive's files have; older files lack the last three.
STATISTICS = ("_partition", "_offset", "_fate", "_redrives", "_log_time")
_COLUMNS = ["_partition", "_offset", "_fate", "_reason", "_redrives", "_log_time"]


def counts_of(block: Block, start: int, end: int) -> Counts | None:
    """Returns the counts of a block's records of `[start, end)`, or None."""
    seen = _by_statistics(block) if start <= block.least and block.greatest < end else None
    return seen or counts_in(rows_of(block, _COLUMNS, start, end)).get(block.partition)


def log_time_before(offset: int, blocks: Sequence[Block]) -> int | None:
    """Returns a partition's log time at an offset.

    `blocks` are the partition's blocks in order. Returns None at the first block.
    """
    before = [block for block in blocks if block.least < offset]
    if not before:
        return None
    last = before[-1]
    seen = _by_statistics(last) if last.greatest < offset else None
    if seen is not None:
        return seen.log_time
    rows = rows_of(last, ["_log_time"], last.least, offset)
    log_time: int = pc.max(rows["_log_time"]).as_py()
    return log_time


def _by_statistics(block: Block) -> Counts | None:
    """Returns the counts of a block, by its statistics.

    Returns None if the statistics do not show that all records are valid.
    """
    found = pq.read_metadata(arrow_source(block.path))
    columns = {found.schema.column(place).path: place for place in range(found.num_columns)}
    decoded, redriven, log_time = 0, 0, 0
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        fate, redrives, times = (
            group.column(columns[name]).statistics for name in ("_fate", "_redrives", "_log_time")
        )
        if not (
            _has_bounds(fate)
            and _has_bounds(times)
            and fate.min == fate.max == Fate.DECODED
            and redrives is not None
            and redrives.has_null_count
        ):
            return None
        decoded += group.num_rows
        redriven += group.num_rows - redrives.null_count
        log_time = times.max
    # Within a partition the log time only rises.
    return Counts(decoded, 0, 0, 0, 0, log_time, redriven)


def _has_bounds(statistics: Any) -> bool:
    return statistics is not None and statistics.has_min_max


def rows_of(block: Block, columns: list[str], start: int, end: int) -> pq.Table:
    """Reads a block's rows of `[start, end)`, only from their row groups."""
    return pq.read_table(
        arrow_source(block.path),
        columns=columns,
        filters=(pc.field("_offset") >= start) & (pc.field("_offset") < end),
        partitioning=None,
    )
