"""The transactions of a topic's only writer. A transaction contains records and a position.

The position is a text that the writer chooses. It is stored as the metadata of an offset, which a
consumer group for this topic commits in the same transaction as the records. So either all records
and the position are visible to readers, or nothing. `transactional.id` fences writers: of two
writers, Kafka refuses the writer that began first. Source:
https://kafka.apache.org/documentation/#semantics
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kappa.base.errors import Conflict, KappaError
from kappa.base.failpoint import failpoint
from kappa.kafka.acl import Acl, AclKind, missing_of, sink_id, writer_id
from kappa.kafka.acl import topic as acl
from kappa.kafka.broker_requests import (
    AWAY,
    NOT_YET,
    PATIENCE_SECONDS,
    Answers,
    Options,
    code_of,
    making,
)

# The longest that brokers allow by default: a snapshot of a large table is one transaction.
_TRANSACTION_SECONDS = 900.0
_FENCED = frozenset({KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE})
_POLL_EACH = 500
_WAIT_SECONDS = 1.0
# The broker refuses a batch as a whole, so no batch is larger than the topic lets one record be.
_BATCH_BYTES = 1_000_000
_LEAST_BYTES, _HEAD_BYTES = 1_000, 512


class Fenced(Conflict):
    """The error for a writer that a later writer of the same topic has fenced."""


class TooLarge(KappaError):
    """The error for a record that is larger than the topic allows."""


class Transactions:
    """The transactions of a topic, for one thread. After an error, a new object must be created.

    If a writer exits during an open transaction, the next writer aborts that transaction when it
    begins.
    """

    def __init__(
        self, bootstrap_servers: str, options: Options, topic: str, most: int, writer: str
    ) -> None:
        """Creates the producer, and the consumer that reads the committed position.

        `most` is the largest record that the topic allows, in bytes. Errors contain
        `bootstrap_servers`. Writers with different values of `writer` have different transactional
        ids, and do not fence each other.
        """
        self._answers = Answers(bootstrap_servers, options)
        self._topic = topic
        self._most = most
        self._number = 0
        self._failure: tuple[KafkaError, bytes] | None = None
        # When a record was last acknowledged.
        self._heard_at = 0.0
        name = self._name = writer_id(topic, writer)
        # The operation that a refusal to touch the topic concerns.
        self._operation = "Write"
        size = max(most, _LEAST_BYTES)
        exact = {
            "transactional.id": name,
            "enable.idempotence": "true",
            "partitioner": "murmur2_random",
            "transaction.timeout.ms": str(int(_TRANSACTION_SECONDS * 1000)),
            # The writer waits for each change set: only large change sets fill batches.
            "linger.ms": "5",
            "message.timeout.ms": "60000",
            "message.max.bytes": str(size),
            "batch.size": str(min(_BATCH_BYTES, size)),
            "on_delivery": self._delivered,
        }
        with making("the producer"):
            self._producer = Producer(
                {"compression.type": "lz4", **options, **exact, **self._answers.error_option}
            )
        with making("a consumer"):
            self._group = Consumer(
                {
                    **options,
                    "group.id": sink_id(topic),
                    "enable.auto.commit": "false",
                    "isolation.level": "read_committed",
                }
            )

    def begin(self) -> str | None:
        """Fences earlier writers, aborts their open transactions, and returns the last position.

        Returns None if no position was ever committed.
        """
        failpoint("sink.before_begin")
        self._patiently(lambda: self._producer.init_transactions(PATIENCE_SECONDS))
        failpoint("sink.after_begin")
        return self.position()

    def position(self) -> str | None:
        """Returns the position of the last committed transaction of any writer.

        Returns None if no position was ever committed, or if the topic was created again.
        """
        part = TopicPartition(self._topic, 0)
        try:
            (found,) = self._answers.retried(lambda seconds: self._committed(part, seconds))
        except KafkaException as error:
            self._refuse(error)
        if found.error is not None:
            self._refuse(KafkaException(found.error))
        self._number = max(found.offset, 0)
        return found.metadata if found.offset >= 0 and found.metadata else None

    def _committed(self, part: TopicPartition, seconds: float) -> list[TopicPartition]:
        try:
            return self._group.committed([part], timeout=seconds)
        except KafkaException:
            # librdkafka retries for ever for a group that this client may not read.
            message = self._group.poll(0)
            if message is not None and (error := message.error()) is not None:
                raise KafkaException(error) from None
            raise

    def send(
        self,
        records: Iterable[tuple[bytes, bytes | None]],
        headers: Mapping[str, bytes],
        position: str,
    ) -> int:
        """Sends records, and the position after these records, in one transaction.

        All records have the same `headers`. Returns the number of records. Raises Fenced if there
        is a later writer, and TooLarge if a record is larger than the topic allows. After any error
        it is unknown whether the transaction was committed; the next `begin` returns the position
        that was committed last.
        """
        self._operation = "Write"
        try:
            self._producer.begin_transaction()
            count = self._produce(records, [*headers.items()])
            self._wait_for_records()
            failpoint("sink.before_position")
            self._commit_position(position)
            failpoint("sink.after_position")
            failpoint("sink.before_commit")
            self._patiently(lambda: self._producer.commit_transaction(PATIENCE_SECONDS))
            failpoint("sink.after_commit")
        except KafkaException as error:
            self._raise_failure()
            self._refuse(error)
        return count

    def _produce(
        self,
        records: Iterable[tuple[bytes, bytes | None]],
        headers: list[tuple[str, str | bytes | None]],
    ) -> int:
        count = 0
        for key, value in records:
            if len(key) + len(value or b"") + _HEAD_BYTES > self._most:
                raise self._too_large(key)
            while True:
                try:
                    self._producer.produce(self._topic, key=key, value=value, headers=headers)
                    break
                except BufferError:
                    # A record that is not delivered in time is reported, which ends this loop.
                    self._producer.poll(0.1)
                    self._raise_failure()
            count += 1
            if count % _POLL_EACH == 0:
                self._producer.poll(0)
                self._raise_failure()
        return count

    def _wait_for_records(self) -> None:
        """Waits until all records are acknowledged.

        Only then does the broker accept the position. Raises an error if a record is not delivered
        in time.
        """
        # `flush` of a fenced producer raises no error of Kafka's.
        while len(self._producer):
            self._producer.poll(_WAIT_SECONDS)
            self._raise_failure()
        self._raise_failure()

    def _commit_position(self, position: str) -> None:
        self._number += 1
        self._operation = "Read"
        part = TopicPartition(self._topic, 0, self._number, position)
        group = self._group.consumer_group_metadata()

        def commit() -> None:
            self._producer.send_offsets_to_transaction([part], group, PATIENCE_SECONDS)

        if not self._answers.bounded_call(
            lambda: self._patiently(commit), lambda seconds: self._committed(part, seconds)
        ):
            # The thread that is left behind belongs to a producer that the next producer fences.
            raise KappaError(
                f"the position of topic {self._topic} was not taken, as the broker was away",
                hint="its rows are sent again with it, by a new producer",
            )

    def _patiently(self, act: Any) -> None:
        """Calls `act`, and repeats the call as long as librdkafka raises a retriable error.

        Raises Kappa's error for any other error, or if no call succeeds in time.
        """
        began = time.monotonic()
        while True:
            try:
                act()
            except KafkaException as error:
                # A commit waits for all records, and continues while acknowledgements arrive.
                late = time.monotonic() > max(began, self._heard_at) + PATIENCE_SECONDS
                if not error.args[0].retriable() or late:
                    self._raise_failure()
                    self._refuse(error)
            else:
                return

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        self._heard_at = time.monotonic() if error is None else self._heard_at
        if error is not None and self._failure is None:
            self._failure = error, message.key() or b""

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        error, key = self._failure
        if error.code() in _TOO_LARGE:
            raise self._too_large(key)
        if error.code() == KafkaError._PURGE_QUEUE:
            # librdkafka gave up the transaction, and only the call that ends it gives the reason.
            try:
                self._producer.commit_transaction(PATIENCE_SECONDS)
            except KafkaException as reason:
                self._refuse(reason)
        self._refuse(KafkaException(error))

    def _too_large(self, key: bytes) -> TooLarge:
        return TooLarge(
            f"the row of key {key[:200].decode(errors='replace')} is larger than topic "
            f"{self._topic} takes (max.message.bytes={self._most})",
            hint=f"raise max.message.bytes of topic {self._topic}, or send fewer columns",
        )

    def _refuse(self, error: KafkaException) -> NoReturn:
        found = error.args[0]
        if found.code() in _FENCED or (found.fatal() and "fenced" in found.str()):
            raise Fenced(
                f"another courier has taken over topic {self._topic}",
                hint="one courier writes to a topic: end the sink in the other platform that has "
                "it; this one goes on by itself if that has sent nothing",
            ) from error
        if found.code() in AWAY or found.code() == KafkaError._MSG_TIMED_OUT:
            raise self._answers.unreachable() from error
        missing = missing_of(
            code_of(error),
            acl(self._topic, self._operation),
            Acl(AclKind.TRANSACTIONAL_ID, self._name, "Write"),
            Acl(AclKind.GROUP, self._name, "Read"),
        )
        if missing is not None:
            raise self._answers.missing(missing) from error
        again = "; it is made anew" if found.code() in NOT_YET else ""
        raise KappaError(
            f"topic {self._topic} cannot be written to: {found.str().removeprefix('Local: ')}",
            hint=f"see the broker's log: kappa logs broker{again}",
        ) from error

    def __enter__(self) -> Self:
        """Returns this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Discards the queued records of an open transaction, and closes the consumer.

        The method does not wait for an unreachable broker. The next writer aborts the transaction
        when it begins.
        """
        with suppress(KafkaException):
            self._producer.purge()
            self._producer.poll(0)
        with suppress(KafkaException, RuntimeError):
            self._group.close()
