"""The records of a topic: a range of records, as text for display, and in files.

A record is decoded as the topic is declared, or rejected with a reason. Exported files are Parquet
or lines of JSON. An import produces the exported records again, byte for byte: keys, values,
headers, and timestamps if the topic keeps the timestamps of producers. The imported records have
new offsets. Their partitions are computed from the keys, or, on request, are those of the export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec.structs import replace

from kappa.base.clock import moment_text
from kappa.base.errors import UsageError
from kappa.declare.topic import Topic
from kappa.declare.values.columns import Array, Scalar, Struct, Type
from kappa.declare.values.reason import Rejected
from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.kafka.reader import Record
from kappa.records.keys import KeyReader
from kappa.records.lines.envelope import envelope_line, envelope_record
from kappa.records.lines.produce import produce_lines
from kappa.records.record import RecordReader, Removal, Tombstone
from kappa.serving.query.pin.moments import parse_offsets, parse_time
from kappa.serving.query.render import cell_text, json_value
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WAIT_SECONDS = 0.5
_BEGINNING, _END = "beginning", "end"
_OFFSET = re.compile(r"[0-9]{1,19}")
_STEP = 5_000
PARQUET = ".parquet"


Decode = Callable[[Record], "SeenRecord"]


# Shows progress after so many records.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record with its event, or with the reason why it is rejected.

    If the record was not decoded, or is a tombstone, `event` and `reject` are None.
    """

    record: Record
    event: dict[str, Any] | None = None
    reject: str | None = None

    @property
    def order_key(self) -> tuple[int, int, int]:
        """Returns (timestamp, partition, offset), the key by which records are sorted."""
        return self.record.timestamp_ms, self.record.partition, self.record.offset

    @property
    def extra_fields(self) -> dict[str, Any]:
        """Returns the fields of an exported line that are not part of the record itself.

        These are `offset`, and `event` or `reject` if known.
        """
        found = {"event": self.event, "reject": self.reject}
        return {
            "offset": self.record.offset,
            **{name: each for name, each in found.items() if each is not None},
        }


def begin_of(log: Log, topic: str, start: str | None) -> Offsets:
    """Returns the offsets at which reading begins, from the user's text `start`.

    `start` is `beginning`, `end`, an offset for every partition, offsets by partition, or a time.
    None means the beginning. An offset before the beginning of the log means the beginning. Raises
    UsageError for any other text.
    """
    log.must_have(topic)
    beginning = log.beginning([topic])
    if start is None or start == _BEGINNING:
        return beginning
    if start == _END:
        return log.end([topic])
    if _OFFSET.fullmatch(start):
        return Offsets({topic: dict.fromkeys(beginning.next[topic], int(start))}).highest_with(
            beginning
        )
    if "=" in start:
        found = parse_offsets(start if ":" in start else f"{topic}:{start}")
        if set(found.next) != {topic}:
            raise UsageError(
                f"{start!r} is of another topic than {topic}",
                hint=f"write {topic}:0=1000, with a comma before the next partition",
            )
        return found.highest_with(beginning)
    time, _ = parse_time(start)
    return log.at_time([topic], int(time.timestamp() * 1000)).highest_with(beginning)


def ends_of_partitions(topic: str, end: Offsets, partitions: Sequence[int]) -> Offsets:
    """Returns the end offsets of the given partitions, or of all if `partitions` is empty.

    Raises UsageError if the topic does not have one of the partitions.
    """
    there = end.next.get(topic, {})
    unknown = [each for each in partitions if each not in there]
    if unknown:
        raise UsageError(
            f"topic {topic} has no partition {unknown[0]}", hint=f"it has 0 to {len(there) - 1}"
        )
    return Offsets(
        {
            topic: {
                part: last for part, last in there.items() if not partitions or part in partitions
            }
        }
    )


def newest_offsets(topic: str, begin: Offsets, end: Offsets, count: int) -> Offsets:
    """Returns, for each partition, the offset at which its newest `count` offsets begin."""
    return Offsets(
        {topic: {part: max(begin.at(topic, part), last - count) for _, part, last in end.items()}}
    )


def following(
    log: Log, topic: str, start: Offsets, ends: Callable[[], Offsets]
) -> Iterator[Record]:
    """Yields the records from `start` on, and waits for new records, forever.

    `ends` returns the current ends of the partitions.
    """
    with log.reader() as reader:
        at = start
        while True:
            end = ends()
            at = Offsets({topic: {part: at.at(topic, part) for _, part, _ in end.items()}})
            if end.distance(at):
                yield from reader.read(at, end.highest_with(at))
                at = end.highest_with(at)
            else:
                reader.wait_beyond(at, _WAIT_SECONDS)


