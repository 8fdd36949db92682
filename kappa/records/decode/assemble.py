"""The assembly of a decoded batch's columns from parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kappa.declare.values.arrow import HEADERS_TYPE, Places
from kappa.declare.values.reason import Rejected


def in_order(parts: Sequence[tuple[Places, pa.RecordBatch]], schema: pa.Schema) -> list[pa.Array]:
    """Returns the columns of all parts, in the order of the places."""
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
    """Returns keys as texts; bytes that are not UTF-8 are replaced."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # A key without a declaration may be any bytes, and the record is valid all the same.
        return pa.array(
            [None if key is None else key.decode(errors="replace") for key in keys.to_pylist()],
            pa.string(),
        )


def rejected_columns(batch: pa.RecordBatch, rejected: Mapping[int, Rejected]) -> list[pa.Array]:
    """Returns reason, detail, key, value and headers of rejects, with nulls elsewhere."""
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
    """Returns values as an array of a type."""
    return (
        column if isinstance(column, pa.Array) and column.type == kind else pa.array(column, kind)
    )
