"""A reader of a long range of a partition into Arrow, by librdkafka's own interface.

No message becomes a Python object. Objects, and the calls for their contents, cost three times the
work of librdkafka itself (docs/performance.md).
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
from confluent_kafka import KafkaError, KafkaException

from kappa.declare.values.arrow import HEADERS_TYPE, Bytes, Numbers, array_of, ends_of
from kappa.kafka.answers import PATIENCE_SECONDS, Options
from kappa.kafka.consumers import BOUNDED, EXACT, Refuse, check_error, unreachable
from kappa.kafka.librdkafka import RD, headers_of, new_consumer
from kappa.kafka.message_loops import OFFSET, let_go, take, weigh

# The limits of a batch, and the number of messages in one request.
_BATCH_RECORDS = 50_000
_BATCH_BYTES = 64 << 20
_AT_ONCE = 5_000
_WAIT_MS = 200


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of a partition as they are in the log, column by column.

    `headers` are null for a record without headers.
    """

    offsets: Numbers
    timestamps_ms: Numbers
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray


class BulkReader:
    """A consumer that reads a single range."""

    def __init__(
        self,
        options: Options,
        refuse: Refuse,
        topic: str,
        partition: int,
        start: int,
    ) -> None:
        """Takes librdkafka's `options`; `refuse` raises the error that a broker's error means.

        Raises KafkaException if the consumer cannot be made.
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
        """Yields the committed records up to an offset, in large batches.

        Batches are bounded in records and in bytes (a single record may be larger). Raises Broken
        if the log has lost the range's beginning, and Unreachable if no records arrive.
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
        """Takes the arrived messages, or waits a little. Returns False if there is no message.

        Only the first message is waited for: a request for many messages makes librdkafka wait for
        that many.
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
        """Returns the offset up to which a message shows that its partition was read.

        Raises the error that the message means.
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
    """The copies of some messages (`take`), with headers by place.

    The messages show that the partition was read up to the offset `seen`.
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
