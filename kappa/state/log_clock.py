"""The log's clock of a build: the log time that all its partitions have reached. Pure.

The clock decides which rows have expired (kappa/declare/table.py). It follows from the log times in
marks and frontiers, so every frontier has a clock. The clock is at most the log time of each
partition, and log times only rise. A later record has at least that log time, and contributes to no
row that has expired by then. So no later record can reach an expired row, however the log is cut
into slices. A partition without any record has no log time, and its first record may have any log
time. If such a partition were ignored, that record could reach an expired row in some ways of
cutting and not in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.declare.topic_options import TopicKind
from kappa.state.build import Birth, TopicBirth

LogTimes = Mapping[str, Mapping[int, int]]


def log_clock(birth: Birth, log_time: LogTimes) -> int | None:
    """Returns the least log time over all partitions of the retained topics, in milliseconds.

    Returns None while a partition has no record. Compacted topics do not count, since compaction
    removes records that would decide the clock.
    """
    return _least_log_time(
        (each for each in birth.topics if each.kind == TopicKind.RETAINED), log_time
    )


def topic_clock(birth: Birth, topic: str, log_time: LogTimes) -> int | None:
    """Returns the least log time over the partitions of a topic, in milliseconds.

    Returns None while a partition has no record.
    """
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
