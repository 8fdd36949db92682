"""The door to confluent_kafka: topics, offsets, producing and reading back (reader.py), in our words and with our errors.

Nothing here waits for ever: a broker that does not answer becomes Unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kappa.base.errors import Conflict, KappaError, Unreachable, UsageError
from kappa.declare.log_time import BROKERS_TIME, SET_BROKERS_TIME, TIMESTAMP_TYPE
from kappa.log.reader import LogReader, Record
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from types import TracebackType

    from kappa.declare.topic import Topic
    from kappa.log.bulk import Columns

_Answer = TypeVar("_Answer")

# How long a question to a broker that is there can take, with room for a busy machine.
_PATIENCE_SECONDS = 20.0
# A record that could not be delivered within this time is reported as not acknowledged.
_DELIVERY_SECONDS = 60.0
_UP = "start the platform with: kappa up -d; or see kafka.bootstrap_servers in kappa.toml"
_AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
    }
)
# A leader is being made or moved, as happens right after a topic is made and when a broker comes back.
_NOT_YET = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)

# What makes a producer exact; no option of the user may undo it. The partitioner is that of Kafka's Java clients, so
# that a key lies in the same partition whoever wrote it.
_EXACT = {"enable.idempotence": "true", "acks": "all", "partitioner": "murmur2_random"}
# What makes it fast: large compressed batches, and a queue that holds some seconds of them.
_FAST = {
    "compression.type": "lz4",
    "linger.ms": "20",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "delivery.timeout.ms": str(int(_DELIVERY_SECONDS * 1000)),
}
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # has no types
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # has no types
# librdkafka prints what it also reports; we want the reports only.
_QUIET = {"log_level": "0"}


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the broker knows of a topic: its id (another one after a re-creation) and how many partitions it has."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class ProducedRecord:
    """A record to produce; a value of None is a tombstone, a time of None is now, a partition of None is the key's."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What all in-sync replicas have: how many records, and per partition the offset behind the last of them."""

    count: int
    offsets: Offsets


