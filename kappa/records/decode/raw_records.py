"""Raw records: the records of a slice as they are stored in the log, before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pyarrow as pa

from kappa.declare.values.arrow import arrow_schema
from kappa.declare.values.columns import HEADERS

# The columns of raw records. `timestamp` is the record's own, or the broker's if the topic has
# LogAppendTime. Headers are for rejects and redriven records: null if none, and so nearly free.
RAW_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RAW_SCHEMA = arrow_schema(
    zip(
        RAW_COLUMNS,
        ("string", "int", "bigint", "timestamp", "binary", "binary", HEADERS),
        strict=True,
    )
)
# A record in the order of the columns above: the time in microseconds since 1970, the headers as
# pairs of name and value.
RawRecord = tuple[
    str, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]
]


@dataclass(frozen=True, slots=True)
class RawRange:
    """The raw records `[start, end)` of one partition, in the order of offsets.

    The function `read` reads the records; its arguments are the partition, the start and the end. A
    Spark worker receives a pickled copy of `read`.
    """

    partition: int
    start: int
    end: int
    read: Callable[[int, int, int], Iterator[pa.RecordBatch]]

    @property
    def offsets(self) -> int:
        """Returns the number of offsets in the range."""
        return self.end - self.start

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Reads the records of the range, and yields them in batches."""
        return self.read(self.partition, self.start, self.end)

    def divided(self, count: int) -> tuple[RawRange, ...]:
        """Divides the range into consecutive ranges of nearly equal size."""
        bounds = (self.start + self.offsets * number // count for number in range(count + 1))
        return tuple(replace(self, start=start, end=end) for start, end in pairwise(bounds))


def raw_table(records: Iterable[RawRecord]) -> pa.Table:
    """Returns an Arrow table with the columns RAW_COLUMNS for raw records."""
    *others, headers = list(zip(*records, strict=True)) or [()] * len(RAW_COLUMNS)
    # Null for records without headers.
    columns: list[Sequence[Any]] = [
        *others,
        [[{"key": name, "value": value} for name, value in each] or None for each in headers],
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)],
        schema=RAW_SCHEMA,
    )
