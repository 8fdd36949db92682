"""A record as people read it: decoded as its topic is declared, or refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kappa.base.clock import moment_text
from kappa.base.errors import UsageError
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Array, Scalar, Struct, Type
from kappa.declare.values.reason import Rejected
from kappa.kafka.producer import ProducedRecord
from kappa.kafka.reader import Record
from kappa.records.keys import KeyReader
from kappa.records.lines.written import envelope_line
from kappa.records.record import RecordReader, Removal, Tombstone
from kappa.serving.query.render import cell, plain
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WAIT_SECONDS = 0.5
Decode = Callable[[Record], "SeenRecord"]


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record with its event, or the reason why it is no valid one; neither: it is raw."""

    record: Record
    event: dict[str, Any] | None = None
    reject: str | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        """Returns its time and place, by which records of several partitions are in order."""
        return self.record.timestamp_ms, self.record.partition, self.record.offset

    @property
    def beside(self) -> dict[str, Any]:
        """Returns what a line has beside the record itself, if it is known."""
        found = {"event": self.event, "reject": self.reject}
        return {
            "offset": self.record.offset,
            **{name: each for name, each in found.items() if each is not None},
        }


def decoder_of(topic: Topic | None) -> Decode:
    """Returns how records of a topic are decoded; without a declaration they stay raw.

    Only what the declaration says of one record is looked at: not lateness, nor duplicates.
    """
    if topic is None:
        return SeenRecord
    reader, columns = RecordReader(topic), topic.columns

    def decode(record: Record) -> SeenRecord:
        try:
            row = reader.read(record.key, record.value)
        except Rejected as error:
            return SeenRecord(record, reject=f"{error.reason}: {error.detail}")
        if isinstance(row, Tombstone):
            return SeenRecord(record)
        if isinstance(row, Removal):
            row = row.row
        return SeenRecord(
            record,
            {
                column.name: plain(_shown(value, column.type))
                for column, value in zip(columns, row, strict=True)
            },
        )

    return decode


def _shown(value: Any, kind: Type) -> Any:
    """Returns a value of a row as readers of tables see it."""
    if value is None:
        return None
    match kind:
        case Scalar(name="timestamp"):
            return _EPOCH + timedelta(microseconds=value)
        case Scalar(name="date"):
            return date(1970, 1, 1) + timedelta(days=value)
        case Array():
            return [_shown(each, kind.element) for each in value]
        case Struct():
            return {each.name: _shown(value[each.name], each.type) for each in kind.fields}
        case _:
            return value


def filter_of(
    key: str | None, conditions: Sequence[str], topic: Topic | None
) -> Callable[[SeenRecord], bool]:
    """Returns whether a record is wanted: by its key, and by `FIELD=VALUE` of its event.

    Keys that have a format, or are a change's, are compared by their value. Raises UsageError for a
    condition on no column of the declaration.
    """
    wanted = [_condition(each, topic) for each in conditions]
    has_key = None if key is None else _key_filter(key, topic)

    def is_wanted(seen: SeenRecord) -> bool:
        if has_key is not None and not has_key(seen.record.key):
            return False
        event = seen.event
        return not wanted or (
            event is not None and all(_text(event[name]) == value for name, value in wanted)
        )

    return is_wanted


def _key_filter(wanted: str, topic: Topic | None) -> Callable[[bytes | None], bool]:
    has_format = topic is not None and (topic.key_format is not None or topic.has_changes)
    if topic is None or topic.key is None or not has_format:
        text = wanted.encode()
        return lambda key: key == text
    value_of = KeyReader(topic).value

    def has_key(key: bytes | None) -> bool:
        try:
            return str(value_of(key)) == wanted
        except Rejected:
            return False

    return has_key


def _text(value: Any) -> str:
    return value if isinstance(value, str) else cell(value)


def _condition(text: str, topic: Topic | None) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no condition", hint="write FIELD=VALUE: --where carrier=UA")
    if topic is None:
        raise UsageError(
            f"the project does not declare the topic, so {name} is no field that is known",
            hint="leave --where out; --key KEY works without a declaration",
        )
    if name not in {column.name for column in topic.columns}:
        raise UsageError(
            f"topic {topic.name} has no field {name}",
            hint=f"it has {', '.join(column.name for column in topic.columns)}",
        )
    return name, value


def following(
    log: Log, topic: str, start: Offsets, ends: Callable[[], Offsets]
) -> Iterator[Record]:
    """Yields the records from `start` on, for ever: as they are committed."""
    with log.reader() as reader:
        at = start
        while True:
            end = ends()
            at = Offsets({topic: {part: at.at(topic, part) for _, part, _ in end.items()}})
            if end.distance(at):
                yield from reader.read(at, end.highest(at))
                at = end.highest(at)
            else:
                reader.wait_beyond(at, _WAIT_SECONDS)


def seen_text(seen: SeenRecord) -> str:
    """Returns a record for people, in a line: its place, time, key and value.

    In place of a value that is no text is the event that it is.
    """
    record = seen.record
    place = f"{record.partition}@{record.offset}  {moment_text(record.timestamp_ms)}"
    headers = "".join(f"  {name}:{cell(value)}" for name, value in record.headers)
    refused = "" if seen.reject is None else f"  rejected, {seen.reject}"
    is_shown = seen.event is None or _is_text(record.value)
    value = cell(record.value) if is_shown else json.dumps(seen.event, ensure_ascii=False)
    return f"{place}  {cell(record.key)}  {value}{headers}{refused}\n"


def _is_text(value: bytes | None) -> bool:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each.isspace() for each in text)


def seen_line(seen: SeenRecord) -> str:
    """Returns a record as a line of JSON, which is an envelope with its offset and event."""
    return f"{envelope_line(as_produced(seen.record), beside=seen.beside)}\n"


def as_produced(record: Record) -> ProducedRecord:
    """Returns a record as it is produced again."""
    timestamp = record.timestamp_ms if record.timestamp_ms >= 0 else None
    return ProducedRecord(record.value, record.key, timestamp, record.headers, record.partition)
