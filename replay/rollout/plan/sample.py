"""Samples of a log: records of each partition's beginning, middle and end.

They are few enough that nobody waits for them. readable.py tries old events on such a sample, and
law.py the law of slices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Protocol

from kappa.kafka.reader import Record
from kappa.state.offsets import Offsets


class Where(StrEnum):
    """The place in its partition where a record was taken."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


class Sampled(Protocol):
    """The part of the broker's client that a sample needs."""

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def end(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]: ...  # noqa: D102  # as in Log


def sample(
    log: Sampled, begin: Offsets, end: Offsets, at_most: int
) -> Iterator[tuple[Where, Record]]:
    """Yields about `at_most` records between two vectors, in order of offsets per partition.

    If compaction or transactions have left a place empty, the records after the hole are taken.
    """
    found = list(pieces(begin, end, at_most))
    for where, (start, stop), upto in zip(
        Where, found, [*(start for start, _ in found[1:]), end], strict=True
    ):
        met: Counter[tuple[str, int]] = Counter()
        for record in log.records(stop.next, start, stop):
            met[record.topic, record.partition] += 1
            yield where, record
        for topic, partition, last in stop.items():
            width = last - start.at(topic, partition)
            if width > 0 and not met[topic, partition]:
                behind = log.records(
                    [topic],
                    Offsets({topic: {partition: last}}),
                    Offsets({topic: {partition: upto.at(topic, partition)}}),
                )
                yield from ((where, record) for record in islice(behind, width))


def pieces(begin: Offsets, end: Offsets, at_most: int) -> Iterator[tuple[Offsets, Offsets]]:
    """Yields three ranges, one after the other, with about `at_most` offsets together. Pure.

    They are the first offsets of all partitions, some in the middle, and the last.
    """
    parts = [
        (topic, partition, begin.at(topic, partition), stop)
        for topic, partition, stop in end.items()
    ]
    width = max(1, at_most // (3 * max(1, len(parts))))
    reached = begin
    for third in range(3):
        start: dict[str, dict[int, int]] = {}
        stop: dict[str, dict[int, int]] = {}
        for topic, partition, first, last in parts:
            here = max(reached.at(topic, partition), first + (last - first - width) * third // 2)
            start.setdefault(topic, {})[partition] = min(here, last)
            stop.setdefault(topic, {})[partition] = min(here + width, last)
        reached = Offsets(stop)
        yield Offsets(start), reached
