"""Raw records: what a slice is read as, before it is decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from kappa.values.arrow import arrow_schema
from kappa.values.columns import HEADERS

# What a slice is read as. `timestamp` is the record's own, or the broker's where the topic says LogAppendTime.
# Headers are there for rejects and for what is redriven: null where a record has none, so that they cost nearly nothing.
RAW_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RAW_SCHEMA = arrow_schema(
    zip(
        RAW_COLUMNS,
        ("string", "int", "bigint", "timestamp", "binary", "binary", HEADERS),
        strict=True,
    )
)
# One record in the order of those columns, its time in microseconds since 1970, its headers as name and value.
RawRecord = tuple[
    str, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]
]
# The raw records of one partition in a slice, in the order of their offsets: one task reads them all, on which the log time
# depends (law 4). It is called in a worker, and so goes there as it is.
RawRange = Callable[[], Iterator[pa.RecordBatch]]


def raw_table(records: Iterable[RawRecord]) -> pa.Table:
    """Raw records as a table."""
    *others, headers = list(zip(*records, strict=True)) or [()] * len(RAW_COLUMNS)
    # Null where there are none.
    columns: list[Sequence[Any]] = [
        *others,
        [[{"key": name, "value": value} for name, value in each] or None for each in headers],
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, RAW_SCHEMA, strict=True)],
        schema=RAW_SCHEMA,
    )
