"""A topic's newest records as values, by partition, and how fast the log grows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kappa.log.reader import Record
from kappa.offsets import Offsets
from replay.desk import Desk
from replay.underway import Pace
from serving.problem import HttpError

_NEWEST = 8


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record as people see it; bytes that are no text as hexadecimal digits, None for null."""

    offset: int
    at: datetime
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: where its log begins and ends, and the newest records, newest first."""

    number: int
    begin: int
    end: int
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions."""

    name: str
    partitions: tuple[Partition, ...]


class Paces:
    """How fast topics grow, by looks at their ends: the first look tells nothing yet."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def rates(self, ends: Mapping[str, int | None], at: float) -> dict[str, float | None]:
        """Records a second, lately, by topic."""
        return {name: None if end is None else self._paces.setdefault(name, Pace()).rate(end, at) for name, end in ends.items()}


def newest_records(desk: Desk, name: str) -> TopicView:
    """The newest records of a topic. Raises HttpError where the broker has none of that name, Unreachable where it does not answer."""
    log = desk.reached()
    if name not in log.topics():
        raise HttpError(404, f"the broker has no topic {name[:80]}", hint="kappa topics create makes those that are declared")

    def look() -> TopicView:
        begin, end = log.beginning([name]), log.end([name])
        start = Offsets({name: {partition: max(begin.at(name, partition), last - _NEWEST) for _, partition, last in end.items()}})
        found: dict[int, list[Record]] = {partition: [] for _, partition, _ in end.items()}
        for record in log.records([name], start, end):
            found[record.partition].append(record)
        parts = (Partition(number, begin.at(name, number), end.at(name, number), tuple(map(_told, reversed(records)))) for number, records in sorted(found.items()))
        return TopicView(name, tuple(parts))

    return desk.look(f"records of {name}", look)


def _told(record: Record) -> LogRecord:
    return LogRecord(record.offset, datetime.fromtimestamp(record.timestamp_ms / 1000, UTC), as_text(record.key), as_text(record.value))


def as_text(content: bytes | None) -> str | None:
    """Bytes as people read them: text where they are UTF-8, else their hexadecimal digits."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"hex {content.hex(' ')}"
