"""A client of a Kafka cluster: the topics, their offsets, and their records.

No call waits without a limit. If the broker does not answer in time, a call raises Unreachable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not by name
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kappa.base.errors import Conflict, UsageError, did_you_mean
from kappa.base.units import count_of
from kappa.declare.topic import KAFKAS_OWN, Topic, declared_config
from kappa.declare.topic_options import BROKERS_TIME, SET_BROKERS_TIME, TIMESTAMP_TYPE
from kappa.kafka.acl import topic as acl
from kappa.kafka.broker_requests import NOT_YET, Answers, Options, code_of, making, wait_until
from kappa.kafka.log_end import last_before, lost_ends
from kappa.kafka.producer import Acknowledged, ProducedRecord, Producer
from kappa.kafka.reader import LogReader, Record
from kappa.kafka.transactions import Transactions
from kappa.state.offsets import Offsets
from kappa.state.witness import LostEnd, Witness, Witnesses

if TYPE_CHECKING:
    from kappa.kafka.bulk_reader import Columns

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # has no types
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # has no types
_NEWEST: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]  # has no types
# The pause before brokers are asked once more whether a log has lost its end.
_PAUSE_SECONDS = 2.0
# librdkafka also prints its reports; only the reports are wanted.
_QUIET = {"log_level": "0"}

# With three replicas, of which two have every acknowledged record, one broker may be away or lost.
# A broker that is away counts as one of the cluster, so only the cluster knows how many replicas
# there may be.
_REPLICATED = (3, 2)
_IN_SYNC = {"min.insync.replicas": "2"}
# A single broker has its own default.
_ALONE = (-1,)
# The controller fences a broker whose heartbeats stop for a moment (StripedReplicaPlacer of Kafka).
_FENCED = "brokers are currently fenced"


def ensure_not_kafkas_own(name: str) -> None:
    """Raises UsageError if a topic is one of Kafka's own topics. These may not be changed."""
    if name.startswith(KAFKAS_OWN):
        raise UsageError(
            f"topic {name} is one of Kafka's own, which it keeps itself",
            hint="kappa topics list shows the others",
        )


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The broker's description of a topic.

    If a topic is deleted and created again, its `id` changes. `replicas` is the least number of
    brokers that store a partition of the topic, or 0 if this number is not known.
    """

    name: str
    id: str
    partitions: int
    replicas: int = 0


class Log:
    """A client of a Kafka cluster, for its topics and their records."""

    def __init__(
        self,
        bootstrap_servers: str,
        options: Mapping[str, str] | None = None,
        *,
        patience_seconds: float | None = None,
    ) -> None:
        """Stores librdkafka's `options`. The client connects to the cluster at the first request.

        `patience_seconds` is the longest wait for an answer. The default is long enough for a busy
        machine.
        """
        self.bootstrap_servers = bootstrap_servers
        self._options: dict[str, str | int | float | bool] = {
            **_QUIET,
            **(options or {}),
            "bootstrap.servers": bootstrap_servers,
        }
        self.answers = Answers(bootstrap_servers, self._options, patience_seconds)

    @property
    def admin(self) -> AdminClient:
        """Returns the admin client. After an Unreachable error, this is a new client."""
        return self.answers.admin

    @property
    def options(self) -> Options:
        """Returns librdkafka's options for all clients of this cluster."""
        return self._options

    @property
    def largest_record(self) -> int:
        """Returns the largest allowed size of a record, in bytes: its key and value together."""
        # The default is librdkafka's.
        return int(self._options.get("message.max.bytes", 1_000_000))

    def brokers(self) -> int:
        """Returns the number of brokers that are running."""
        # librdkafka's own question (DescribeCluster) ends the process while all are fenced.
        return len(self._metadata("the brokers could not be counted").brokers)

    def topics(self) -> Mapping[str, TopicFacts]:
        """Returns the descriptions of all topics by name, except Kafka's own topics (`__...`)."""
        return {
            name: facts for name, facts in self._facts(self._names()).items() if facts is not None
        }

    def facts(self, name: str) -> TopicFacts | None:
        """Returns the description of a topic, or None if the broker has no topic of this name."""
        return self._facts((name,))[name]

    def must_have(self, name: str) -> TopicFacts:
        """Returns the description of a topic. Raises UsageError if the broker has no such topic."""
        if (facts := self.facts(name)) is None:
            raise UsageError(
                f"there is no topic {name} on the broker at {self.bootstrap_servers}",
                hint=f"{did_you_mean(name, self._names())} see: kappa topics list; make the "
                "declared topics with: kappa topics create, and another topic with: kappa topics "
                f"create {name} --partitions N".lstrip(),
            )
        return facts

    def create(self, topic: Topic, *, brokers_time: bool = False) -> TopicFacts:
        """Creates a declared topic if it does not exist, and waits until it accepts records.

        An existing topic with the declared number of partitions is left unchanged, whatever its
        settings are (`config` returns the settings). Raises Conflict if the topic has another
        number of partitions. Also raises Conflict if the topic stores the producers' timestamps but
        the broker's timestamps are needed. They are needed if the declaration requires them, or if
        `brokers_time` is True because a pipeline requires them. Records are kept forever
        (`retention.ms=-1`): with the broker's default, events with old timestamps would be deleted
        at once. In a cluster the topic is replicated so that no record is lost if one broker is
        lost.
        """
        brokers_time |= topic.needs_brokers_time
        config = declared_config(topic, brokers_time=brokers_time)
        self._ensure_topic(topic.name, topic.partitions, config)
        facts = self._settled(topic.name)
        if facts.partitions != topic.partitions:
            raise Conflict(
                f"topic {topic.name} is there with {facts.partitions} partitions, and is declared "
                f"with {topic.partitions}",
                hint=f"declare it with partitions={facts.partitions}, or give it another name",
            )
        found = self.config(topic.name).get(TIMESTAMP_TYPE) if brokers_time else BROKERS_TIME
        if found != BROKERS_TIME:
            raise Conflict(
                f"topic {topic.name} is there with {TIMESTAMP_TYPE}={found}, and its lateness, its "
                "identity or rows that expire go by the broker's time",
                hint=SET_BROKERS_TIME.format(topic.name),
            )
        return facts

    def create_undeclared(self, name: str, partitions: int) -> TopicFacts:
        """Creates a topic that no pipeline declares. The topic's records are kept forever.

        Raises Conflict if the topic exists.
        """
        ensure_not_kafkas_own(name)
        if (there := self.facts(name)) is not None:
            raise Conflict(
                f"topic {name} is there already, with {count_of(there.partitions, 'partition')}",
                hint=f"give another name; kappa topics describe {name} shows the topic",
            )
        # The broker's default would delete imported records with old timestamps at once.
        self._ensure_topic(name, partitions, {"retention.ms": "-1"})
        return self._settled(name)

    def delete(self, name: str) -> None:
        """Deletes a topic with all of its records, if it exists."""
        ensure_not_kafkas_own(name)
        self.answers.result_unless(
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            self.admin.delete_topics([name], request_timeout=self.answers.patience_seconds)[name],
            f"topic {name} could not be deleted",
            acl(name, "Delete"),
        )
        wait_until(lambda: self.facts(name) is None, f"topic {name} to be deleted")

    def add_partitions(self, name: str, total: int) -> TopicFacts:
        """Adds partitions to a topic until the topic has at least `total` partitions.

        Returns the topic's new description. Kafka cannot remove partitions.
        """
        ensure_not_kafkas_own(name)
        if self.must_have(name).partitions < total:
            self.answers.result(
                self.admin.create_partitions([NewPartitions(name, total)])[name],
                f"topic {name} could not be given {total} partitions",
                acl(name, "Alter"),
            )
            wait_until(
                lambda: self.must_have(name).partitions >= total,
                f"topic {name} to have {total} partitions",
            )
        return self._settled(name)

    def config(self, name: str) -> Mapping[str, str]:
        """Returns all current settings of a topic, including defaults."""
        return self.configs([name])[name]

    def configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Returns all current settings of the topics `names`, including defaults, by topic."""
        asked = {name: ConfigResource(ResourceType.TOPIC, name) for name in names}
        found = self.admin.describe_configs(list(asked.values())) if asked else {}
        return {
            name: {
                str(key): str(entry.value)
                for key, entry in self.answers.result(
                    found[resource],
                    f"the settings of topic {name} could not be read",
                    acl(name, "DescribeConfigs"),
                ).items()
                if entry.value is not None
            }
            for name, resource in asked.items()
        }

    def newest_times(self, topics: Iterable[str]) -> Mapping[str, int]:
        """Returns the latest timestamp of each topic's records, in milliseconds.

        A topic without records is left out.
        """
        asked = {
            TopicPartition(name, partition): _NEWEST
            for name, facts in self._must_have_all(topics).items()
            for partition in range(facts.partitions)
        }
        found: dict[str, int] = {}
        answers = (
            self.admin.list_offsets(asked, request_timeout=self.answers.patience_seconds)
            if asked
            else {}
        )
        for part, future in answers.items():
            at = self.answers.result(
                future,
                f"the newest time of {part.topic} partition {part.partition} could not be read",
                acl(part.topic, "Describe"),
            ).timestamp
            if at >= 0:
                found[part.topic] = max(at, found.get(part.topic, 0))
        return found

    def beginning(self, topics: Iterable[str]) -> Offsets:
        """Returns the first offset that each partition still contains."""
        return self._offsets(topics, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)

    def end(self, topics: Iterable[str]) -> Offsets:
        """Returns the current end of each partition for a reader of committed records.

        This is the offset up to which such a reader can read now: records of an open transaction,
        and all records after the transaction's first record, are not readable yet.
        """
        return self._offsets(topics, _LATEST, IsolationLevel.READ_COMMITTED)

    def at_time(self, topics: Iterable[str], timestamp_ms: int) -> Offsets:
        """Returns, for each partition, the offset of the first record at or after a time.

        The time is compared with the timestamps of the records. For a partition without such a
        record, the result is the end of the partition.
        """
        names = tuple(topics)
        since, ends = (
            self._offsets(
                names, OffsetSpec.for_timestamp(timestamp_ms), IsolationLevel.READ_UNCOMMITTED
            ),
            self.high_watermark(names),
        )
        # Kafka returns -1 if no record is that late.
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
        """Returns the end of each partition, including records of open transactions."""
        return self._offsets(topics, _LATEST, IsolationLevel.READ_UNCOMMITTED)

    def wait_until_ready(self, patience_seconds: float) -> bool:
        """Returns True as soon as the cluster answers.

        Returns False if the cluster does not answer within `patience_seconds`. Raises AccessRefused
        if the cluster refuses this client.
        """
        try:
            self.answers.metadata(patience_seconds)
        except KafkaException:
            return False
        return True

    def producer(self) -> Producer:
        """Creates a producer. A `with` statement flushes the producer at the end of the block."""
        return Producer(self.bootstrap_servers, self._options)

    def transactions(self, topic: str, writer: str = "") -> Transactions:
        """Creates an object for the transactions of a topic's only writer, without beginning one.

        `writer` is the id of the root if `kappa root adopt` has made the root from a copy, and ""
        for any other root. Raises UsageError if the topic does not exist.
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

        `on_progress` is called from time to time with the number of acknowledged records. Raises
        UsageError if the topic does not exist, and KappaError if a record was not acknowledged.
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
        """Creates a consumer that reads one range after the other.

        The caller must close the consumer.
        """
        with making("a consumer"):
            return LogReader(self._options, self.answers.refuse)

    def read_columns(self, topic: str, partition: int, start: int, end: int) -> Iterator[Columns]:
        """Yields the committed records from `start` to `end` in large batches of columns.

        The consumer is closed when the iteration ends.
        """
        # Imported late: the module loads a compiler, which takes a second, and most callers never
        # read so many records.
        from kappa.kafka.bulk_reader import BulkReader  # noqa: PLC0415

        with making("a consumer"):
            reader = BulkReader(self._options, self.answers.refuse, topic, partition, start)
        with reader:
            yield from reader.read(end)

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]:
        """Yields the committed records from `start` to `end`, in order within each partition."""
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
        """Returns a witness of the last committed record before `end`, for each partition.

        The key of a witness is a pair (topic, partition). A partition is left out if it contains no
        such record.
        """
        with making("a consumer"):
            return last_before(
                self._options, self.answers.refuse, end, self.beginning(sorted(end.next))
            )

    def lost_ends(self, end: Offsets, witnesses: Witnesses) -> tuple[LostEnd, ...]:
        """Returns the partitions that no longer contain the records that were read up to `end`.

        `witnesses` contains the last record that was read in each partition. If a partition has
        lost records, a build stops for good. So the brokers are asked twice, with a pause in
        between: brokers that are just restarting may return old offsets for a moment.
        """
        lost = self._lost_ends(end, witnesses)
        if not lost:
            return ()
        time.sleep(_PAUSE_SECONDS)
        parts = {(each.topic, each.partition) for each in lost}
        again = self._lost_ends(end, witnesses)
        return tuple(each for each in again if (each.topic, each.partition) in parts)

    def keys(self, topic: str, start: Offsets) -> Iterator[bytes]:
        """Yields the keys of a topic's committed records from `start` to the current end.

        If several records have the same key, the key is yielded once for each of these records.
        """
        # The log may have lost its beginning meanwhile.
        start = start.only({topic}).highest_with(self.beginning([topic]))
        return (
            record.key
            for record in self.records([topic], start, self.end([topic]))
            if record.key is not None
        )

    def _names(self) -> tuple[str, ...]:
        found = self._metadata("the topics could not be listed")
        return tuple(sorted(name for name in found.topics if not name.startswith("__")))

    def _metadata(self, otherwise: str) -> ClusterMetadata:
        """Returns the topics and brokers of the cluster.

        `otherwise` describes the failed action in an error.
        """
        try:
            return self.answers.metadata(self.answers.patience_seconds)
        except KafkaException as error:
            self.answers.refuse(error, otherwise)

    def _facts(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        facts: dict[str, TopicFacts | None] = {}
        if not names:
            return facts
        asked = self.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self.answers.patience_seconds
        )
        for name, future in asked.items():
            found = self.answers.result_unless(
                KafkaError.UNKNOWN_TOPIC_OR_PART,
                future,
                f"topic {name} could not be described",
                acl(name, "Describe"),
            )
            facts[name] = found and TopicFacts(
                name=name,
                id=str(found.topic_id),
                partitions=len(found.partitions),
                replicas=min((len(each.replicas) for each in found.partitions), default=0),
            )
        return facts

    def _must_have_all(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """Returns the descriptions of the topics `names`, from a single answer of the broker.

        Raises UsageError if the broker does not have one of the topics.
        """
        found = self._facts(tuple(dict.fromkeys(names)))
        return {name: facts or self.must_have(name) for name, facts in found.items()}

    def _offsets(
        self, topics: Iterable[str], spec: OffsetSpec, isolation: IsolationLevel
    ) -> Offsets:
        names = tuple(topics)
        answers: list[dict[str, dict[int, int]]] = []

        def answered() -> bool:
            # The broker is asked for the topics each time: librdkafka remembers its last answer,
            # and would go on without a leader that was away for a moment.
            found = self._ask(list(self._must_have_all(names).values()), spec, isolation)
            answers.extend([found] if found is not None else [])
            return bool(answers)

        wait_until(answered, "the leaders of its partitions", self.answers.patience_seconds)
        return Offsets(answers[0])

    def _ask(
        self, topics: Sequence[TopicFacts], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[str, dict[int, int]] | None:
        """Returns the offsets that `spec` names, per topic and partition.

        Returns None if a partition has no leader that answers yet.
        """
        found: dict[str, dict[int, int]] = {}
        asked = {
            TopicPartition(each.name, n): spec for each in topics for n in range(each.partitions)
        }
        if not asked:
            return found
        for part, future in self.admin.list_offsets(
            asked, isolation_level=isolation, request_timeout=self.answers.patience_seconds
        ).items():
            try:
                offset = int(self.answers.waited(future).offset)
                # librdkafka raises no error if a leader that it knew goes away without an answer.
                if offset == OFFSET_INVALID:
                    return None
                found.setdefault(part.topic, {})[part.partition] = offset
            except KafkaException as error:
                if code_of(error) in NOT_YET:
                    return None
                self.answers.refuse(
                    error,
                    f"the offsets of {part.topic} partition {part.partition} could not be read",
                    acl(part.topic, "Describe"),
                )
        return found

    def _ensure_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Creates a topic if it does not exist.

        In a cluster, the topic gets replicas on three brokers, or on two if the cluster has only
        two brokers. `config` may set another `min.insync.replicas`.
        """

        def is_made() -> bool:
            factors = _REPLICATED if self.brokers() > 1 else _ALONE
            for factor in factors:
                replicated = {**(_IN_SYNC if factor > 1 else {}), **config}
                new = NewTopic(name, partitions, replication_factor=factor, config=replicated)
                asked = self.admin.create_topics(
                    [new], request_timeout=self.answers.patience_seconds
                )
                try:
                    self.answers.waited(asked[name])
                    break
                except KafkaException as error:
                    code = code_of(error)
                    if code == KafkaError.TOPIC_ALREADY_EXISTS:
                        break
                    too_many = code == KafkaError.INVALID_REPLICATION_FACTOR
                    if too_many and _FENCED in error.args[0].str():
                        return False
                    if not too_many or factor == factors[-1]:
                        refused = f"topic {name} could not be created"
                        self.answers.refuse(error, refused, acl(name, "Create"))
            return True

        wait_until(is_made, "a broker to be ready: all are fenced", self.answers.patience_seconds)

    def _settled(self, name: str) -> TopicFacts:
        """Waits until the leaders of all partitions of a topic answer.

        Returns the topic's description.
        """
        found: list[TopicFacts] = []
        uncommitted = IsolationLevel.READ_UNCOMMITTED

        def answers() -> bool:
            facts = self.facts(name)
            if facts is None or self._ask([facts], _LATEST, uncommitted) is None:
                return False
            found.append(facts)
            return True

        wait_until(answers, f"topic {name} to answer")
        return found[-1]

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


def own_config(log: Log, topic: str) -> dict[str, str]:
    """Returns the settings that are set for a topic itself, without defaults of the broker."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = log.answers.result(
        log.admin.describe_configs([resource])[resource],
        f"the settings of topic {topic} could not be read",
    )
    return {
        str(name): str(entry.value)
        for name, entry in entries.items()
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    }


def set_config(log: Log, topic: str, config: Mapping[str, str]) -> None:
    """Sets the given settings of a topic. All other settings stay unchanged.

    Raises KappaError if the broker refuses a setting, and UsageError for one of Kafka's own topics.
    """
    ensure_not_kafkas_own(topic)
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    log.answers.result(
        log.admin.incremental_alter_configs([resource])[resource],
        f"the settings of topic {topic} could not be set",
    )
