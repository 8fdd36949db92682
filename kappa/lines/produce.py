"""The lines that `kappa produce` sends: each is an event, or an envelope.

An event's line is sent byte for byte, valid or not: the job decides that, and shows its rejects.
Blank lines are passed over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from kappa.base.errors import UsageError
from kappa.declare.parts.topic_kind import TopicKind
from kappa.declare.topic import Topic
from kappa.lines.envelope import EXAMPLE
from kappa.log.client import Log
from kappa.log.producer import Acknowledged, ProducedRecord


def produce_lines(
    log: Log,
    topic: str,
    lines: Iterable[bytes],
    record_of: Callable[[bytes], ProducedRecord],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Acknowledged:
    """Produces a record for every line, in order, and waits until all are acknowledged.

    A line that is no record, or too large for one, ends it: the lines before it are sent and
    acknowledged, none after it. The UsageError names the line and how many were acknowledged.
    """
    refused: list[UsageError] = []

    def until_refused() -> Iterator[ProducedRecord]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record = record_of(line.rstrip(b"\r\n"))
                _refuse_too_large(record, log.largest_record)
            except UsageError as error:
                refused.append(UsageError(f"line {number} {error.message}", hint=error.hint))
                return
            yield record

    acknowledged = log.produce(until_refused(), topic, on_progress=on_progress)
    if refused:
        raise UsageError(
            f"{refused[0].message}; {acknowledged.count} records before it were acknowledged, "
            "nothing after it was sent",
            hint=refused[0].hint,
        ) from refused[0]
    return acknowledged


def _refuse_too_large(record: ProducedRecord, most: int) -> None:
    size = len(record.value or b"") + len(record.key or b"")
    if size > most:
        raise UsageError(
            f"is a record of {size:,} bytes, and one has at most {most:,}",
            hint="for more, set message.max.bytes among kafka.options in kappa.toml, and the "
            "topic's max.message.bytes at the broker",
        )


def event_record(line: bytes, topic: Topic | None) -> ProducedRecord:
    """Returns an event as it is, with the topic's key field, if declared, as its Kafka key.

    Raises UsageError if a compacted topic's event has no key.
    """
    key = None if topic is None or topic.key is None else _key_in(line, topic.key)
    if topic is not None and topic.kind is TopicKind.COMPACTED and key is None:
        raise UsageError(
            f"has no {topic.key}, the key of the compacted topic {topic.name}",
            hint=f"give it one, or give the key with --envelope: {EXAMPLE}",
        )
    return ProducedRecord(line, key)


def _key_in(line: bytes, field: str) -> bytes | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = event.get(field) if isinstance(event, dict) else None
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return str(found).encode(errors="surrogatepass")
