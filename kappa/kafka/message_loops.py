"""Compiled loops over messages of librdkafka, for weight and for copies of contents.

kappa/base/loops.py compiles the loops.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import binding
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from kappa.base.loops import compiled
from kappa.declare.values.arrow import Bytes, Numbers
from kappa.kafka.librdkafka import RD

# Compiled code finds the functions by these names, even if another process compiled the code.
for _name in ("message_timestamp", "message_headers", "message_destroy"):
    binding.add_symbol(
        f"kappa_{_name}", ctypes.cast(getattr(RD, f"rd_kafka_{_name}"), ctypes.c_void_p).value
    )
_timestamp = types.ExternalFunction("kappa_message_timestamp", types.int64(types.intp, types.intp))
_headers = types.ExternalFunction("kappa_message_headers", types.int32(types.intp, types.intp))
_destroy = types.ExternalFunction("kappa_message_destroy", types.void(types.intp))
# `rd_kafka_message_t`, which is part of the interface, in words of eight bytes. The lower half of
# the first word is the error.
_VALUE, _VALUE_BYTES, _KEY, _KEY_BYTES, OFFSET, _WORDS = 3, 4, 5, 6, 7, 8


@intrinsic
def _pointer(_context: Any, _address: Any) -> Any:
    return types.voidptr(types.intp), lambda _c, builder, _s, arguments: builder.inttoptr(
        arguments[0], cgutils.voidptr_t
    )


@compiled("UniTuple(int64, 3)(int64[::1], int64, int64, int64)")
def weigh(messages: Numbers, first: int, count: int, most: int) -> tuple[int, int, int]:
    """Returns the place up to which messages have at most `most` bytes.

    The first message is always taken. Also returns the number of bytes of the keys and of the
    values. The texts of errors count as values.
    """
    keys = values = 0
    for place in range(first, count):
        message = carray(_pointer(messages[place]), (_WORDS,), np.int64)
        if place > first and keys + values + message[_KEY_BYTES] + message[_VALUE_BYTES] > most:
            return place, keys, values
        keys += message[_KEY_BYTES]
        values += message[_VALUE_BYTES]
    return count, keys, values


@compiled(
    "UniTuple(int64, 5)(int64[::1], int64, int64, int64, int64[:, ::1], uint8[::1], uint8[::1], "
    "int64[::1])"
)
def take(
    messages: Numbers,
    first: int,
    last: int,
    end: int,
    numbers: Numbers,
    keys: Bytes,
    values: Bytes,
    scratch: Numbers,
) -> tuple[int, int, int, int, int]:
    """Copies the numbers and all the bytes of the records before `end`.

    The numbers of each record are the offset, the time, and the bytes of key and of value (-1:
    null). The last number is the record's place if the record has headers (-1: none).

    Returns the number of these records, the bytes of the keys, and the bytes of the values. Then
    follow the number of messages that are not records, and the offset after the last record.
    """
    taken = key_bytes = value_bytes = others = 0
    seen = -1
    for place in range(first, last):
        message = carray(_pointer(messages[place]), (_WORDS,), np.int64)
        if carray(_pointer(messages[place]), (1,), np.int32)[0] != 0:
            others += 1
            continue
        seen = message[OFFSET] + 1
        if seen > end:
            continue
        numbers[0, taken] = message[OFFSET]
        numbers[1, taken] = _timestamp(messages[place], 0)
        numbers[2, taken] = message[_KEY_BYTES] if message[_KEY] != 0 else -1
        numbers[3, taken] = message[_VALUE_BYTES] if message[_VALUE] != 0 else -1
        numbers[4, taken] = place if _headers(messages[place], scratch.ctypes.data) == 0 else -1
        if numbers[2, taken] > 0:
            keys[key_bytes : key_bytes + message[_KEY_BYTES]] = carray(
                _pointer(message[_KEY]), (message[_KEY_BYTES],), np.uint8
            )
            key_bytes += message[_KEY_BYTES]
        if numbers[3, taken] > 0:
            values[value_bytes : value_bytes + message[_VALUE_BYTES]] = carray(
                _pointer(message[_VALUE]), (message[_VALUE_BYTES],), np.uint8
            )
            value_bytes += message[_VALUE_BYTES]
        taken += 1
    return taken, key_bytes, value_bytes, others, seen


@compiled("void(int64[::1], int64)")
def let_go(messages: Numbers, count: int) -> None:
    """Gives messages back to librdkafka."""
    for place in range(count):
        _destroy(messages[place])
