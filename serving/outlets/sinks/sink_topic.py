"""Creates and checks the topic of a sink, and compares the topic with the served table.

A sink refuses a topic whose rows Kafka would delete by age. After a comparison, the sink sends only
the rows that differ.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kappa.base.errors import AccessRefused, KappaError, Unreachable
from kappa.base.failpoint import failpoint
from kappa.declare.sink import SinkBirth
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.kafka.broker_requests import UP
from kappa.kafka.client import Log
from kappa.state.build import Birth

# The header of a sink's records: the cursor of the change set that each is of.
CURSOR = "kappa-cursor"
Message = tuple[bytes, bytes | None]
_LATE_SECONDS, _PATIENCE_SECONDS = 10.0, 5.0


def ensure_topic(log: Log, birth: Birth, sink: SinkBirth) -> str:
    """Creates the topic of a sink if needed, and returns the topic's id.

    Raises KappaError if the topic is not only compacted, so that Kafka would delete old rows.
    `kappa deploy` can allow such a topic.
    """
    facts = log.facts(sink.topic)
    if facts is None:
        failpoint("sink.before_topic")
        # No pipeline reads these records: the declaration matters for the key alone.
        made = Topic(
            sink.topic,
            event="key string",
            key="key",
            kind=TopicKind.COMPACTED,
            partitions=sink.partitions,
        )
        facts = log.create(made)
        failpoint("sink.after_topic")
    policy = log.config(sink.topic).get("cleanup.policy", "")
    if policy != "compact" and not is_topic_allowed(birth, sink.topic):
        raise KappaError(
            f"topic {sink.topic} has cleanup.policy={policy}: rows would be deleted by their age",
            hint="give the topic cleanup.policy=compact, or the sink another topic",
        )
    return facts.id


def is_topic_allowed(birth: Birth, topic: str) -> bool:
    """Returns True if the user has explicitly allowed a sink's topic when deploying the build."""
    return any(each.startswith(f"sink:{topic}: ") for each in birth.accepted)


def digests_of_rows(log: Log, topic: str, *, take_over: bool) -> tuple[dict[bytes, bytes], int]:
    """Returns a digest of each row's value in a topic by the record's key, and a number.

    The number counts the rows that no sink has written. The keys and digests occupy about 210 bytes
    of memory per row. Raises KappaError if the topic contains rows and no sink has written any of
    its records, unless `take_over` is True.
    """
    found: dict[bytes, bytes] = {}
    foreign: set[bytes] = set()
    is_sinks = take_over
    end = log.end([topic])
    for record in log.records([topic], log.beginning([topic]), end):
        if record.key is None:
            continue
        is_ours = any(name == CURSOR for name, _ in record.headers)
        is_sinks |= is_ours
        foreign.discard(record.key)
        if record.value is None:
            found.pop(record.key, None)
            continue
        found[record.key] = _value_digest(record.value)
        if not is_ours:
            foreign.add(record.key)
    if foreign and not is_sinks:
        raise KappaError(
            f"topic {topic} has records that no sink has written: they would be deleted",
            hint="give the sink a topic of its own; or let it have this one: kappa deploy "
            f"--allow 'sink:{topic}=REASON'",
        )
    return found, len(foreign)


def differing_rows(there: dict[bytes, bytes], rows: Iterable[Message]) -> Iterator[Message]:
    """Yields the records that must be sent so that a topic contains exactly the given rows.

    First come the records of the rows that are missing from the topic or differ there. Then comes a
    deletion for each key that does not occur in the rows. `there` contains the digests of the
    topic's rows by key. The function removes all digests from `there`.
    """
    for key, value in rows:
        known = there.pop(key, None)
        if value is not None and known != _value_digest(value):
            yield key, value
    yield from ((key, None) for key in there)


def _value_digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=16).digest()


@contextmanager
def reporting_broker_outage(log: Log, tell: Callable[[Unreachable], None]) -> Iterator[None]:
    """Calls `tell` with an error, within the block, whenever the broker does not answer.

    The broker is checked about every ten seconds. If the outage continues, `tell` is called after
    each check.
    """
    over = threading.Event()

    def watch_broker() -> None:
        while not over.wait(_LATE_SECONDS):
            try:
                is_there = log.wait_until_ready(_PATIENCE_SECONDS)
            except AccessRefused as error:
                tell(error)
                continue
            if not is_there and not over.is_set():
                tell(Unreachable(f"no Kafka broker answers at {log.bootstrap_servers}", hint=UP))

    threading.Thread(target=watch_broker, name="away", daemon=True).start()
    try:
        yield
    finally:
        over.set()
