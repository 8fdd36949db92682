"""Loops that go through Protobuf's messages field by field, compiled by Numba.

All compiled code for Protobuf, and every constant in that code, is in this single file: the kept
machine code is known by this file's digest alone (kappa/base/loops.py).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import types

from kappa.base.loops import compiled
from kappa.declare.values.arrow import Bytes, Ends, Numbers


class Shape(IntEnum):
    """The binary form of a field's value: a wire type, or a message with a known form."""

    VARINT = 0
    # Eight bytes.
    FIXED64 = 1
    # A length, then bytes.
    BYTES = 2
    # A google.protobuf.Timestamp.
    MOMENT = 3
    # Four bytes.
    FIXED32 = 5
    # The other reader reads a record that has such a field.
    OTHER = 8


# Nothing writes to Arrow's own memory.
_READ_ONLY = tuple(types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.uint8))
_TAG_BYTES, _LENGTH_BYTES, _NUMBER_BYTES = 5, 5, 10
_LAST_TAG = (1 << 32) - 1
_LAST_LENGTH = (1 << 31) - 1
# The years 1 to 9999.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_SECONDS_TAG, _NANOS_TAG = 8, 16


@compiled(
    types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_varint(data: Bytes, at: int, end: int, most: int) -> tuple[int, int]:
    """Returns a number of variable length and the place after the number.

    The place is -1 if the number does not end within `most` bytes, or is longer than necessary.
    """
    found = np.uint64(0)
    for place in range(most):
        if at >= end:
            return 0, -1
        byte = np.uint64(data[at])
        at += 1
        if place == _NUMBER_BYTES - 1 and byte > np.uint64(1):
            return 0, -1
        found |= (byte & np.uint64(127)) << np.uint64(7 * place)
        if byte < np.uint64(128):
            return int(np.int64(found)), (at if byte or not place else -1)
    return 0, -1


@compiled(
    types.UniTuple(types.int64, 3)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_value(data: Bytes, at: int, end: int, shape: int) -> tuple[int, int, int]:
    """Returns a value, the length of bytes, and the place after it, or -1 for no value."""
    if shape == Shape.VARINT:
        found, at = _read_varint(data, at, end, _NUMBER_BYTES)
        return found, 0, at
    if shape == Shape.BYTES:
        length, at = _read_varint(data, at, end, _LENGTH_BYTES)
        if at < 0 or length > _LAST_LENGTH or length > end - at:
            return 0, 0, -1
        return at, length, at + length
    if shape == Shape.FIXED64 or shape == Shape.FIXED32:  # noqa: PLR1714  # Numba has no sets
        size = 8 if shape == Shape.FIXED64 else 4
        if end - at < size:
            return 0, 0, -1
        bits = np.uint64(0)
        for byte in range(size):
            bits |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        return int(np.int64(bits)), 0, at + size
    return 0, 0, -1


@compiled(types.UniTuple(types.int64, 2)(_READ_ONLY[1], types.int64, types.int64))
def _read_timestamp(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the microseconds of a Timestamp and the end, or -1 if the bytes are not plain."""
    seconds, nanos = np.int64(0), np.int64(0)
    last = 0
    while at < end:
        tag = data[at]
        found, at = _read_varint(data, at + 1, end, _NUMBER_BYTES)
        if at < 0 or tag <= last:
            return 0, -1
        if tag == _SECONDS_TAG:
            seconds = np.int64(found)
        elif tag == _NANOS_TAG:
            nanos = np.int64(found)
        else:
            return 0, -1
        last = tag
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND or not 0 <= nanos < 1_000_000_000:
        return 0, -1
    return int(seconds * 1_000_000 + nanos // 1000), end


@compiled(
    types.UniTuple(types.int64, 3)(_READ_ONLY[1], types.int64, types.int64, types.int64),
)
def _read_wrapped(data: Bytes, at: int, end: int, shape: int) -> tuple[int, int, int]:
    """Returns the value of a wrapper, as `_value` does; an empty wrapper has zero, or no text."""
    if at == end:
        return at if shape == Shape.BYTES else 0, 0, end
    if data[at] != 8 + shape:
        return 0, 0, -1
    found, length, behind = _read_value(data, at + 1, end, shape)
    return found, length, (behind if behind == end else -1)


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
def read_messages(
    ends: Ends,
    data: Bytes,
    places: Numbers,
    skipped: int,
    spec: Numbers,
    values: Numbers,
    lengths: Numbers,
    sure: npt.NDArray[np.bool_],
) -> None:
    """Reads the messages of the records at these places, each from the `skipped` byte on.

    `spec` has for each field the number, the shape, and whether a wrapper contains the value. A
    value is a number, bits, or the place at which bytes begin. `lengths` must be -1 before the
    call, and stays so for absent fields. Unknown fields are skipped. A record with a field twice is
    not plain. `sure` is True for each plain record that was read to the end.
    """
    count = len(spec)
    for number in range(len(places)):
        at = int(ends[places[number]]) + skipped
        end = int(ends[places[number] + 1])
        field = count - 1
        while 0 <= at < end:
            tag, at = _read_varint(data, at, end, _TAG_BYTES)
            if at < 0 or tag < 8 or tag > _LAST_TAG:
                at = -1
                break
            wire = tag & 7
            # Most writers write fields in order of declaration.
            looked = 0
            while looked < count:
                field = field + 1 if field + 1 < count else 0
                if spec[field, 0] == tag >> 3:
                    break
                looked += 1
            if looked == count:
                _, _, at = _read_value(data, at, end, wire if wire != Shape.MOMENT else Shape.OTHER)
                continue
            shape, wrapped = spec[field, 1], spec[field, 2]
            outer = Shape.BYTES if wrapped or shape == Shape.MOMENT else shape
            if wire != outer or lengths[field, number] >= 0:
                at = -1
                break
            value, length, at = _read_value(data, at, end, outer)
            if at < 0:
                break
            if shape == Shape.MOMENT:
                value, behind = _read_timestamp(data, value, at)
                length = 0
                at = at if behind >= 0 else -1
            elif wrapped:
                value, length, behind = _read_wrapped(data, value, at, shape)
                at = at if behind >= 0 else -1
            values[field, number] = value
            lengths[field, number] = length
        sure[number] = at == end
