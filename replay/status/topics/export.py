"""The records of a topic in a file, as Parquet or lines of JSON, and back into a topic.

What is put back is what was exported, byte for byte: keys, values, headers, and times where the
topic has its producers'. Offsets are others; partitions are those of the keys, or kept on wish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from kappa.kafka.producer import Acknowledged, ProducedRecord
from kappa.kafka.reader import Record
from kappa.records.lines.envelope import envelope_record
from kappa.records.lines.produce import produce_lines
from kappa.replay.status.topics.tail import Decode, SeenRecord, as_produced, seen_line

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_STEP = 5_000
PARQUET = ".parquet"
# Returns what is shown of so many records.
Progress = Callable[[int], None]


def export_lines(records: Iterable[Record], decode: Decode, file: BinaryIO) -> int:
    """Writes records as lines of JSON; returns how many."""
    count = 0
    for record in records:
        file.write(seen_line(decode(record)).encode())
        count += 1
    return count


def export_parquet(
    records: Iterable[Record], decode: Decode, file: BinaryIO, *, decoded: bool
) -> int:
    """Writes records as a Parquet file; returns how many."""
    from kappa.records.lines.parquet import write_records  # noqa: PLC0415  # it takes Arrow

    return write_records(file, (_placed(decode(each)) for each in records), decoded=decoded)


def counted(records: Iterable[Record], show: Progress) -> Iterator[Record]:
    """Yields records, and shows how many there were now and then."""
    for number, record in enumerate(records):
        if number % _STEP == 0:
            show(number)
        yield record


def import_lines(
    log: Log, topic: str, lines: Iterable[bytes], *, partitions: bool, show: Progress
) -> Acknowledged:
    """Produces the records of exported lines, in order. `partitions`: each to its own."""

    def record_of(line: bytes) -> ProducedRecord:
        return _placed_by(envelope_record(line), partitions=partitions)

    return produce_lines(log, topic, lines, record_of, on_progress=show)


def import_parquet(
    log: Log, topic: str, path: Path, *, partitions: bool, show: Progress
) -> Acknowledged:
    """Produces the records of an exported Parquet file, in order."""
    from kappa.records.lines.parquet import read_records  # noqa: PLC0415  # it takes Arrow

    records = (_placed_by(each, partitions=partitions) for each in read_records(path))
    return log.produce(records, topic, on_progress=show)


def _placed_by(record: ProducedRecord, *, partitions: bool) -> ProducedRecord:
    return record if partitions else replace(record, partition=None)


def _placed(seen: SeenRecord) -> tuple[ProducedRecord, int, str | None, str | None]:
    event = None if seen.event is None else json.dumps(seen.event, ensure_ascii=False)
    return as_produced(seen.record), seen.record.offset, event, seen.reject
