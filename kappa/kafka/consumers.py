"""The settings and errors of the consumers that read exact ranges of offsets.

Both readers, reader.py and bulk_reader.py, use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from confluent_kafka import KafkaError, KafkaException

from kappa.base.errors import Broken, Unreachable
from kappa.kafka.acl import READERS, topic
from kappa.kafka.broker_requests import PATIENCE_SECONDS
from kappa.state.offsets import Offsets

# Raises the error that a broker's error means; the text names the failed action, and the rules are
# the rules for that action.
Refuse = Callable[..., NoReturn]

# Kafka demands a group's name; no consumer ever commits under this name.
EXACT = {
    "group.id": READERS,
    "enable.auto.commit": "false",
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
}
# A bounded range ends soon, and records fetched beyond it are wasted. With a full queue librdkafka
# would by default fetch again only after a second.
BOUNDED = {"queued.min.messages": 20_000, "fetch.queue.backoff.ms": 5}

Part = tuple[str, int]


def check_error(error: KafkaError, part: Part, refuse: Refuse) -> None:
    """Raises Kappa's error for a message that is an error instead of a record.

    Does nothing if the message means that the end of the partition is reached.
    """
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        raise Broken(
            f"the log no longer has what was to be read of {part[0]} partition {part[1]}: "
            f"{error.str()}",
            hint="see kappa topics list; kappa replay begins at what is there",
        )
    if error.code() != KafkaError._PARTITION_EOF:
        refuse(
            KafkaException(error),
            f"{part[0]} partition {part[1]} could not be read",
            topic(part[0], "Read"),
        )


def unreachable(parts: Iterable[Part], end: Offsets | int) -> Unreachable:
    """Returns the error for partitions from which no records arrive before the offset `end`."""
    where = ", ".join(f"{topic} partition {partition}" for topic, partition in sorted(parts))
    return Unreachable(
        f"nothing came from {where} for {PATIENCE_SECONDS:.0f} seconds before offset {end}",
        hint="see the broker's log: kappa logs broker",
    )
