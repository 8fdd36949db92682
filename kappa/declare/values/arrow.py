"""Arrow types that match the types of Spark and Delta, and Arrow arrays made from lengths. Pure.

Compiled code (kappa/base/loops.py) writes the bytes of texts one after the other, and the length of
each text. `array_of` makes Arrow arrays from these bytes and lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.values.columns import HEADERS, Array, Decimal, Scalar, Struct, Type, parse_type

_SCALARS = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    # With a zone, since Delta's timestamp is an instant. A timestamp without a zone needs a newer
    # writer version.
    "timestamp": pa.timestamp("us", tz="UTC"),
}

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
# No event has these types, but the rejects do.
_RAW = {"binary": pa.binary(), HEADERS: HEADERS_TYPE}
Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Ends = npt.NDArray[np.int32]
# The places of records in their batch.
Places = npt.NDArray[np.int64]


def arrow_type(kind: Type) -> pa.DataType:
    """Returns the Arrow type for a column's type. Nested elements and fields may be null."""
    match kind:
        case Scalar():
            return _SCALARS[kind.name]
        case Decimal():
            return pa.decimal128(kind.precision, kind.scale)
        case Array():
            return pa.list_(pa.field("element", arrow_type(kind.element)))
        case Struct():
            return pa.struct(
                [pa.field(field.name, arrow_type(field.type)) for field in kind.fields]
            )
        case _:
            assert_never(kind)


def arrow_schema(columns: Iterable[tuple[str, str]]) -> pa.Schema:
    """Returns the Arrow schema for columns with Spark's types. All columns may be null."""
    return pa.schema(
        [pa.field(name, _RAW.get(kind) or arrow_type(parse_type(kind))) for name, kind in columns]
    )


def ends_of(lengths: Numbers) -> Ends:
    """Returns the offsets buffer of an Arrow array from the lengths of the array's values.

    The buffer contains 0, and then the end of each value in bytes. The lengths are in bytes; their
    sum must be less than 2 GiB. A length of -1 means null, and counts as no bytes.
    """
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=ends[1:])
    return ends


def array_of(kind: pa.DataType, lengths: Numbers, ends: Ends, data: Bytes) -> pa.Array:
    """Creates an Arrow array of texts or bytes. A value whose length is -1 becomes null.

    `ends` is the result of `ends_of` for these lengths, and `data` contains the bytes of all
    values.
    """
    null = lengths < 0
    return pa.Array.from_buffers(
        kind,
        len(lengths),
        [
            pa.array(~null).buffers()[1] if null.any() else None,
            pa.py_buffer(ends),
            pa.py_buffer(data),
        ],
    )
