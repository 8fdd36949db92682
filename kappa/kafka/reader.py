"""Reads bounded ranges of topics, one range after the other, record by record.

A range that begins at the end of the last range needs no new assignment of partitions. Transactions
and compaction leave gaps in the offsets. So a range is finished in a partition when the reader has
received a record at or after the range's end, or has reached the end of the partition. Records that
arrive before their range is read are stored for that range.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from kappa.kafka.broker_requests import PATIENCE_SECONDS, Options
from kappa.kafka.consumers import BOUNDED, EXACT, Part, Refuse, check_error, unreachable
from kappa.kafka.headers import Headers, HeadersAgain, decoded_headers
from kappa.state.offsets import Offsets
from kappa.state.witness import NO_EPOCH


@dataclass(frozen=True, slots=True)
class Record:
    """An unchanged record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int = NO_EPOCH


# A stand-in for headers that are to be read once more.
_UNREAD: Headers = (("", None),)


class LogReader:
    """A consumer that reads one range after the other."""

    def __init__(
        self,
        options: Options,
        refuse: Refuse,
    ) -> None:
        """Creates the consumer.

        The function `refuse` converts a broker's error to Kappa's error, and raises it.
        """
        self._consumer = Consumer({**BOUNDED, **options, **EXACT})
        self._options = options
        self._refuse = refuse
        # The end of the last range; then the offset up to which each partition was read, and the
        # records that were read too early.
        self._ended: dict[Part, int] | None = None
        self._seen: dict[Part, int] = {}
        self._early: defaultdict[Part, deque[Record]] = defaultdict(deque)

    def read(self, start: Offsets, end: Offsets) -> Iterator[Record]:
        """Yields the committed records from `start` to `end`, in order within each partition.

        The caller must consume all records. Raises Broken if a partition's log no longer contains
        the beginning of the range, and Unreachable if no records arrive.
        """
        wanted = _start_places(end)
        places = {part: start.at(*part) for part in wanted}
        if places != self._ended:
            self._go_to(places)
        # No range can follow a range that is not read to its end.
        self._ended = None
        again: dict[Part, HeadersAgain] = {}
        try:
            for record in self._until(wanted, end):
                yield (
                    record
                    if record.headers is not _UNREAD
                    else self._read_again(record, wanted, again)
                )
        finally:
            for reader in again.values():
                reader.close()
        self._ended = wanted

    def wait_beyond(self, end: Offsets, seconds: float) -> bool:
        """Waits until there are records at or after the offsets `end`.

        Returns True as soon as such a record arrives, and False after `seconds` seconds. Records
        that arrive are stored for the next range. Raises Unreachable if the broker no longer
        answers.
        """
        places = _start_places(end)
        if places != self._ended:
            self._go_to(places)
            self._ended = places
        if self._seen == places:
            message = self._consumer.poll(seconds)
            record = None if message is None else self._record_of(message)
            if record is not None:
                self._early[record.topic, record.partition].append(record)
        return self._seen != places

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _until(self, wanted: dict[Part, int], end: Offsets) -> Iterator[Record]:
        """Yields the records of each partition up to the offset in `wanted`.

        Records that arrive after this offset are stored for the next range.
        """
        for part, last in wanted.items():
            early = self._early[part]
            while early and early[0].offset < last:
                yield early.popleft()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while missing := [part for part, last in wanted.items() if self._seen[part] < last]:
            for message in self._arrived():
                deadline = time.monotonic() + PATIENCE_SECONDS
                record = self._record_of(message)
                if record is None:
                    continue
                part = record.topic, record.partition
                if record.offset < wanted[part]:
                    yield record
                else:
                    self._early[part].append(record)
            if time.monotonic() > deadline:
                raise unreachable(missing, end)

    def _read_again(
        self, record: Record, wanted: dict[Part, int], again: dict[Part, HeadersAgain]
    ) -> Record:
        part = record.topic, record.partition
        if part not in again:
            again[part] = HeadersAgain(self._options, self._refuse, *part, wanted[part])
        return replace(record, headers=again[part].of(record.offset))

    def _go_to(self, places: dict[Part, int]) -> None:
        self._early.clear()
        self._seen = dict(places)
        self._consumer.assign(
            [
                TopicPartition(topic, partition, place)
                for (topic, partition), place in sorted(places.items())
            ]
        )

    def _arrived(self) -> list[Any]:
        # A request for many messages makes librdkafka wait until all of them are there. So the loop
        # takes the arrived messages, and waits only for the first.
        found: list[Any] = self._consumer.consume(num_messages=1_000, timeout=0) or [
            self._consumer.poll(0.2)
        ]
        return [message for message in found if message is not None]

    def _record_of(self, message: Any) -> Record | None:
        if not self._reached(message):
            return None
        headers = decoded_headers(message)
        return Record(
            str(message.topic()),
            int(message.partition()),
            int(message.offset()),
            message.timestamp()[1],
            message.key(),
            message.value(),
            _UNREAD if headers is None else headers,
            NO_EPOCH if (epoch := message.leader_epoch()) is None else epoch,
        )

    def _reached(self, message: Any) -> bool:
        """Updates the offset up to which the message's partition is read.

        Returns True if the message is a record, and False if the message reports the end of the
        partition. Raises Kappa's error for any other message.
        """
        part, offset, error = (
            (str(message.topic()), int(message.partition() or 0)),
            int(message.offset() or 0),
            message.error(),
        )
        if error is None:
            self._seen[part] = offset + 1
            return True
        check_error(error, part, self._refuse)
        # If the end is in a hole, only this message shows that the reader has reached the end.
        self._seen[part] = max(self._seen[part], offset)
        return False


def _start_places(offsets: Offsets) -> dict[Part, int]:
    return {(topic, partition): offset for topic, partition, offset in offsets.items()}
