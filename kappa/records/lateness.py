"""Lateness: a record is rejected if its event time is too far before its timestamp. Pure.

The decision depends only on the record itself, so every replay makes the same decision. A decision
by a watermark would depend on the records that were read before.
"""

from __future__ import annotations

from collections.abc import Callable

from kappa.base.units import exact_duration
from kappa.declare.topic import Topic
from kappa.declare.values.reason import Reason, Rejected
from kappa.records.record import Row


def lateness_of(topic: Topic) -> Callable[[Row, int], None] | None:
    """Returns the function that checks a record's lateness.

    Returns None if the topic declares no lateness. The arguments of the function are a valid row
    and the record's timestamp in milliseconds since 1970. The function raises Rejected if the
    record is late, or if its event time is null.
    """
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
                f"{name} lies {_duration_text(behind)} before the record's timestamp, "
                f"and {_duration_text(allowed)} are allowed",
            )

    return check


def _duration_text(micros: int) -> str:
    return exact_duration(micros // 1000) if micros % 1000 == 0 else f"{micros} microseconds"
