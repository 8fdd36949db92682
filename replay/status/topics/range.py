"""The records of a topic that are meant: from where to where, and of which partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.base.errors import UsageError
from kappa.serving.query.pin.moments import parse_offsets, parse_time
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_BEGINNING, _END = "beginning", "end"
_OFFSET = re.compile(r"[0-9]{1,19}")


def begin_of(log: Log, topic: str, start: str | None) -> Offsets:
    """Returns where reading begins; `start` is as a user wrote it, None: the beginning.

    That is `beginning`, `end`, an offset of every partition, offsets by partition, or a time.
    Nothing before the log's beginning is meant. Raises UsageError if it is none of these.
    """
    log.must_have(topic)
    beginning = log.beginning([topic])
    if start is None or start == _BEGINNING:
        return beginning
    if start == _END:
        return log.end([topic])
    if _OFFSET.fullmatch(start):
        return Offsets({topic: dict.fromkeys(beginning.next[topic], int(start))}).highest(beginning)
    if "=" in start:
        found = parse_offsets(start if ":" in start else f"{topic}:{start}")
        if set(found.next) != {topic}:
            raise UsageError(
                f"{start!r} is of another topic than {topic}",
                hint=f"write {topic}:0=1000, with a comma before the next partition",
            )
        return found.highest(beginning)
    time, _ = parse_time(start)
    return log.at_time([topic], int(time.timestamp() * 1000)).highest(beginning)


def of_partitions(topic: str, end: Offsets, partitions: Sequence[int]) -> Offsets:
    """Returns the end for some partitions, or for all if none is named.

    Raises UsageError for a partition that the topic does not have.
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


def newest(topic: str, begin: Offsets, end: Offsets, count: int) -> Offsets:
    """Returns where the newest `count` offsets of each partition begin."""
    return Offsets(
        {topic: {part: max(begin.at(topic, part), last - count) for _, part, last in end.items()}}
    )
