"""Columns as Arrow has them: the types that Spark makes of them and that Delta stores. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

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
    # With a zone: Delta's timestamp is an instant; without a zone it needs a newer writer version.
    "timestamp": pa.timestamp("us", tz="UTC"),
}

HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
# No event has these, but the rejects do.
_RAW = {"binary": pa.binary(), HEADERS: HEADERS_TYPE}


def arrow_type(kind: Type) -> pa.DataType:
    """Returns the Arrow type of one of ours; parts of structs and arrays may be null."""
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
    """Returns the Arrow schema of a birth certificate's columns, each of which may be null."""
    return pa.schema(
        [pa.field(name, _RAW.get(kind) or arrow_type(parse_type(kind))) for name, kind in columns]
    )
