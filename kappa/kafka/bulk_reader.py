"""Reads a long range of a partition into Arrow, with librdkafka's C interface.

No message becomes a Python object: creating objects and reading their attributes would take three
times as long as librdkafka's own work (measured in docs/performance.md). This file contains all
compiled loops over messages and all constants in them, because kappa/base/loops.py identifies the
cached machine code only by the digest of this file.

Source:
https://docs.confluent.io/platform/current/clients/librdkafka/html/rdkafka_8h.html
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, cimpl
from llvmlite import binding
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from kappa.base.loops import compiled
from kappa.declare.values.arrow import HEADERS_TYPE, Bytes, Numbers, array_of, ends_of
from kappa.kafka.broker_requests import PATIENCE_SECONDS, Options
from kappa.kafka.consumers import BOUNDED, EXACT, Refuse, check_error, unreachable

_CONSUMER, _CONF_OK = 1, 0
_REASON_BYTES = 512
_FIRST = {"debug", "plugin.library.paths"}


def _librdkafka() -> ctypes.CDLL:
    library = ctypes.CDLL(cimpl.__file__)
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    for name, answer, arguments in (
        ("conf_new", pointer, ()),
        ("conf_set", number, (pointer, text, text, text, size)),
        ("conf_destroy", None, (pointer,)),
        ("new", pointer, (number, pointer, text, size)),
        ("last_error", number, ()),
        ("poll_set_consumer", number, (pointer,)),
        ("queue_get_consumer", pointer, (pointer,)),
        ("queue_destroy", None, (pointer,)),
        ("topic_partition_list_new", pointer, (number,)),
        ("topic_partition_list_add", pointer, (pointer, text, ctypes.c_int32)),
        (
            "topic_partition_list_set_offset",
            number,
            (pointer, text, ctypes.c_int32, ctypes.c_int64),
        ),
        ("topic_partition_list_destroy", None, (pointer,)),
        ("assign", number, (pointer, pointer)),
        ("consume_batch_queue", ctypes.c_ssize_t, (pointer, number, pointer, size)),
        ("message_headers", number, (pointer, pointer)),
        ("header_get_all", number, (pointer, size, pointer, pointer, pointer)),
        ("message_errstr", text, (pointer,)),
        ("consumer_close", number, (pointer,)),
        ("destroy", None, (pointer,)),
    ):
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = answer, arguments
    return library


RD = _librdkafka()


def new_consumer(options: Options) -> int:
    """Creates a consumer in librdkafka, and returns the pointer to it.

    Raises KafkaException if librdkafka refuses an option.
    """
    reason = ctypes.create_string_buffer(_REASON_BYTES)
    conf = RD.rd_kafka_conf_new()
    # A plugin may know the options that follow.
    for name, value in sorted(options.items(), key=lambda option: option[0] not in _FIRST):
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if (
            RD.rd_kafka_conf_set(conf, name.encode(), text.encode(), reason, _REASON_BYTES)
            != _CONF_OK
        ):
            RD.rd_kafka_conf_destroy(conf)
            raise KafkaException(
                KafkaError(KafkaError._INVALID_ARG, reason.value.decode(errors="replace"))
            )
    handle: int | None = RD.rd_kafka_new(_CONSUMER, conf, reason, _REASON_BYTES)
    if handle is None:
        RD.rd_kafka_conf_destroy(conf)
        raise KafkaException(
            KafkaError(RD.rd_kafka_last_error(), reason.value.decode(errors="replace"))
        )
    return handle


def headers_of(message: int) -> list[dict[str, Any]]:
    """Returns copies of the names and values of a message's headers, in their order.

    `message` is the pointer to the message.
    """
    headers, name, value, size = (
        ctypes.c_void_p(),
        ctypes.c_char_p(),
        ctypes.c_void_p(),
        ctypes.c_size_t(),
    )
    RD.rd_kafka_message_headers(message, ctypes.byref(headers))
    found: list[dict[str, Any]] = []
    while (
        RD.rd_kafka_header_get_all(
            headers, len(found), ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
        )
        == 0
    ):
        found.append(
            {
                "key": (name.value or b"").decode(errors="replace"),
                "value": None if value.value is None else ctypes.string_at(value.value, size.value),
            }
        )
    return found


# The limits of a batch, and the number of messages in one request.
_BATCH_RECORDS = 50_000
_BATCH_BYTES = 64 << 20
_AT_ONCE = 5_000
_WAIT_MS = 200


@dataclass(frozen=True, slots=True)
class Columns:
    """Unchanged records of a partition, as arrays with one element per record.

    An element of `headers` is null if the record has no headers.
    """

    offsets: Numbers
    timestamps_ms: Numbers
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray


class BulkReader:
    """A consumer that reads one range of a partition."""

    def __init__(
        self,
        options: Options,
        refuse: Refuse,
        topic: str,
        partition: int,
        start: int,
    ) -> None:
        """Creates the consumer, which begins to read at the offset `start`.

        The function `refuse` converts a broker's error to Kappa's error, and raises it. Raises
        KafkaException if librdkafka refuses an option.
        """
        self._refuse = refuse
        self._topic = topic
        self._partition = partition
        self._seen = start
        self._messages = np.zeros(_AT_ONCE, np.int64)
        # The messages that have arrived and are in no batch yet.
        self._pieces: deque[_Piece] = deque()
        self._queue: int | None = None
        self._handle: int | None = new_consumer({**BOUNDED, **options, **EXACT})
        try:
            RD.rd_kafka_poll_set_consumer(self._handle)
            self._queue = RD.rd_kafka_queue_get_consumer(self._handle)
            self._assign(start)
        except BaseException:
            self.close()
            raise

    def read(self, end: int) -> Iterator[Columns]:
        """Yields the committed records up to the offset `end`, in large batches.

        The number of records and bytes of a batch is limited, but a single record may exceed the
        limit for bytes. Raises Broken if the partition's log no longer contains the beginning of
        the range, and Unreachable if no records arrive.
        """
        while self._seen < end:
            pieces: list[_Piece] = []
            records = size = 0
            deadline = time.monotonic() + PATIENCE_SECONDS
            while self._seen < end and records < _BATCH_RECORDS and size < _BATCH_BYTES:
                if not self._pieces and not self._receive(end):
                    if time.monotonic() > deadline:
                        raise unreachable([(self._topic, self._partition)], end)
                    continue
                piece = self._pieces.popleft()
                pieces.append(piece)
                records += piece.count
                size += piece.bytes
                self._seen = max(self._seen, piece.seen)
                deadline = time.monotonic() + PATIENCE_SECONDS
            if records:
                yield _joined_columns(pieces)

    def close(self) -> None:
        """Closes the consumer."""
        handle, queue = self._handle, self._queue
        self._handle = self._queue = None
        if handle is not None:
            RD.rd_kafka_consumer_close(handle)
            if queue is not None:
                RD.rd_kafka_queue_destroy(queue)
            RD.rd_kafka_destroy(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _assign(self, start: int) -> None:
        topic = self._topic.encode()
        parts = RD.rd_kafka_topic_partition_list_new(1)
        try:
            RD.rd_kafka_topic_partition_list_add(parts, topic, self._partition)
            code = RD.rd_kafka_topic_partition_list_set_offset(
                parts, topic, self._partition, start
            ) or RD.rd_kafka_assign(self._handle, parts)
        finally:
            RD.rd_kafka_topic_partition_list_destroy(parts)
        if code:
            self._refuse(
                KafkaException(KafkaError(code)),
                f"{self._topic} partition {self._partition} could not be read from offset {start}",
            )

    def _receive(self, end: int) -> bool:
        """Copies the messages that have arrived, or waits a short time for one message.

        Returns False if there is no message. If no message has arrived, the method requests only
        one message, because librdkafka waits until it has as many messages as requested.
        """
        messages, count = self._messages, 0
        try:
            count = self._consume(0, _AT_ONCE) or self._consume(_WAIT_MS, 1)
            first = 0
            while first < count:
                last, keys, values = weigh(messages, first, count, _BATCH_BYTES)
                self._pieces.append(
                    self._piece(
                        first, last, end, np.empty(keys, np.uint8), np.empty(values, np.uint8)
                    )
                )
                first = last
            return count > 0
        finally:
            let_go(messages, count)

    def _consume(self, wait_ms: int, at_most: int) -> int:
        return max(
            0,
            int(
                RD.rd_kafka_consume_batch_queue(
                    self._queue, wait_ms, self._messages.ctypes.data, at_most
                )
            ),
        )

    def _piece(self, first: int, last: int, end: int, keys: Bytes, values: Bytes) -> _Piece:
        messages, numbers = self._messages, np.empty((5, last - first), np.int64)
        taken, key_bytes, value_bytes, others, seen = take(
            messages, first, last, end, numbers, keys, values, np.empty(1, np.int64)
        )
        for message in messages[first:last].tolist() if others else ():
            seen = max(seen, self._heeded(message))
        with_headers = np.flatnonzero(numbers[4, :taken] >= 0).tolist()
        headers = {place: headers_of(int(messages[numbers[4, place]])) for place in with_headers}
        return _Piece(numbers[:4, :taken], keys[:key_bytes], values[:value_bytes], headers, seen)

    def _heeded(self, message: int) -> int:
        """Returns -1 if a message is a record.

        If the message reports the end of the partition, returns the offset of the end. Raises
        Kappa's error if the message is any other error.
        """
        code = ctypes.c_int32.from_address(message).value
        if code:
            check_error(
                KafkaError(code, RD.rd_kafka_message_errstr(message).decode(errors="replace")),
                (self._topic, self._partition),
                self._refuse,
            )
        # If the end is in a hole, only the error shows that the reader has reached the end.
        return ctypes.c_int64.from_address(message + 8 * OFFSET).value if code else -1


@dataclass(frozen=True, slots=True)
class _Piece:
    """Copies of some records in the form that `take` writes, and the headers of the records.

    `headers` maps the index of a record to its headers. The messages show that the partition was
    read up to the offset `seen`.
    """

    numbers: Numbers
    keys: Bytes
    values: Bytes
    headers: Mapping[int, list[dict[str, Any]]]
    seen: int

    @property
    def count(self) -> int:
        return int(self.numbers.shape[1])

    @property
    def bytes(self) -> int:
        return (
            len(self.keys)
            + len(self.values)
            + sum(
                len(header["key"]) + len(header["value"] or b"")
                for each in self.headers.values()
                for header in each
            )
        )


def _joined_columns(pieces: list[_Piece]) -> Columns:
    numbers = np.concatenate([piece.numbers for piece in pieces], axis=1)
    headers: list[Any] = (
        [piece.headers.get(place) for piece in pieces for place in range(piece.count)]
        if any(piece.headers for piece in pieces)
        else []
    )
    return Columns(
        offsets=numbers[0],
        timestamps_ms=numbers[1],
        keys=array_of(
            pa.binary(),
            numbers[2],
            ends_of(numbers[2]),
            np.concatenate([piece.keys for piece in pieces]),
        ),
        values=array_of(
            pa.binary(),
            numbers[3],
            ends_of(numbers[3]),
            np.concatenate([piece.values for piece in pieces]),
        ),
        headers=pa.array(headers, HEADERS_TYPE)
        if headers
        else pa.nulls(numbers.shape[1], HEADERS_TYPE),
    )


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
    """Returns the end of the longest run of messages that together have at most `most` bytes.

    The run begins with the message at the index `first`, which is included even if it alone is
    larger. The second and third values are the number of bytes of the run's keys, and of its
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
    """Copies the numbers, keys and values of the records before the offset `end`.

    `numbers` has five rows: the offset, the time, the size of the key, the size of the value, and
    the index of the message if the record has headers, otherwise -1. The size of null is -1.

    Returns five values: the number of copied records, the size of their keys, the size of their
    values, the number of messages that are not records, and the offset after the last record.
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
    """Destroys the first `count` of the messages, so that librdkafka frees their memory."""
    for place in range(count):
        _destroy(messages[place])
