"""The log of a Kafka cluster: topics and offsets, and the topics' records.

Topics and offsets are in cluster.py; this file produces records and reads records back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from kappa.kafka.answers import Options, making
from kappa.kafka.cluster import Cluster
from kappa.kafka.log_end import last_before, lost_ends
from kappa.kafka.producer import Acknowledged, ProducedRecord, Producer
from kappa.kafka.reader import LogReader, Record
from kappa.kafka.transactions import Transactions
from kappa.state.offsets import Offsets
from kappa.state.witness import LostEnd, Witness, Witnesses

if TYPE_CHECKING:
    from kappa.kafka.bulk import Columns

# The pause before brokers are asked once more whether a log has lost its end.
_PAUSE_SECONDS = 2.0


class Log(Cluster):
    """A Kafka cluster, with the records of its topics."""

    @property
    def options(self) -> Options:
        """Returns librdkafka's options of all clients of this cluster."""
        return self._options

    @property
    def largest_record(self) -> int:
        """Returns the greatest size of a record to send, key and value together, in bytes."""
        # The default is librdkafka's.
        return int(self._options.get("message.max.bytes", 1_000_000))

    def producer(self) -> Producer:
        """Returns a producer to keep open: a context manager that flushes at the end."""
        return Producer(self.bootstrap_servers, self._options)

    def transactions(self, topic: str, writer: str = "") -> Transactions:
        """Returns the transactions of a topic's only writer, which do not begin yet.

        `writer` is the name of an adopted root, or "".

        Raises UsageError if the topic does not exist.
        """
        most = int(self.config(topic)["max.message.bytes"])
        return Transactions(self.bootstrap_servers, self._options, topic, most, writer)

    def produce(
        self,
        records: Iterable[ProducedRecord],
        topic: str,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Acknowledged:
        """Produces records and waits until all are acknowledged.

        `on_progress` is called now and then with the number acknowledged. Raises UsageError if the
        topic does not exist, and KappaError if any record was not acknowledged.
        """
        self.must_have(topic)
        with self.producer() as producer:
            for number, record in enumerate(records):
                producer.send(topic, record)
                if on_progress is not None and number % 5_000 == 0:
                    on_progress(producer.acknowledged.count)
            producer.flush()
            if on_progress is not None:
                on_progress(producer.acknowledged.count)
            return producer.acknowledged

    def reader(self) -> LogReader:
        """Returns a new consumer, for range after range; the caller closes the consumer."""
        with making("a consumer"):
            return LogReader(self._options, self.answers.refuse)

    def read_columns(self, topic: str, partition: int, start: int, end: int) -> Iterator[Columns]:
        """Yields the committed records of a partition's range, in large batches of columns.

        The consumer is closed when the batches end.
        """
        # Imported late: the module loads a compiler, which takes a second, and most callers never
        # read so many records.
        from kappa.kafka.bulk import BulkReader  # noqa: PLC0415

        with making("a consumer"):
            reader = BulkReader(self._options, self.answers.refuse, topic, partition, start)
        with reader:
            yield from reader.read(end)

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        """Yields the committed records between two vectors, in order within each partition."""
        wanted = set(topics)
        parts = {
            name: {
                partition: last
                for partition, last in of_topic.items()
                if last > start.at(name, partition)
            }
            for name, of_topic in end.next.items()
            if name in wanted
        }
        if any(parts.values()):
            with self.reader() as reader:
                yield from reader.read(
                    start, Offsets({name: of_topic for name, of_topic in parts.items() if of_topic})
                )

    def last_before(self, end: Offsets) -> dict[tuple[str, int], Witness]:
        """Finds the last committed record of each partition before these offsets, as a witness."""
        with making("a consumer"):
            return last_before(
                self._options, self.answers.refuse, end, self.beginning(sorted(end.next))
            )

    def lost_ends(self, end: Offsets, witnesses: Witnesses) -> tuple[LostEnd, ...]:
        """Finds the partitions that differ by now from the partitions read up to `end`.

        `witnesses` are the last records that were read of each partition. A build stops for good
        over a lost end, so the brokers are asked twice, with a pause: brokers that are just coming
        back may give offsets of before for a moment.
        """
        lost = self._lost_ends(end, witnesses)
        if not lost:
            return ()
        time.sleep(_PAUSE_SECONDS)
        parts = {(each.topic, each.partition) for each in lost}
        again = self._lost_ends(end, witnesses)
        return tuple(each for each in again if (each.topic, each.partition) in parts)

    def _lost_ends(self, end: Offsets, witnesses: Witnesses) -> tuple[LostEnd, ...]:
        names = sorted(end.next)
        with making("a consumer"):
            return lost_ends(
                self._options,
                self.answers.refuse,
                end,
                witnesses,
                beginning=self.beginning(names),
                high_watermark=self.high_watermark(names),
            )

    def keys(self, topic: str, start: Offsets) -> Iterator[bytes]:
        """Yields the keys of a topic's committed records from `start` to the present end.

        A key is repeated for each record with that key.
        """
        # The log may have lost its beginning meanwhile.
        start = start.only({topic}).highest_with(self.beginning([topic]))
        return (
            record.key
            for record in self.records([topic], start, self.end([topic]))
            if record.key is not None
        )
