"""Samples a log: records of each partition's beginning, middle and end, few enough that nobody waits for them.

What a plan promises of old events is tried on such a sample (readable.py), and the law of slices too (law.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from typing import Protocol

from kappa.log.reader import Record
from kappa.state.offsets import Offsets


class Where(StrEnum):
    """Where in its partition a record was taken."""

    BEGINNING = "beginning"
    MIDDLE = "middle"
    END = "end"


class Sampled(Protocol):
    """Of the broker's client, what a sample takes."""

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def end(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def records(self, topics: Iterable[str], start: Offsets, end: Offsets) -> Iterator[Record]: ...  # noqa: D102  # as in Log


def sample(
    log: Sampled, begin: Offsets, end: Offsets, at_most: int
) -> Iterator[tuple[Where, Record]]:
    """About `at_most` records between two vectors, in the order of offsets within each partition.

    Where compaction or transactions have left a place empty, the records behind the hole are taken instead.
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
    """Three ranges, one after the other, that together hold about `at_most` offsets: of all partitions the first, some in the middle, the last. Pure."""
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
