"""A producer that sends each record to its topic exactly once, and counts the acknowledgements."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as KafkaProducer
from msgspec import Struct

from kappa.base.errors import KappaError, Unreachable
from kappa.kafka.acl import missing_of
from kappa.kafka.acl import topic as acl
from kappa.kafka.broker_requests import AWAY, UP, Answers, making
from kappa.kafka.headers import Headers
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from types import TracebackType

_LOOK_SECONDS = 0.5
# A record that could not be delivered within this time is reported as not acknowledged.
_DELIVERY_SECONDS = 60.0
# These options make a producer exact; no option of the user may undo them. The partitioner is the
# default of Kafka's Java clients, so a key is in the same partition whichever client wrote the key.
EXACT = {"enable.idempotence": "true", "acks": "all", "partitioner": "murmur2_random"}
# These options make a producer fast: large compressed batches, and a queue for some seconds of
# batches.
_FAST = {
    "compression.type": "lz4",
    "linger.ms": "20",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "delivery.timeout.ms": str(int(_DELIVERY_SECONDS * 1000)),
}


class ProducedRecord(Struct, frozen=True):
    """A record to produce. If the value is None, the record is a tombstone.

    If `timestamp_ms` is None, the record gets the current time. If `partition` is None, the key
    determines the partition. (A Struct is created in a tenth of the time of a dataclass.)
    """

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The number and the positions of the records that all in-sync replicas have acknowledged.

    `offsets` contains the offset after the last acknowledged record, per partition.
    """

    count: int
    offsets: Offsets


class Producer:
    """A producer that sends each record exactly once, and in order within a partition.

    Only one thread at a time may use the producer. `send` only queues a record; the record is safe
    when it is acknowledged. If a record cannot be delivered, the next call raises an error.
    """

    def __init__(
        self, bootstrap_servers: str, options: Mapping[str, str | int | float | bool]
    ) -> None:
        """Creates the producer with librdkafka's options.

        Error messages contain `bootstrap_servers`.
        """
        self._bootstrap_servers = bootstrap_servers
        self._answers = Answers(bootstrap_servers, options)
        with making("the producer"):
            self._kafka = KafkaProducer(
                {
                    **_FAST,
                    **options,
                    **EXACT,
                    **self._answers.error_option,
                    "on_delivery": self._delivered,
                }
            )
        # The topic of the record that was sent last.
        self._topic = ""
        self._sent = 0
        self._count = 0
        self._next: dict[str, dict[int, int]] = {}
        # The error of the first record that was not delivered, its topic and partition.
        self._failure: tuple[KafkaError, str, int] | None = None

    def send(self, topic: str, record: ProducedRecord) -> None:
        """Queues a record. If the queue is full, waits until it has room.

        The wait ends at the latest when the delivery of a queued record fails. Raises KappaError if
        this record is refused, or if an earlier record was not delivered.
        """
        self._topic = topic
        while True:
            try:
                self._kafka.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=0 if record.timestamp_ms is None else record.timestamp_ms,
                    headers=list(record.headers) or None,
                )
            except BufferError:
                # The queue empties in the end: a record that is not delivered in time is reported
                # as failed, which ends this loop too.
                self._serve(0.1)
                self._answers.look()
                self._raise_failure()
            except KafkaException as error:
                self._raise_missing(error.args[0], topic)
                raise KappaError(
                    f"a record for topic {topic} was refused: {error.args[0].str()}",
                    hint=self._so_far(),
                ) from error
            else:
                break
        self._sent += 1
        self._serve(0)
        self._raise_failure()

    def flush(self) -> Acknowledged:
        """Waits until all sent records are acknowledged.

        Raises KappaError if a record is not acknowledged in time.
        """
        deadline = time.monotonic() + _DELIVERY_SECONDS + 5
        while (left := len(self._kafka)) and time.monotonic() < deadline:
            self._serve(_LOOK_SECONDS)
            self._answers.look()
        self._raise_failure()
        if left:
            raise Unreachable(
                f"{left} of {self._sent} records were not acknowledged in time by "
                f"{self._bootstrap_servers}",
                hint=f"{self._so_far()}; {UP}",
            )
        return self.acknowledged

    @property
    def acknowledged(self) -> Acknowledged:
        """Returns the number and the offsets of the records that are acknowledged so far."""
        return Acknowledged(
            self._count, Offsets({topic: dict(parts) for topic, parts in self._next.items()})
        )

    def __enter__(self) -> Self:
        """Returns the producer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flushes the producer. After an error, discards the records that are still queued."""
        if error is None:
            self.flush()
        else:
            self._kafka.purge()
            self._kafka.flush(1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or (error, message.topic(), message.partition())
            return
        self._count += 1
        parts = self._next.setdefault(message.topic(), {})
        partition = message.partition()
        parts[partition] = max(parts.get(partition, 0), message.offset() + 1)

    def _serve(self, seconds: float) -> None:
        """Handles the acknowledgements and errors that arrive within `seconds`.

        Raises Kappa's error if an error has ended the producer.
        """
        try:
            self._kafka.poll(seconds)
        except (KafkaException, SystemError) as error:
            # An error that ends a producer is raised while records are reported, too.
            cause = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(cause, KafkaException):
                raise
            self._raise_missing(cause.args[0], self._topic)
            self._answers.refuse(cause, "records could not be delivered")

    def _raise_missing(self, error: KafkaError, name: str) -> None:
        missing = missing_of(error.code(), acl(name, "Write"))
        if missing is not None:
            raise self._answers.missing(missing)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        error, topic, partition = self._failure
        self._raise_missing(error, topic)
        if error.code() in AWAY or error.code() == KafkaError._MSG_TIMED_OUT:
            raise Unreachable(
                f"a record could not be delivered to {self._bootstrap_servers}: {error.str()}",
                hint=f"{self._so_far()}; {UP}",
            )
        raise KappaError(
            f"a record could not be delivered (topic {topic}, partition {partition}): "
            f"{error.str().removeprefix('Local: ')}",
            hint=f"{self._so_far()}; kappa topics list shows topics and partitions",
        )

    def _so_far(self) -> str:
        return f"{self._count} of {self._sent} records were acknowledged"
