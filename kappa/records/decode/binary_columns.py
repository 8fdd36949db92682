"""Creates Arrow columns from the values that compiled loops have found in binary records.

A value is an integer, a boolean, the bits of a double or float, a time or date in the unit of its
type, or the position where a text begins. The length of a text is its number of bytes. The length
-1 means null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kappa.declare.topic import Topic
from kappa.declare.values.arrow import Bytes, Numbers, array_of, arrow_type, ends_of
from kappa.declare.values.columns import Column, Decimal, Scalar
from kappa.declare.values.value import FIRST_MICROS, LAST_MICROS
from kappa.records.decode.find_loops import gather, mark_texts

Marks = npt.NDArray[np.bool_]
_DAY_MICROS = 86_400_000_000


def keep_fitting(
    column: Column, data: Bytes, values: Numbers, lengths: Numbers, sure: Marks, *, scale: int = 1
) -> None:
    """Sets `sure` to False for records whose value is not valid for the column.

    `values` and `lengths` contain one value per record. `scale` is the number of microseconds in
    one unit of a timestamp.
    """
    null = lengths < 0
    if not column.nullable:
        sure &= ~null
    match column.type:
        case Scalar("string"):
            mark_texts(data, values, lengths, sure)
        case Scalar("double"):
            sure &= null | np.isfinite(values.view(np.float64))
        case Scalar("float"):
            sure &= null | np.isfinite(_floats(values))
        case Scalar("timestamp"):
            first, last = -(-FIRST_MICROS // scale), LAST_MICROS // scale
            sure &= null | ((values >= first) & (values <= last))
        case Scalar("date"):
            first, last = FIRST_MICROS // _DAY_MICROS, LAST_MICROS // _DAY_MICROS
            sure &= null | ((values >= first) & (values <= last))
        case Scalar("int"):
            sure &= null | ((values >= -(1 << 31)) & (values < 1 << 31))


def column_of(
    column: Column, data: Bytes, values: Numbers, lengths: Numbers, *, scale: int = 1
) -> pa.Array:
    """Returns an Arrow array of the values, which must be valid for the column.

    `scale` is the number of microseconds in one unit of a timestamp.
    """
    null = lengths < 0
    kind = arrow_type(column.type)
    match column.type:
        case Scalar("string"):
            ends = ends_of(lengths)
            texts = np.empty(ends[-1], np.uint8)
            gather(data, values, ends, texts)
            return array_of(kind, lengths, ends, texts)
        case Scalar("boolean"):
            return pa.array(values == 1, mask=null)
        case Scalar("double"):
            return pa.array(values.view(np.float64), mask=null)
        case Scalar("float"):
            return pa.array(_floats(values), mask=null)
        case Scalar("timestamp"):
            return pa.array(values * scale, mask=null).cast(kind)
        case Scalar("date"):
            return pa.array(values.astype(np.int32), mask=null).cast(kind)
        case Decimal():
            return pa.array(values.view(np.uint64), mask=null).cast(kind)
        case _:
            return pa.array(values, mask=null).cast(kind)


def keyed_rows(
    topic: Topic, columns: Mapping[str, pa.Array], keys: pa.Array, schema: pa.Schema
) -> tuple[pa.RecordBatch, Marks]:
    """Returns the rows of a topic's records, and a mask of the rows that match their keys.

    A row matches if its key column equals the Kafka key of its record. `keys` contains the Kafka
    keys of the records. Columns that are missing in `columns` are null.
    """
    arrays = [
        columns[each.name] if each.name in columns else pa.nulls(len(keys), each.type)
        for each in schema
    ]
    rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if topic.key is None:
        return rows, np.ones(len(keys), np.bool_)
    same = pc.equal(columns[topic.key].cast(pa.string()).cast(pa.binary()), keys)
    marks: Any = same.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return rows, marks


def _floats(values: Numbers) -> npt.NDArray[np.float32]:
    return values.astype(np.uint32).view(np.float32)
