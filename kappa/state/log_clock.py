"""The log's clock of a build: the log time that all partitions of the build have reached. Pure.

The clock determines which rows have expired (kappa/declare/table.py). It is computed only from the
log times in a frontier, or in the mark of a commit. The clock is the lowest log time of all
partitions, and log times only rise. So a later record has a log time of at least the clock, and
does not contribute to a row that has already expired. This is true for every way in which the log
is cut into slices.

A partition without any record has no log time, and its first record may have any log time. While
such a partition exists, there is no clock: otherwise that first record could contribute to an
expired row, in some cuts of the log but not in others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.declare.topic_options import TopicKind
from kappa.state.build import Birth, TopicBirth

LogTimes = Mapping[str, Mapping[int, int]]


def log_clock(birth: Birth, log_time: LogTimes) -> int | None:
    """Returns the lowest log time over all partitions of the retained topics, in milliseconds.

    `log_time` contains the log time of each partition. Returns None if a partition has no record
    yet. Compacted topics do not count, because compaction removes records that would determine the
    clock.
    """
    return _least_log_time(
        (each for each in birth.topics if each.kind == TopicKind.RETAINED), log_time
    )


def topic_clock(birth: Birth, topic: str, log_time: LogTimes) -> int | None:
    """Returns the lowest log time over the partitions of a topic, in milliseconds.

    `log_time` contains the log time of each partition. Returns None if a partition has no record
    yet.
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