class Log:
    """One Kafka cluster."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str] | None = None) -> None:
        """Connects to nothing yet: the first question does. `options` are librdkafka's."""
        self.bootstrap_servers = bootstrap_servers
        self._options: dict[str, str | int | float | bool] = {
            **_QUIET,
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
        }
        with _making("the client"):
            self._admin = AdminClient(self._options)

    def topics(self) -> Mapping[str, TopicFacts]:
        """All topics by name, Kafka's own (`__...`) left out."""
        return {
            name: facts for name, facts in self._facts(self._names()).items() if facts is not None
        }

    def facts(self, name: str) -> TopicFacts | None:
        """One topic, or None where the broker has none of that name."""
        return self._facts((name,))[name]

    def create(self, topic: Topic) -> TopicFacts:
        """Makes sure that a declared topic is there, and is ready to be produced to.

        One that is there with the same number of partitions stays as it is, whatever its settings (`config` shows them).
        Raises Conflict where it has another number, or its producers' time where the declaration goes by the broker's. A
        history is kept for ever (`retention.ms=-1`): the broker's default would delete events that lie in the past as soon as they come.
        """
        config = {
            "retention.ms": "-1",
            "cleanup.policy": "compact" if topic.kind == "compacted" else "delete",
            **{str(k): str(v) for k, v in topic.config.items()},
        }
        if topic.needs_brokers_time:
            config[TIMESTAMP_TYPE] = BROKERS_TIME
        new = NewTopic(
            topic.name, num_partitions=topic.partitions, replication_factor=-1, config=config
        )
        try:
            self._admin.create_topics([new], request_timeout=_PATIENCE_SECONDS)[topic.name].result(
                _PATIENCE_SECONDS + 1
            )
        except KafkaException as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                self._refuse(error, f"topic {topic.name} could not be created")
        except TimeoutError as error:
            raise self._unreachable() from error
        facts = self._settled(topic.name)
        if facts.partitions != topic.partitions:
            raise Conflict(
                f"topic {topic.name} is there with {facts.partitions} partitions, and is declared with {topic.partitions}",
                hint=f"declare it with partitions={facts.partitions}, or give it another name",
            )
        if (
            topic.needs_brokers_time
            and (found := self.config(topic.name).get(TIMESTAMP_TYPE)) != BROKERS_TIME
        ):
            raise Conflict(
                f"topic {topic.name} is there with {TIMESTAMP_TYPE}={found}, and is declared with lateness or identity, which go by the broker's time",
                hint=SET_BROKERS_TIME.format(topic.name),
            )
        return facts

    def delete(self, name: str) -> None:
        """Makes sure that a topic is not there, with all its records."""
        try:
            self._admin.delete_topics([name], request_timeout=_PATIENCE_SECONDS)[name].result(
                _PATIENCE_SECONDS + 1
            )
        except KafkaException as error:
            if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                self._refuse(error, f"topic {name} could not be deleted")
        except TimeoutError as error:
            raise self._unreachable() from error
        self._until(lambda: self.facts(name) is None, f"topic {name} to be deleted")

    def add_partitions(self, name: str, total: int) -> TopicFacts:
        """Makes sure that a topic has at least `total` partitions; Kafka cannot take any away."""
        if self._must_have(name).partitions < total:
            self._answer(
                self._admin.create_partitions([NewPartitions(name, total)])[name],
                f"topic {name} could not be given {total} partitions",
            )
            self._until(
                lambda: self._must_have(name).partitions >= total,
                f"topic {name} to have {total} partitions",
            )
        return self._settled(name)

    def config(self, name: str) -> Mapping[str, str]:
        """All settings of a topic that are in force, defaults among them."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        entries = self._answer(
            self._admin.describe_configs([resource])[resource],
            f"the settings of topic {name} could not be read",
        )
        return {
            str(key): str(entry.value) for key, entry in entries.items() if entry.value is not None
        }

    def beginning(self, topics: Iterable[str]) -> Offsets:
        """The earliest offsets that are still there."""
        return self._offsets(topics, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def end(self, topics: Iterable[str]) -> Offsets:
        """Where a reader of committed records comes to its end for now: behind the last record that no open transaction holds back."""
        return self._offsets(topics, _LATEST, IsolationLevel.READ_COMMITTED)

    def at_time(self, topics: Iterable[str], timestamp_ms: int) -> Offsets:
        """Where each partition stood at a time, by the timestamps of its records: its first record since then, or its end."""
        names = tuple(topics)
        since, ends = (
            self._offsets(
                names, OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
            ),
            self.high_watermark(names),
        )
        # Kafka says -1 where no record is as late.
        return Offsets(
            {
                name: {
                    part: offset if offset >= 0 else ends.at(name, part)
                    for part, offset in parts.items()
                }
                for name, parts in since.next.items()
            }
        )

    def high_watermark(self, topics: Iterable[str]) -> Offsets:
        """The end of the log, records of open transactions included."""
        return self._offsets(topics, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def producer(self) -> Producer:
        """A producer to keep open: a context manager that flushes at its end."""
        return Producer(self, self._options)

    def produce(
        self,
        records: Iterable[ProducedRecord],
        topic: str,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> Acknowledged:
        """Produces records and waits until all are acknowledged; `on_progress` is told how many are, now and then.

        Raises UsageError where the topic is not there, and KappaError where any record was not acknowledged.
        """
        self._must_have(topic)
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
        """A consumer of its own, for range after range; who takes it closes it."""
        with _making("a consumer"):
            return LogReader(self._options, self._refuse)

    def read_columns(self, topic: str, partition: int, start: int, end: int) -> Iterator[Columns]:
        """The committed records of one partition's range, in large batches of columns, by a consumer that ends with them."""
        from kappa.log.bulk import BulkReader  # noqa: PLC0415  # it comes with a compiler, which takes a second, and most never read that much

        with _making("a consumer"):
            reader = BulkReader(self._options, self._refuse, topic, partition, start)
        with reader:
            yield from reader.read(end)

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        """Reads the committed records between two vectors, in the order of offsets within each partition."""
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

    def keys(self, topic: str, start: Offsets) -> Iterator[bytes]:
        """The keys of a topic's committed records from `start` to the end that it has now, one for each record."""
        # The log may begin later by now.
        start = start.only({topic}).highest(self.beginning([topic]))
        return (
            record.key
            for record in self.records([topic], start, self.end([topic]))
            if record.key is not None
        )

    def wait_until_ready(self, patience_seconds: float) -> bool:
        """True as soon as the cluster answers a question; False where it does not within the time."""
        try:
            self._admin.list_topics(timeout=patience_seconds)
        except KafkaException:
            return False
        return True

    def _names(self) -> tuple[str, ...]:
        try:
            found = self._admin.list_topics(timeout=_PATIENCE_SECONDS)
        except KafkaException as error:
            self._refuse(error, "the topics could not be listed")
        return tuple(sorted(name for name in found.topics if not name.startswith("__")))

    def _facts(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        facts: dict[str, TopicFacts | None] = {}
        if not names:
            return facts
        asked = self._admin.describe_topics(
            TopicCollection(list(names)), request_timeout=_PATIENCE_SECONDS
        )
        for name, future in asked.items():
            try:
                found = future.result(_PATIENCE_SECONDS + 1)
            except KafkaException as error:
                if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._refuse(error, f"topic {name} could not be described")
                facts[name] = None
            except TimeoutError as error:
                raise self._unreachable() from error
            else:
                facts[name] = TopicFacts(
                    name=name, id=str(found.topic_id), partitions=len(found.partitions)
                )
        return facts

    def _must_have(self, name: str) -> TopicFacts:
        facts = self.facts(name)
        if facts is None:
            raise UsageError(
                f"there is no topic {name} on the broker at {self.bootstrap_servers}",
                hint="see: kappa topics list; make the declared ones with: kappa topics create",
            )
        return facts

    def _offsets(
        self, topics: Iterable[str], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Offsets:
        parts = [
            TopicPartition(name, partition)
            for name in topics
            for partition in range(self._must_have(name).partitions)
        ]
        if not parts:
            return Offsets()
        answers: list[dict[str, dict[int, int]]] = []

        def answered() -> bool:
            found = self._ask(parts, spec, isolation)
            answers.extend([found] if found is not None else [])
            return bool(answers)

        self._until(answered, "the leaders of its partitions")
        return Offsets(answers[0])

    def _ask(
        self, parts: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]] | None:
        """Offsets of partitions, or None where one of them has no leader at the moment."""
        found: dict[str, dict[int, int]] = {}
        for part, future in self._admin.list_offsets(
            dict.fromkeys(parts, spec), isolation_level=isolation, request_timeout=_PATIENCE_SECONDS
        ).items():
            try:
                found.setdefault(part.topic, {})[part.partition] = int(
                    future.result(_PATIENCE_SECONDS + 1).offset
                )
            except KafkaException as error:
                if _code(error) in _NOT_YET:
                    return None
                self._refuse(
                    error,
                    f"the offsets of {part.topic} partition {part.partition} could not be read",
                )
            except TimeoutError as error:
                raise self._unreachable() from error
        return found

    def _settled(self, name: str) -> TopicFacts:
        """Waits until every partition of a topic has a leader that answers."""
        found: list[TopicFacts] = []

        def answers() -> bool:
            facts = self.facts(name)
            if facts is None:
                return False
            parts = [TopicPartition(name, partition) for partition in range(facts.partitions)]
            if self._ask(parts, _LATEST, IsolationLevel.READ_UNCOMMITTED) is None:
                return False
            found.append(facts)
            return True

        self._until(answers, f"topic {name} to answer")
        return found[-1]

    def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"waited {_PATIENCE_SECONDS:.0f} seconds for {what}",
                    hint="see the broker's log: kappa logs broker",
                )
            time.sleep(0.05)

    def _answer(self, future: Future[_Answer], otherwise: str) -> _Answer:
        try:
            return future.result(_PATIENCE_SECONDS + 1)
        except KafkaException as error:
            self._refuse(error, otherwise)
        except TimeoutError as error:
            raise self._unreachable() from error

    def _refuse(self, error: KafkaException, otherwise: str) -> NoReturn:
        if _code(error) in _AWAY:
            raise self._unreachable() from error
        raise KappaError(
            f"{otherwise}: {error.args[0].str()}", hint="see the broker's log: kappa logs broker"
        ) from error

    def _unreachable(self) -> Unreachable:
        return Unreachable(f"no Kafka broker answers at {self.bootstrap_servers}", hint=_UP)


