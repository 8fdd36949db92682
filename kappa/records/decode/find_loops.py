"""Compiled loops (Numba) that search the bytes of JSON objects for values.

This file contains the compiled loops and all constants that they use, because kappa/base/loops.py
identifies the cached machine code only by the digest of this file.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt
from numba import types

from kappa.base.loops import compiled
from kappa.declare.values.arrow import Bytes, Ends, Numbers


class Spelling(IntEnum):
    """The expected form of a value in a record, unless the value is `null`."""

    # Without escapes or control characters.
    TEXT = 0
    NUMBER = 1
    # Without a sign that means nothing.
    INTEGER = 2
    BOOLEAN = 3


# Arrow's own memory is not written to.
_TEXTS = tuple(
    types.Array(kind, 1, "C", readonly=True) for kind in (types.int32, types.uint8, types.boolean)
)
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _SMALL_E, _LARGE_E, _QUOTE, _BACKSLASH, _SPACE = (
    ord(sign) for sign in '-+.09eE"\\ '
)
_NULL, _TRUE, _FALSE = (np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false"))
# A signed index could count from the end, and would be checked for that.
_index = np.uint64
_INT64_MIN = -(1 << 63)
_TENTH = -((1 << 63) // 10)


@compiled(types.void(_TEXTS[1], types.int64[::1], types.int32[::1], types.uint8[::1]))
def gather(data: Bytes, starts: Numbers, ends: Ends, into: Bytes) -> None:
    """Copies pieces of `data` into `into`, one after the other without gaps.

    Each piece begins at one of `starts`. `ends` contains the end of each piece in `into`, after a
    leading 0.
    """
    for place in range(len(starts)):
        into[ends[place] : ends[place + 1]] = data[
            starts[place] : starts[place] + ends[place + 1] - ends[place]
        ]


@compiled(types.boolean(_TEXTS[1], types.int64, types.int64))
def _is_utf8(data: Bytes, at: int, end: int) -> bool:
    """Returns True if the bytes from `at` to `end` are valid UTF-8 (RFC 3629, section 4)."""
    all_bits = np.uint8(0)
    for place in range(at, end):
        all_bits |= data[_index(place)]
    if all_bits < 0x80:
        return True
    while at < end:
        byte = data[_index(at)]
        if byte < 0x80:
            at += 1
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        more = 1 if byte < 0xE0 else (2 if byte < 0xF0 else 3)
        low = 0xA0 if byte == 0xE0 else (0x90 if byte == 0xF0 else 0x80)
        high = 0x9F if byte == 0xED else (0x8F if byte == 0xF4 else 0xBF)
        if more >= end - at or not low <= data[_index(at + 1)] <= high:
            return False
        for place in range(at + 2, at + more + 1):
            if data[_index(place)] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@compiled(types.void(_TEXTS[1], types.int64[::1], types.int64[::1], types.boolean[::1]))
def mark_texts(data: Bytes, starts: Numbers, lengths: Numbers, sure: npt.NDArray[np.bool_]) -> None:
    """Sets `sure` to False for each record whose piece of `data` is not valid UTF-8.

    `starts` and `lengths` contain the start and the length of each record's piece. A length of -1
    means null, which is valid.
    """
    for place in range(len(starts)):
        if sure[place] and lengths[place] > 0:
            sure[place] = _is_utf8(data, starts[place], starts[place] + lengths[place])


@compiled(types.boolean(_TEXTS[1], types.int64, types.int64, _TEXTS[1], types.int64, types.int64))
def _same(data: Bytes, at: int, end: int, text: Bytes, begins: int, ends: int) -> bool:
    """Returns True if the data contains, at `at` and before `end`, a piece of `text`.

    The piece consists of the bytes of `text` from `begins` to `ends`.
    """
    if ends - begins > end - at:
        return False
    place = 0
    while place < ends - begins and data[_index(at + place)] == text[_index(begins + place)]:
        place += 1
    return place == ends - begins


@compiled(types.int64(_TEXTS[1], types.int64, types.int64))
def _behind_digits(data: Bytes, at: int, end: int) -> int:
    while at < end and _ZERO <= data[_index(at)] <= _NINE:
        at += 1
    return at


@compiled(types.int64(_TEXTS[1], types.int64, types.int64))
def _behind_text(data: Bytes, at: int, end: int) -> int:
    """Returns the position after a text in quotes that begins at `at`.

    Returns -1 if no text begins there, or if the text has escapes or control characters.
    """
    if at >= end or data[_index(at)] != _QUOTE:
        return -1
    at += 1
    while at < end and data[_index(at)] != _QUOTE:
        if data[_index(at)] == _BACKSLASH or data[_index(at)] < _SPACE:
            return -1
        at += 1
    if at < end:
        return at + 1
    return -1


@compiled(types.int64(_TEXTS[1], types.int64, types.int64, types.int64, types.int64, types.int64))
def _behind_number(data: Bytes, at: int, end: int, whole: int, fraction: int, exponent: int) -> int:
    """Returns the position after a number (RFC 8259, section 6) that begins at `at`.

    Returns -1 if no number begins there, or if the number has more than `whole` digits before the
    point, `fraction` digits after the point, or `exponent` digits in the exponent.
    """
    if at < end and data[_index(at)] == _MINUS:
        at += 1
    digits = _behind_digits(data, at, end) - at
    # A lone zero counts as no digit.
    if (
        digits == 0
        or (data[_index(at)] == _ZERO and digits > 1)
        or (data[_index(at)] != _ZERO and digits > whole)
    ):
        return -1
    at += digits
    if at < end and data[_index(at)] == _POINT:
        digits = _behind_digits(data, at + 1, end) - at - 1
        if digits == 0 or digits > fraction:
            return -1
        at += 1 + digits
    if at < end and (data[_index(at)] == _SMALL_E or data[_index(at)] == _LARGE_E):
        at += 1
        if at < end and (data[_index(at)] == _MINUS or data[_index(at)] == _PLUS):
            at += 1
        digits = _behind_digits(data, at, end) - at
        if digits == 0 or digits > exponent:
            return -1
        at += digits
    return at


@compiled(
    types.UniTuple(types.int64, 2)(_TEXTS[1], types.int64, types.int64, types.int64, types.int64)
)
def _integer(data: Bytes, at: int, end: int, low: int, high: int) -> tuple[np.int64, int]:
    """Returns the integer in canonical form that begins at `at`, and the position after it.

    The position is -1 if no such integer begins there, or if it is not between `low` and `high`.
    """
    negative = at < end and data[_index(at)] == _MINUS
    begins = at + 1 if negative else at
    behind = _behind_digits(data, begins, end)
    # Only zero begins with a zero, and zero has no sign.
    if (
        behind == begins
        or behind - begins > 19
        or (data[_index(begins)] == _ZERO and (behind - begins > 1 or negative))
    ):
        return np.int64(0), -1
    # The value is kept negative: the type has one more negative number than positive numbers.
    value = np.int64(0)
    for place in range(begins, behind):
        digit = np.int64(data[_index(place)]) - _ZERO
        # With this nineteenth digit the value would be less than the least number.
        if place - begins == 18 and (value < _TENTH or (value == _TENTH and digit > 8)):
            return np.int64(0), -1
        value = value * 10 - digit
    if not negative:
        if value == _INT64_MIN:
            return np.int64(0), -1
        value = -value
    return (value, behind) if low <= value <= high else (np.int64(0), -1)


@compiled(
    types.void(
        *_TEXTS,
        types.int64[::1],
        _TEXTS[1],
        types.int64[::1],
        types.int64[:, ::1],
        *_TEXTS,
        types.int64,
        types.boolean[::1],
        types.int64[:, ::1],
        types.int64[:, ::1],
    ),
)
def find_all(
    record_ends: Ends,
    data: Bytes,
    valid: npt.NDArray[np.bool_],
    places: Numbers,
    literals: Bytes,
    literal_ends: Numbers,
    spec: Numbers,
    key_ends: Ends,
    key_data: Bytes,
    key_valid: npt.NDArray[np.bool_],
    key: int,
    sure: npt.NDArray[np.bool_],
    values: Numbers,
    lengths: Numbers,
) -> None:
    """Finds the values of a layout in the records at the indexes `places` of a batch.

    `literals` contains the texts around the values, and `spec` the expected form of each value. The
    function fills `values` and `lengths`, and sets `sure` to True for each record that has the
    layout. If `key` is not -1, the value with the number `key` must also equal the record's Kafka
    key.
    """
    for number in range(len(places)):
        record = places[number]
        at, end = int(record_ends[record]), int(record_ends[record + 1])
        found = valid[record]
        text = 0
        for field in range(len(spec)):
            if not found or not _same(data, at, end, literals, text, literal_ends[field]):
                found = False
                break
            at += int(literal_ends[field]) - text
            text = int(literal_ends[field])
            begins, ends = at, -1
            spelling, nullable, low, high = (
                spec[field, 0],
                spec[field, 1],
                spec[field, 2],
                spec[field, 3],
            )
            if _same(data, at, end, _NULL, 0, 4):
                lengths[field, number] = -1
                ends = at + 4 if nullable else -1
            elif spelling == Spelling.TEXT:
                ends = _behind_text(data, at, end)
                begins = at + 1
                values[field, number] = begins
                lengths[field, number] = ends - 1 - begins
            elif spelling == Spelling.NUMBER:
                ends = _behind_number(data, at, end, low, high, spec[field, 4])
                values[field, number] = begins
                lengths[field, number] = ends - begins
            elif spelling == Spelling.INTEGER:
                values[field, number], ends = _integer(data, at, end, low, high)
                lengths[field, number] = ends - begins
            elif _same(data, at, end, _TRUE, 0, 4):
                values[field, number], ends = 1, at + 4
            elif _same(data, at, end, _FALSE, 0, 5):
                values[field, number], ends = 0, at + 5
            if ends < 0:
                found = False
                break
            if field == key:
                size = lengths[field, number]
                found = (
                    size >= 0
                    and key_valid[record]
                    and key_ends[record + 1] - key_ends[record] == size
                    and _same(
                        data,
                        begins,
                        begins + size,
                        key_data,
                        key_ends[record],
                        key_ends[record + 1],
                    )
                )
            at = ends
        sure[number] = (
            found
            and at + literal_ends[len(spec)] - text == end
            and _same(data, at, end, literals, text, literal_ends[len(spec)])
        )
