"""A topic's newest records as values, by partition, and how fast the log grows.

Only records of topics that a build reads are shown: other topics of the cluster may be private.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.base.clock import moment_text
from kappa.kafka.reader import Record
from kappa.replay.rollout.supervisor_report import Pace
from kappa.replay.status.shared_looks import SharedLooks
from kappa.serving.http.problem import HttpError
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_NEWEST = 8
# Of so many partitions records are shown, and of each so many bytes: more fit no page.
_PARTITIONS = 16
_MOST_BYTES = 500


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A record for people; bytes that are no text as hexadecimal digits, None for null."""

    offset: int
    at: str
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: the begin and end in the log, and the newest records, newest first."""

    number: int
    begin: int
    end: int
    records: tuple[LogRecord, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic with its partitions; from partition `shown` on no records are shown."""

    name: str
    partitions: tuple[Partition, ...]
    shown: int = _PARTITIONS


class TopicRates:
    """The growth of topics, from looks at the ends of topics. The first look gives no rate yet."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def update_rates(self, ends: Mapping[str, int], at: float) -> dict[str, float | None]:
        """Returns recent offsets a second, by topic; `ends` are sums over a topic's partitions.

        For one caller at a time.
        """
        self._paces = {name: self._paces.get(name, Pace()) for name in ends}
        return {name: self._paces[name].rate(end, at) for name, end in ends.items()}


def topic_rates(desk: SharedLooks, paces: TopicRates) -> Mapping[str, float | None]:
    """Returns how fast topics grow. Raises Unreachable if the broker does not answer."""
    log = desk.must_reach_broker()
    return desk.shared_look(
        "rates of topics",
        lambda: paces.update_rates(_end_sums(log.topics(), log), time.monotonic()),
    )


def _end_sums(names: Iterable[str], log: Log) -> dict[str, int]:
    sums = dict.fromkeys(names, 0)
    for topic, _, end in log.end(sums).items():
        sums[topic] += end
    return sums


def newest_records(desk: SharedLooks, name: str) -> TopicView:
    """Returns the newest records of a topic.

    Raises HttpError if no build reads the topic or the broker has no topic of that name, and
    Unreachable if the broker does not answer.
    """
    log = desk.must_reach_broker()
    if not any(name in build.topics for build in desk.status().builds):
        raise HttpError(
            404,
            f"no build reads a topic {name[:80]}, so its records are not shown here",
            hint="kappa topics list tells which topics there are",
        )
    if name not in log.topics():
        raise HttpError(
            404,
            f"the broker has no topic {name[:80]}",
            hint="kappa topics create makes those that are declared",
        )

    def look() -> TopicView:
        begin, end = log.beginning([name]), log.end([name])
        found: dict[int, list[LogRecord]] = {partition: [] for _, partition, _ in end.items()}
        until = Offsets(
            {
                name: {
                    partition: last for _, partition, last in end.items() if partition < _PARTITIONS
                }
            }
        )
        start = Offsets(
            {
                name: {
                    partition: max(begin.at(name, partition), last - _NEWEST)
                    for _, partition, last in until.items()
                }
            }
        )
        for record in log.records([name], start, until):
            found[record.partition].append(_log_record(record))
        parts = (
            Partition(
                number, begin.at(name, number), end.at(name, number), tuple(reversed(records))
            )
            for number, records in sorted(found.items())
        )
        return TopicView(name, tuple(parts))

    return desk.shared_look(f"records of {name}", look)


def _log_record(record: Record) -> LogRecord:
    return LogRecord(
        record.offset,
        moment_text(record.timestamp_ms),
        as_text(record.key),
        as_text(record.value),
    )


def as_text(content: bytes | None) -> str | None:
    """Returns the first of these bytes for people: text if they are UTF-8, else hexadecimal."""
    if content is None:
        return None
    head = content[:_MOST_BYTES]
    try:
        # The cut may be within a character.
        shown = codecs.getincrementaldecoder("utf-8")().decode(
            head, final=len(content) <= _MOST_BYTES
        )
    except UnicodeDecodeError:
        shown = f"hex {head.hex(' ')}"
    return shown if len(content) <= _MOST_BYTES else f"{shown}…"
