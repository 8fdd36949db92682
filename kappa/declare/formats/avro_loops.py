"""Loops that go through Avro's records field by field, compiled by Numba.

All compiled code for Avro, and every constant in that code, is in this single file: the kept
machine code is known by this file's digest alone (kappa/base/loops.py).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import types

from kappa.base.loops import compiled
from kappa.declare.values.arrow import Bytes, Ends, Numbers


class Coding(IntEnum):
    """The binary form of a field's value."""

    # A length, then bytes.
    TEXT = 0
    BOOLEAN = 1
    INTEGER = 2
    # Eight or four bytes.
    DOUBLE = 3
    FLOAT = 4


# Nothing writes to Arrow's own memory.
_READ_ONLY = tuple(
    types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.uint8, types.boolean)
)


@compiled(types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64))
def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns a number of variable length and the place after it; -1 if the number has no end."""
    found = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift <= np.uint64(63):
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return 0, -1
        found |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return int(np.int64(found >> np.uint64(1)) ^ -np.int64(found & np.uint64(1))), at
        shift += np.uint64(7)
    return 0, -1


@compiled(
    types.void(
        _READ_ONLY[0],
        _READ_ONLY[1],
        types.int64[::1],
        types.int64,
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.int64[:, ::1],
        types.boolean[::1],
    )
)
def read_all(
    ends: Ends,
    data: Bytes,
    places: Numbers,
    skipped: int,
    spec: Numbers,
    values: Numbers,
    lengths: Numbers,
    sure: npt.NDArray[np.bool_],
) -> None:
    """Reads the records at these places, each from the `skipped` byte to exactly the end.

    `spec` has each field's coding, and the branch of null or -1. A value is a number, a truth
    value, the bits of a double or float, or the place at which a text begins. The length of null is
    -1. `sure` is True for a record that was read to the end.
    """
    for number in range(len(places)):
        at = int(ends[places[number]]) + skipped
        end = int(ends[places[number] + 1])
        for field in range(len(spec)):
            coding, null = spec[field, 0], spec[field, 1]
            if null >= 0:
                branch, at = _read_varint(data, at, end)
                if at < 0 or branch < 0 or branch > 1:
                    at = -1
                    break
                if branch == null:
                    lengths[field, number] = -1
                    continue
            if coding == Coding.TEXT:
                length, at = _read_varint(data, at, end)
                if at < 0 or length < 0 or length > end - at:
                    at = -1
                    break
                values[field, number] = at
                lengths[field, number] = length
                at += length
            elif coding == Coding.INTEGER:
                values[field, number], at = _read_varint(data, at, end)
                if at < 0:
                    break
            elif coding == Coding.BOOLEAN:
                if at >= end or data[at] > 1:
                    at = -1
                    break
                values[field, number] = data[at]
                at += 1
            else:
                size = 8 if coding == Coding.DOUBLE else 4
                if end - at < size:
                    at = -1
                    break
                bits = np.uint64(0)
                for byte in range(size):
                    bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
                values[field, number] = np.int64(bits)
                at += size
        sure[number] = at == end
