"""A producer for many senders at once. No sender's thread waits for the broker.

A thread of the producer polls for acknowledgements. The thread reports all acknowledgements of one
poll together, so that the event loop of the senders is woken only once per poll.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer
from msgspec import Struct

from kappa.kafka.acl import missing_of
from kappa.kafka.acl import topic as acl
from kappa.kafka.broker_requests import AWAY, NOT_YET, Options, making
from kappa.kafka.producer import EXACT, ProducedRecord

_POLL_SECONDS = 0.1
# The longest wait of a single event for further events to be sent with it.
_LINGER_MS = "2"
# The queue's bounds are beyond the sender's own bounds, which are reached first.
_SLACK = 2
_OF_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_RECORD,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError._INVALID_ARG,
    }
)
_RETRIED = AWAY | NOT_YET | {KafkaError._MSG_TIMED_OUT, KafkaError._QUEUE_FULL}


class Placed(Struct, frozen=True):
    """The partition and the offset of an acknowledged record."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The reason why a record was not acknowledged.

    `is_passing` is True if the same record may be accepted later. `is_of_record` is True if the
    broker will never accept this record.
    """

    why: str
    is_passing: bool
    is_of_record: bool = False


class SentRecords:
    """Records that were sent together, with the outcome of each record.

    The outcome is None until the record is acknowledged or given up. `left` is the number of
    records without an outcome.
    """

    __slots__ = ("left", "outcomes")

    def __init__(self, count: int) -> None:
        self.outcomes: list[Placed | Undelivered | None] = [None] * count
        self.left = count


class LiveProducer:
    """A producer that sends each record exactly once, and reports the outcome of each record.

    A record that is not acknowledged in time may nevertheless be in the topic.
    """

    def __init__(
        self,
        options: Options,
        *,
        wait_seconds: float,
        most_records: int,
        most_bytes: int,
        report: Callable[[Sequence[SentRecords]], None],
    ) -> None:
        """Creates the producer with librdkafka's options. The polling thread calls `report`.

        The producer gives up a record `wait_seconds` seconds after `send`. The caller must not have
        more than `most_records` records and `most_bytes` bytes without an outcome.
        """
        own = {
            "linger.ms": _LINGER_MS,
            "queue.buffering.max.messages": str(_SLACK * most_records),
            "queue.buffering.max.kbytes": str(max(1024, _SLACK * most_bytes >> 10)),
            "delivery.timeout.ms": str(int(wait_seconds * 1000)),
            # The client leaves a broker that hangs for another broker, or asks it anew, within the
            # time.
            "socket.timeout.ms": str(max(1000, int(wait_seconds * 500))),
            "error_cb": self._failed,
        }
        with making("the producer"):
            self._kafka = KafkaProducer({"compression.type": "lz4", **options, **own, **EXACT})
        self._report = report
        self._finished: list[SentRecords] = []
        # Records that were refused at once: only the polling thread counts the open records.
        self._refused: deque[tuple[SentRecords, int, Undelivered]] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="acknowledgements", daemon=True)
        # True since the brokers could not be reached, until the next acknowledgement.
        self.is_away = False
        # The error after which this producer can send nothing any more.
        self.fatal = ""

    def start(self) -> None:
        """Starts the polling thread."""
        self._thread.start()

    def send(self, topic: str, records: Sequence[ProducedRecord]) -> SentRecords:
        """Queues records without waiting.

        When all of these records have an outcome, `report` is called with the returned object.
        """
        sent = SentRecords(len(records))
        produce = self._kafka.produce
        for place, record in enumerate(records):
            more: dict[str, Any] = {}
            if record.timestamp_ms:
                more["timestamp"] = record.timestamp_ms
            if record.headers:
                more["headers"] = list(record.headers)
            partition = -1 if record.partition is None else record.partition
            delivered = partial(self._delivered, sent, place)
            try:
                # Positional arguments take half of the time.
                produce(topic, record.value, record.key, partition, delivered, **more)
            except BufferError:
                full = KafkaError(KafkaError._QUEUE_FULL)
                self._refused.append((sent, place, _undelivered_error(full, topic)))
            except KafkaException as error:
                self._refused.append((sent, place, _undelivered_error(error.args[0], topic)))
        return sent

    def close(self, patience_seconds: float) -> None:
        """Waits at most `patience_seconds` for the outcomes of all records, and stops polling.

        Records that still have no outcome are given up.
        """
        if self._kafka.flush(patience_seconds):
            self._kafka.purge()
            self._kafka.flush(1)
        self._ending.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ending.is_set():
            self._kafka.poll(_POLL_SECONDS)
            while self._refused:
                sent, place, outcome = self._refused.popleft()
                self._settle(sent, place, outcome)
            if self._finished:
                finished, self._finished = self._finished, []
                self._report(finished)

    def _delivered(
        self, sent: SentRecords, place: int, error: KafkaError | None, message: Any
    ) -> None:
        if error is None:
            self.is_away = False
            self._settle(sent, place, Placed(message.partition(), message.offset()))
        else:
            self._settle(sent, place, _undelivered_error(error, message.topic()))

    def _settle(self, sent: SentRecords, place: int, outcome: Placed | Undelivered) -> None:
        sent.outcomes[place] = outcome
        sent.left -= 1
        if not sent.left:
            self._finished.append(sent)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.fatal = error.str()
        elif error.code() in AWAY:
            self.is_away = True


def _undelivered_error(error: KafkaError, topic: str) -> Undelivered:
    missing = missing_of(error.code(), acl(topic, "Write"))
    # Senders read this text: they need no address and no user of the cluster.
    why = (
        error.str().removeprefix("Local: ")
        if missing is None
        else f"the cluster does not allow the operation {missing.operation} on {missing.kind} "
        f"{missing.name} (kappa doctor --acls lists all that is needed)"
    )
    return Undelivered(
        why, error.code() in _RETRIED or error.retriable(), error.code() in _OF_RECORD
    )
