"""Finds the values of flat JSON objects that have a known layout.

A layout consists of the texts around the values, and the expected form of each value. A record has
the layout only if it consists, from the first byte to the last, of these texts and of values in
these forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kappa.declare.values.arrow import Bytes, Ends, Numbers, array_of, ends_of
from kappa.records.decode.find_loops import Spelling, find_all, gather


class Expected(NamedTuple):
    """The expected form of a value.

    An integer must be between `low` and `high`. For a number, `low` is the maximum number of digits
    before the point, `high` the maximum after the point, and `exponent` the maximum in the
    exponent.
    """

    spelling: Spelling
    nullable: bool
    low: int = 0
    high: int = 0
    exponent: int = 0


class Texts(NamedTuple):
    """The buffers of a binary or string array, in the form that compiled code reads."""

    ends: Ends
    data: Bytes
    valid: npt.NDArray[np.bool_]


class Found(NamedTuple):
    """The values that were found, as arrays with a row per value and a column per record.

    `values` contains an integer or a boolean, or the position in the data where a text or number
    begins. `lengths` contains the number of bytes, or -1 for null. `sure` contains one element per
    record, which is True if the record has the layout.
    """

    sure: npt.NDArray[np.bool_]
    values: Numbers
    lengths: Numbers


def texts_of(array: pa.Array) -> Texts:
    """Returns the buffers of an array of binaries or strings, without copying them."""
    _, ends, data = array.buffers()
    found = Texts(
        np.frombuffer(ends, np.int32)[array.offset : array.offset + len(array) + 1]
        if ends
        else np.zeros(len(array) + 1, np.int32),
        np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8),
        array.is_valid().to_numpy(zero_copy_only=False),
    )
    for each in found:
        each.flags.writeable = False
    return found


def find(
    records: Texts,
    places: Numbers,
    between: Sequence[bytes],
    values: Sequence[Expected],
    keys: Texts,
    key: int,
) -> Found:
    """Finds the values of a layout in the records at the indexes `places` of a batch.

    `between` contains the texts before, between and after the values. `values` contains the
    expected form of each value. The value with the number `key` must equal the record's Kafka key;
    if `key` is -1, no value is compared with the Kafka key.
    """
    literals = np.frombuffer(b"".join(between), np.uint8)
    ends = np.cumsum([len(text) for text in between], dtype=np.int64)
    spec = np.array([tuple(map(int, each)) for each in values], np.int64).reshape(-1, 5)
    found = Found(
        np.zeros(len(places), np.bool_),
        np.zeros((len(values), len(places)), np.int64),
        np.zeros((len(values), len(places)), np.int64),
    )
    find_all(*records, places, literals, ends, spec, *keys, key, *found)
    return found


def strings(records: Texts, starts: Numbers, lengths: Numbers) -> pa.StringArray:
    """Copies pieces of the records into a string array. The pieces must be valid UTF-8.

    `starts` and `lengths` contain the start and the length of each piece. A piece with the length
    -1 becomes null.
    """
    ends = ends_of(lengths)
    data = np.empty(ends[-1], np.uint8)
    gather(records.data, starts, ends, data)
    return array_of(pa.string(), lengths, ends, data)
