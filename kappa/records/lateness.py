"""Lateness: a record whose event time lies too far before its own timestamp is rejected, and no other. Pure.

It is decided for each record alone, and from what the log says of it, so every replay decides the same (law 6). A watermark
would not: it depends on what was read before. Read next: kappa/records/record.py, which says what else is rejected.
"""

from __future__ import annotations

from collections.abc import Callable

from kappa.base.units import exact_duration
from kappa.declare.topic import Topic
from kappa.records.record import Row
from kappa.values.reason import Reason, Rejected


def lateness_of(topic: Topic) -> Callable[[Row, int], None] | None:
    """What rejects a valid row that is late, given its record's own timestamp in milliseconds since 1970; None where no lateness is declared."""
    if topic.lateness_ms is None:
        return None
    allowed, name = topic.lateness_ms * 1000, topic.event_time
    place = [column.name for column in topic.columns].index(name or "")

    def check(row: Row, timestamp_ms: int) -> None:
        event_time = row[place]
        if event_time is None:
            raise Rejected(
                Reason.MISSING, f"{name} is null or missing, and it says whether the record is late"
            )
        behind = timestamp_ms * 1000 - event_time
        if behind > allowed:
            raise Rejected(
                Reason.LATE,
                f"{name} lies {_told(behind)} before the record's timestamp, and {_told(allowed)} are allowed",
            )

    return check


def _told(micros: int) -> str:
    return exact_duration(micros // 1000) if micros % 1000 == 0 else f"{micros} microseconds"
