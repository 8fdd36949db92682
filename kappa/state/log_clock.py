"""The log's clock of a build: the time that all of its log has passed. Pure.

The clock decides which rows are gone (kappa/declare/table.py). The clock follows from the log
times that marks and frontiers carry, so every frontier has a clock. The clock is at most the log
time of each partition, which only rises. A later record has at least that log time, and contributes
to no row that is gone by that time. So no later record can reach a row that is gone at a frontier,
however the log is cut into slices. A partition without any record has no log time yet, and the
first record may have any log time. If that partition were left out, the record could reach a row
that is gone in some slicings and not in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.declare.topic_options import TopicKind
from kappa.state.build import Birth, TopicBirth

LogTimes = Mapping[str, Mapping[int, int]]


def log_clock(birth: Birth, log_time: LogTimes) -> int | None:
    """Returns the least log time over all partitions of the retained topics, in milliseconds.

    Returns None while a partition has no record. Compacted topics do not count, since compaction
    takes away records that decide the clock.
    """
    return _least_log_time(
        (each for each in birth.topics if each.kind == TopicKind.RETAINED), log_time
    )


def topic_clock(birth: Birth, topic: str, log_time: LogTimes) -> int | None:
    """Returns the least log time over the partitions of one topic, or None as `log_clock`."""
    return _least_log_time((each for each in birth.topics if each.name == topic), log_time)


def _least_log_time(topics: Iterable[TopicBirth], log_time: LogTimes) -> int | None:
    least: list[int] = []
    for topic in topics:
        known = log_time.get(topic.name, {})
        # A partition that was added later counts from its first record on (next_mark.py).
        if not known.keys() >= set(range(topic.partitions)):
            return None
        least += known.values()
    return min(least, default=None)
