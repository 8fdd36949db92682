"""The shares of a topic's ranges in a large slice: the ranges that Spark's tasks decode.

A range is a single share, or several shares if cores would wait and there are enough offsets. The
record itself decides its fate, with two exceptions: the log time, and whether the record is a
duplicate. A topic with an identity is not divided. The log time before a share is known once the
shares before are decoded. Until then each share is decoded with the log time before the slice, the
least that is possible. The difference is added where the rows are read (`CarriedTimes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kappa.base.sql import spark_quote
from kappa.declare.topic import Topic
from kappa.records.decode.fate import Counts
from kappa.records.decode.raw import RawRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A task has a consumer, a decoder and a file of its own, which cost as much as some ten thousand
# records.
LEAST_OFFSETS = 100_000

_LOG_TIME = "_log_time"


class Undivided(StrEnum):
    """The reason why no range is divided although cores wait."""

    FEW_OFFSETS = "a task of its own costs more than so few records"
    IDENTITY = "whether a record is a duplicate depends on those before it in its partition"


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares in the order of the log, and the reason if cores wait and none is divided."""

    ranges: tuple[RawRange, ...]
    undivided: Undivided | None = None


def shares_of(topic: Topic, ranges: Sequence[RawRange], cores: int) -> Shares:
    """Divides a topic's ranges among cores, if that pays and gives the same rows."""
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
    """Returns the number of shares of each range.

    Each step divides the range with the largest share once more.
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
    """The log times at which shares begin, except the first share of each partition.

    Each item is partition, offset and log time: from that offset on no record has a lower log time.
    The items are in the order of the log.
    """

    times: tuple[tuple[int, int, int], ...] = ()

    def in_frame(self, rows: DataFrame) -> DataFrame:
        """Returns rows at Spark with carried log times, if the rows have that column."""
        if not self.times or _LOG_TIME not in rows.columns:
            return rows
        return rows.selectExpr(
            *(
                f"{self._sql()} as {name}" if name == _LOG_TIME else spark_quote(name)
                for name in rows.columns
            )
        )

    def in_sql(self, rows: str) -> str:
        """Returns a DuckDB query for rows with carried log times; the rows have that column."""
        if not self.times:
            return rows
        return f"select * replace ({self._sql()} as {_LOG_TIME}) from ({rows})"

    def in_rows(self, rows: pa.Table) -> pa.Table:
        """Returns an Arrow table with carried log times, if the table has that column."""
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
    """Returns the log times at which shares begin, from the counts of each share."""
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
