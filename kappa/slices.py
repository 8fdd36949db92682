"""Slices: half-open ranges `[start, end)` of offsets, and how a long range is cut into them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kappa.offsets import Offsets


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows between two vectors; `number` counts within its leg, from 0."""

    leg: int
    number: int
    start: Offsets
    end: Offsets

    @property
    def distance(self) -> int:
        """How many offsets the slice spans."""
        return self.end.distance(self.start)


def cut(leg: int, start: Offsets, end: Offsets, *, at_most: int) -> Iterator[Slice]:
    """Cuts `[start, end)` into contiguous slices of at most about `at_most` offsets, partitions moving together.

    Each partition gets a share proportional to what it still has, so that all of them end with the last slice.
    Yields nothing where nothing lies between.
    """
    total = end.distance(start)
    pieces = -(-total // at_most)
    before = start
    for number in range(pieces):
        after = _part_way(start, end, number + 1, pieces)
        yield Slice(leg=leg, number=number, start=before, end=after)
        before = after


def _part_way(start: Offsets, end: Offsets, part: int, parts: int) -> Offsets:
    way: dict[str, dict[int, int]] = {}
    for topic, partition, last in end.items():
        first = start.at(topic, partition)
        way.setdefault(topic, {})[partition] = first + (last - first) * part // parts
    return Offsets(way)