class Producer:
    """Sends records, each exactly once and in order within its partition; one thread at a time.

    A record is safe when it is acknowledged: `send` only queues it. The first record that cannot be delivered makes the
    next call raise.
    """

    def __init__(self, log: Log, options: Mapping[str, str | int | float | bool]) -> None:
        """Made by `Log.producer`."""
        self._log = log
        with _making("the producer"):
            self._kafka = KafkaProducer(
                {**_FAST, **options, **_EXACT, "on_delivery": self._delivered}
            )
        self._sent = 0
        self._count = 0
        self._next: dict[str, dict[int, int]] = {}
        # Why the first was not delivered, and where it was to go.
        self._failure: tuple[KafkaError, str] | None = None

    def send(self, topic: str, record: ProducedRecord) -> None:
        """Queues a record; waits where the queue is full, and never longer than deliveries may take."""
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
                # The queue empties in the end: what isn't delivered in time is reported as failed, which ends this too.
                self._kafka.poll(0.1)
                self._raise_failure()
            except KafkaException as error:
                raise KappaError(
                    f"a record for topic {topic} was refused: {error.args[0].str()}",
                    hint=self._so_far(),
                ) from error
            else:
                break
        self._sent += 1
        self._kafka.poll(0)
        self._raise_failure()

    def flush(self) -> Acknowledged:
        """Waits until all that was sent is acknowledged; raises where any of it is not."""
        left = self._kafka.flush(_DELIVERY_SECONDS + 5)
        self._raise_failure()
        if left:
            raise Unreachable(
                f"{left} of {self._sent} records were not acknowledged in time by {self._log.bootstrap_servers}",
                hint=f"{self._so_far()}; {_UP}",
            )
        return self.acknowledged

    @property
    def acknowledged(self) -> Acknowledged:
        """What is acknowledged so far."""
        return Acknowledged(
            self._count, Offsets({topic: dict(parts) for topic, parts in self._next.items()})
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Flushes; after an error what is still queued is given up."""
        if error is None:
            self.flush()
        else:
            self._kafka.purge()
            self._kafka.flush(1)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or (
                error,
                f"topic {message.topic()}, partition {message.partition()}",
            )
            return
        self._count += 1
        parts = self._next.setdefault(message.topic(), {})
        partition = message.partition()
        parts[partition] = max(parts.get(partition, 0), message.offset() + 1)

    def _raise_failure(self) -> None:
        if self._failure is None:
            return
        error, where = self._failure
        if error.code() in _AWAY or error.code() == KafkaError._MSG_TIMED_OUT:
            raise Unreachable(
                f"a record could not be delivered to {self._log.bootstrap_servers}: {error.str()}",
                hint=f"{self._so_far()}; {_UP}",
            )
        raise KappaError(
            f"a record could not be delivered ({where}): {error.str().removeprefix('Local: ')}",
            hint=f"{self._so_far()}; kappa topics list shows topics and partitions",
        )

    def _so_far(self) -> str:
        return f"{self._count} of {self._sent} records were acknowledged"


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


@contextmanager
def _making(what: str) -> Iterator[None]:
    """Makes what librdkafka says of its options a UsageError."""
    try:
        yield
    except KafkaException as error:
        raise UsageError(
            f"{what} of Kafka cannot be made from kafka.options: {error.args[0].str()}",
            hint="see [kafka.options] in kappa.toml; names are librdkafka's",
        ) from error
