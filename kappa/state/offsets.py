"""Offsets: for every partition of every topic, the NEXT offset to read.

End offsets are exclusive, as in Kafka and Spark. A partition that is missing in a vector has the
offset 0. This module does no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from kappa.base.errors import Damaged


class Offsets:
    """A vector of next offsets, `{topic: {partition: offset}}`.

    A vector is immutable by convention. Vectors with equal content are equal.
    """

    # Not a dataclass, whose form in records would be msgspec's (kappa/state/documents.py).
    __slots__ = ("next",)
    __hash__ = None  # type: ignore[assignment]  # mappings have none
    next: Mapping[str, Mapping[int, int]]

    def __init__(self, next_offsets: Mapping[str, Mapping[int, int]] | None = None, /) -> None:
        self.next = next_offsets or {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Offsets) and self.next == other.next

    def __repr__(self) -> str:
        return f"Offsets({self.next!r})"

    @classmethod
    def parse(cls, plain: Any) -> Self:
        """Parses the plain form (`{topic: {"0": 12}}`, as in Spark), or its JSON text.

        Raises Damaged for any other form.
        """
        if isinstance(plain, cls):
            return plain
        try:
            given = json.loads(plain) if isinstance(plain, str | bytes) else plain
            return cls(
                {
                    str(topic): {int(p): int(o) for p, o in parts.items()}
                    for topic, parts in given.items()
                }
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise Damaged(f"these are not offsets: {str(plain)[:200]}") from error

    @classmethod
    def zero(cls, partitions: Mapping[str, int]) -> Self:
        """Returns the vector with offset 0 in all partitions.

        `partitions` contains the number of partitions of each topic.
        """
        return cls({topic: dict.fromkeys(range(count), 0) for topic, count in partitions.items()})

    @classmethod
    def of_partitions(cls, offsets: Mapping[tuple[str, int], int]) -> Self:
        """Returns the vector for a mapping from (topic, partition) to the next offset."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), offset in offsets.items():
            found.setdefault(topic, {})[partition] = offset
        return cls(found)

    def plain(self) -> dict[str, dict[str, int]]:
        """Returns the plain form, as records store it: `{topic: {"0": 12}}`, with sorted keys.

        Because the keys are sorted, equal vectors have equal JSON texts.
        """
        return {
            topic: {str(p): self.next[topic][p] for p in sorted(self.next[topic])}
            for topic in sorted(self.next)
        }

    def to_json(self) -> str:
        """Returns the plain form as JSON text.

        Spark's options `startingOffsets` and `endingOffsets` need this text.
        """
        return json.dumps(self.plain(), separators=(",", ":"))

    def at(self, topic: str, partition: int) -> int:
        """Returns the next offset of a partition, or 0 if the vector does not contain it."""
        return self.next.get(topic, {}).get(partition, 0)

    def items(self) -> Iterator[tuple[str, int, int]]:
        """Yields (topic, partition, next offset) for each partition, in order."""
        for topic in sorted(self.next):
            for partition in sorted(self.next[topic]):
                yield topic, partition, self.next[topic][partition]

    def covers(self, other: Offsets) -> bool:
        """Returns True if no partition in `other` has a higher offset than in this vector."""
        return all(
            self.at(topic, partition) >= offset for topic, partition, offset in other.items()
        )

    def equals(self, other: Offsets) -> bool:
        """Returns True if both vectors have the same offset in every partition.

        A missing partition has the offset 0, so a new empty partition makes no difference.
        """
        return self.covers(other) and other.covers(self)

    def distance(self, start: Offsets) -> int:
        """Returns the number of offsets from `start` to this vector, summed over all partitions.

        There may be fewer records than offsets, because compaction removes records.
        """
        return sum(offset - start.at(topic, partition) for topic, partition, offset in self.items())

    def only(self, topics: frozenset[str] | set[str]) -> Offsets:
        """Returns the part of the vector for the given topics."""
        return Offsets(
            {topic: dict(parts) for topic, parts in self.next.items() if topic in topics}
        )

    def highest_with(self, other: Offsets) -> Offsets:
        """Returns, for each partition in either vector, the higher of the two offsets."""
        return self._combine_with(other, max)

    def lowest_with(self, other: Offsets) -> Offsets:
        """Returns, for each partition in either vector, the lower of the two offsets."""
        return self._combine_with(other, min)

    def _combine_with(self, other: Offsets, choose: Callable[[int, int], int]) -> Offsets:
        names = {(t, p) for t, p, _ in self.items()} | {(t, p) for t, p, _ in other.items()}
        return Offsets.of_partitions(
            {part: choose(self.at(*part), other.at(*part)) for part in sorted(names)}
        )

    def __str__(self) -> str:
        return (
            " ".join(f"{topic}:{partition}={offset}" for topic, partition, offset in self.items())
            or "(nothing)"
        )


def lost_ranges(start: Offsets, beginning: Offsets) -> tuple[str, ...]:
    """Describes the offsets, from `start` on, that a log no longer contains.

    `beginning` contains the first offset of each partition in the log. Returns one text for each
    partition with missing offsets. Pure.
    """
    found = (
        (topic, partition, start.at(topic, partition), first)
        for topic, partition, first in beginning.items()
    )
    return tuple(
        f"{topic} partition {partition} lost offsets {next_} to {first - 1} and begins at {first}"
        for topic, partition, next_, first in found
        if first > next_
    )
