"""Creates and sends the records of `kappa produce`: lines, envelopes, or events.

A line in the topic's format is sent unchanged, whether or not it is valid: the job decides
validity, and shows the rejects. Blank lines are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from kappa.base.errors import UsageError
from kappa.declare.formats.csv_events import Csv
from kappa.declare.formats.topic_formats import changes_of
from kappa.declare.topic import Topic
from kappa.declare.topic_options import TopicKind
from kappa.declare.values.reason import Rejected
from kappa.kafka.client import Log
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.records.keys import written_key
from kappa.records.lines.envelope import EXAMPLE
from kappa.records.lines.events import EventWriter
from kappa.records.lines.form import Given
from kappa.records.lines.input_events import Placed, csv_events, placed_lines


def produce_lines(
    log: Log,
    topic: str,
    lines: Iterable[bytes],
    record_of: Callable[[bytes], ProducedRecord],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Acknowledged:
    """Produces a record for every line that is not blank, as `produce_placed` does.

    `record_of` creates the record from the line.
    """
    return produce_placed(log, topic, placed_lines(lines, record_of), on_progress=on_progress)


def produce_placed(
    log: Log,
    topic: str,
    records: Iterable[Placed],
    *,
    on_progress: Callable[[int], None] | None = None,
) -> Acknowledged:
    """Produces records in order, and waits until all are acknowledged.

    `records` yields pairs (place, record). Stops at the first record that is too large, or at which
    `records` raises a UsageError. The records before it are sent and acknowledged, and no record
    after it is sent. Then raises UsageError, which names the place of that record and the number of
    acknowledged records.
    """
    refused: list[UsageError] = []

    def until_refused() -> Iterator[ProducedRecord]:
        try:
            for place, record in records:
                _refuse_too_large(place, record, log.largest_record)
                yield record
        except UsageError as error:
            refused.append(error)

    acknowledged = log.produce(until_refused(), topic, on_progress=on_progress)
    if refused:
        count = acknowledged.count
        before = "1 record before it was" if count == 1 else f"{count} records before it were"
        raise UsageError(
            f"{refused[0].message}; {before} acknowledged, nothing after it was sent",
            hint=refused[0].hint,
        ) from refused[0]
    return acknowledged


def _refuse_too_large(place: str, record: ProducedRecord, most: int) -> None:
    size = len(record.value or b"") + len(record.key or b"")
    if size > most:
        raise UsageError(
            f"{place} is a record of {size:,} bytes, and one has at most {most:,}",
            hint="for more, set message.max.bytes among kafka.options in kappa.toml, and the "
            "topic's max.message.bytes at the broker",
        )


def placed_events(
    form: Given, topic: Topic, lines: Iterable[bytes], file: str = ""
) -> Iterator[Placed]:
    """Yields pairs (place, record) for the lines of a file, in the topic's format.

    `form` is the form of the lines. The place is a text like `orders.csv line 7`.
    """
    match form:
        case Given.LINES:
            return placed_lines(lines, line_records(topic), file)
        case Given.CSV:
            return csv_events(topic, lines, file)
        case _:
            return placed_lines(lines, EventWriter(topic).of_json, file)


def line_records(topic: Topic | None) -> Callable[[bytes], ProducedRecord]:
    """Returns the function that creates a record from an unchanged line.

    This is the function that `event_records` returns. But for a topic in CSV, the function also
    raises UsageError if the first line is a header.
    """
    record_of = event_records(topic)
    if topic is None or not isinstance(topic.format, Csv):
        return record_of
    fields_of, is_first = topic.format.event_reader(topic.columns).fields, [True]

    def record(line: bytes) -> ProducedRecord:
        if is_first:
            is_first.clear()
            with suppress(Rejected):
                if all(name == value for name, value in fields_of(line).items()):
                    raise UsageError(
                        f"names the fields of topic {topic.name}, and is not an event",
                        hint="a file with a header is read by: --from csv",
                    )
        return record_of(line)

    return record


def event_records(topic: Topic | None) -> Callable[[bytes], ProducedRecord]:
    """Returns the function that creates a record from the unchanged line of an event.

    The record's Kafka key is the value of the topic's key column, if the topic declares one. The
    function raises UsageError if an event of a compacted topic has no key. `event_records` itself
    raises UsageError if the topic's records are changes of a database.
    """
    if topic is None or topic.key is None:
        return ProducedRecord
    if changes_of(topic.format) is not None:
        raise UsageError(
            f"topic {topic.name} has a database's changes, and a change alone has no key",
            hint=f"give each its key with --envelope: {EXAMPLE}",
        )
    fields_of, key, is_compacted = (
        topic.format.event_reader(topic.columns).fields,
        topic.key,
        topic.kind is TopicKind.COMPACTED,
    )

    def record(line: bytes) -> ProducedRecord:
        found = _key_in(fields_of, line, topic, key)
        if found is None and is_compacted:
            raise UsageError(
                f"has no {key}, the key of the compacted topic {topic.name}",
                hint=f"give it one, or give the key with --envelope: {EXAMPLE}",
            )
        return ProducedRecord(line, found)

    return record


def _key_in(
    fields_of: Callable[[bytes], Mapping[str, Any]], line: bytes, topic: Topic, field: str
) -> bytes | None:
    try:
        found = fields_of(line).get(field)
    except Rejected:
        return None
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return written_key(topic, found)