def decoder_of(topic: Topic | None) -> Decode:
    """Returns a function that decodes a record of a topic as declared.

    If `topic` is None, the function does not decode records. The function applies only rules that
    concern a single record: it does not detect late records or duplicates.
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
                column.name: json_value(_shown_value(value, column.type))
                for column, value in zip(columns, row, strict=True)
            },
        )

    return decode


def _shown_value(value: Any, kind: Type) -> Any:
    """Converts a value of a row to the Python type that readers of tables get."""
    if value is None:
        return None
    match kind:
        case Scalar(name="timestamp"):
            return _EPOCH + timedelta(microseconds=value)
        case Scalar(name="date"):
            return date(1970, 1, 1) + timedelta(days=value)
        case Array():
            return [_shown_value(each, kind.element) for each in value]
        case Struct():
            return {each.name: _shown_value(value[each.name], each.type) for each in kind.fields}
        case _:
            return value


def filter_of(
    key: str | None, conditions: Sequence[str], topic: Topic | None
) -> Callable[[SeenRecord], bool]:
    """Returns a filter for records, by `key` and by `FIELD=VALUE` conditions on the event.

    If the topic's keys have a format, or are the keys of changes, keys are compared by value, and
    otherwise by bytes. Raises UsageError if a condition does not name a declared column.
    """
    wanted = [_parse_condition(each, topic) for each in conditions]
    has_key = None if key is None else _key_filter(key, topic)

    def is_wanted(seen: SeenRecord) -> bool:
        if has_key is not None and not has_key(seen.record.key):
            return False
        event = seen.event
        return not wanted or (
            event is not None and all(_value_text(event[name]) == value for name, value in wanted)
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


def _value_text(value: Any) -> str:
    return value if isinstance(value, str) else cell_text(value)


def _parse_condition(text: str, topic: Topic | None) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(
            f"{text!r} is not a condition", hint="write FIELD=VALUE: --where carrier=UA"
        )
    if topic is None:
        raise UsageError(
            f"the project does not declare the topic, so the field {name} is not known",
            hint="leave --where out; --key KEY works without a declaration",
        )
    if name not in {column.name for column in topic.columns}:
        raise UsageError(
            f"topic {topic.name} has no field {name}",
            hint=f"it has {', '.join(column.name for column in topic.columns)}",
        )
    return name, value


def seen_text(seen: SeenRecord) -> str:
    """Formats a record as one line for display: position, time, key and value.

    If the value is not text, the line contains the event instead.
    """
    record = seen.record
    place = f"{record.partition}@{record.offset}  {moment_text(record.timestamp_ms)}"
    headers = "".join(f"  {name}:{cell_text(value)}" for name, value in record.headers)
    refused = "" if seen.reject is None else f"  rejected, {seen.reject}"
    is_shown = seen.event is None or _is_text(record.value)
    value = cell_text(record.value) if is_shown else json.dumps(seen.event, ensure_ascii=False)
    return f"{place}  {cell_text(record.key)}  {value}{headers}{refused}\n"


def _is_text(value: bytes | None) -> bool:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return all(each.isprintable() or each.isspace() for each in text)


def seen_line(seen: SeenRecord) -> str:
    """Formats a record as a line of JSON, with the record's offset and event."""
    return f"{envelope_line(as_produced(seen.record), beside=seen.extra_fields)}\n"


def as_produced(record: Record) -> ProducedRecord:
    """Converts a record that was read to a record that can be produced."""
    timestamp = record.timestamp_ms if record.timestamp_ms >= 0 else None
    return ProducedRecord(record.value, record.key, timestamp, record.headers, record.partition)


def export_lines(records: Iterable[Record], decode: Decode, file: BinaryIO) -> int:
    """Writes records as lines of JSON. Returns the number of records."""
    count = 0
    for record in records:
        file.write(seen_line(decode(record)).encode())
        count += 1
    return count


def export_parquet(
    records: Iterable[Record], decode: Decode, file: BinaryIO, *, decoded: bool
) -> int:
    """Writes records as a Parquet file. Returns the number of records.

    With `decoded`, the file also contains the columns `event` and `reject`.
    """
    from kappa.records.lines.parquet import write_records  # noqa: PLC0415  # it takes Arrow

    return write_records(file, (_placed_record(decode(each)) for each in records), decoded=decoded)


def count_records(records: Iterable[Record], show: Progress) -> Iterator[Record]:
    """Yields the records, and calls `show` with the number so far at each 5,000 records."""
    for number, record in enumerate(records):
        if number % _STEP == 0:
            show(number)
        yield record


def import_lines(
    log: Log, topic: str, lines: Iterable[bytes], *, partitions: bool, show: Progress
) -> Acknowledged:
    """Produces the records of exported lines, in order.

    If `partitions` is True, each record is produced to the partition that its line names.
    """

    def record_of(line: bytes) -> ProducedRecord:
        return _placed_by(envelope_record(line), partitions=partitions)

    return produce_lines(log, topic, lines, record_of, on_progress=show)


def import_parquet(
    log: Log, topic: str, path: Path, *, partitions: bool, show: Progress
) -> Acknowledged:
    """Produces the records of an exported Parquet file, in order, as `import_lines` does."""
    from kappa.records.lines.parquet import read_records  # noqa: PLC0415  # it takes Arrow

    records = (_placed_by(each, partitions=partitions) for each in read_records(path))
    return log.produce(records, topic, on_progress=show)


def _placed_by(record: ProducedRecord, *, partitions: bool) -> ProducedRecord:
    return record if partitions else replace(record, partition=None)


def _placed_record(seen: SeenRecord) -> tuple[ProducedRecord, int, str | None, str | None]:
    event = None if seen.event is None else json.dumps(seen.event, ensure_ascii=False)
    return as_produced(seen.record), seen.record.offset, event, seen.reject
