"""Slices: half-open ranges `[start, end)` of offsets, and ways to cut a long range into slices.

The ends of the slices of a proof are stored in the folder in which the proof folds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec import Struct

from kappa.base.errors import Damaged
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# Offsets at which something begins, per topic and partition.
BoundsOf = Mapping[str, Mapping[int, Sequence[int]]]
_CUTS_NAME = "cuts.json"


@dataclass(frozen=True, slots=True)
class Slice:
    """A range of offsets, and the rows in it. `number` is the slice's number in the leg, from 0."""

    leg: int
    number: int
    start: Offsets
    end: Offsets

    @property
    def distance(self) -> int:
        """Returns the number of offsets in the slice."""
        return self.end.distance(self.start)


def even_ends(start: Offsets, end: Offsets, pieces: int) -> tuple[Offsets, ...]:
    """Cuts `[start, end)` into `pieces` slices of equal size, and returns the ends of the slices.

    Each partition is cut into `pieces` equal parts. If there are more slices than offsets, some
    slices are empty.
    """
    return tuple(_part_way(start, end, number + 1, pieces) for number in range(pieces))


def snapped_ends(start: Offsets, ends: Sequence[Offsets], bounds: BoundsOf) -> tuple[Offsets, ...]:
    """Moves each end of a slice to the nearest offset in `bounds`, by at most half a slice. Pure.

    `start` is the beginning of the first slice, and `ends` are the ends of all slices. `bounds`
    contains offsets, per topic and partition. In a partition without a bound that near, the end
    does not move. The last end never moves. In each partition, the ends remain in ascending order.
    """
    moved = [
        Offsets.of_partitions(
            {
                (topic, partition): _nearest_bound(
                    bounds.get(topic, {}).get(partition, ()),
                    last,
                    (last - before.at(topic, partition)) // 2,
                )
                for topic, partition, last in end.items()
            }
        )
        for before, end in pairwise([start, *ends[:-1]])
    ]
    return (*moved, *ends[-1:])


def _nearest_bound(bounds: Sequence[int], to: int, reach: int) -> int:
    """Returns the offset in `bounds` that is nearest to the offset `to`.

    Returns `to` itself if no offset in `bounds` is at most `reach` away.
    """
    found = min(bounds, key=lambda bound: abs(bound - to), default=to)
    return found if abs(found - to) <= reach else to


def random_ends(
    start: Offsets, end: Offsets, draw: random.Random, *, small: int = 0, most: int = 8
) -> tuple[Offsets, ...]:
    """Cuts `[start, end)` at random into slices, and returns the ends of the slices.

    `draw` is the source of random numbers. The partitions are cut independently of each other.
    There are at most `most` slices, and one additional empty slice. If `small` is given, additional
    slices of at most `small` offsets per partition are inserted: before the first slice, and before
    about every second slice.
    """
    slices = draw.randint(2, most)
    ways = {
        (topic, partition): sorted(
            draw.randint(start.at(topic, partition), last) for _ in range(slices - 1)
        )
        for topic, partition, last in end.items()
    }
    ends = [
        Offsets.of_partitions({part: way[number] for part, way in ways.items()})
        for number in range(slices - 1)
    ]
    # A slice that ends where the slice before ends is empty.
    repeated = draw.randrange(len(ends))
    ends = [*ends[: repeated + 1], *ends[repeated:], end]
    if not small:
        return tuple(ends)
    found: list[Offsets] = []
    for reached, following in pairwise([start, *ends]):
        if not found or draw.random() < 0.5:
            found.append(
                following.lowest_with(
                    Offsets.of_partitions(
                        {
                            (topic, partition): reached.at(topic, partition)
                            + draw.randint(1, small)
                            for topic, partition, _ in end.items()
                        }
                    )
                )
            )
        found.append(following)
    return tuple(found)


def cut_slices(leg: int, start: Offsets, end: Offsets, *, at_most: int) -> Iterator[Slice]:
    """Yields contiguous slices of `[start, end)`, each of about `at_most` offsets or fewer.

    Each slice contains the same share of each partition's offsets, so all partitions end with the
    last slice. `leg` is the leg of the slices. Yields nothing if the range is empty.
    """
    before = start
    for number, after in enumerate(even_ends(start, end, -(-end.distance(start) // at_most))):
        yield Slice(leg=leg, number=number, start=before, end=after)
        before = after


def _part_way(start: Offsets, end: Offsets, part: int, parts: int) -> Offsets:
    return Offsets.of_partitions(
        {
            (topic, partition): (first := start.at(topic, partition))
            + (last - first) * part // parts
            for topic, partition, last in end.items()
        }
    )


class Cuts(Struct, frozen=True):
    """The slices of a proof: `ends` are their ends, and the first begins at the build's origin.

    Slices of at most `driver_rows` offsets are read without a Spark job.
    """

    ends: tuple[Offsets, ...]
    driver_rows: int
    format: int = 1


_CUTS = Documents(Cuts)


def put_cuts(folder: Store, cuts: Cuts) -> None:
    """Stores the ends of a proof's slices in the folder in which the proof folds."""
    _CUTS.put(folder, _CUTS_NAME, cuts)


def read_cuts(folder: Store) -> Cuts:
    """Returns the stored ends of a proof's slices. Raises Damaged if the folder contains none."""
    where = str(folder.path(_CUTS_NAME))
    found = _CUTS.get(folder, _CUTS_NAME, where)
    if found is None:
        raise Damaged(f"{where} is gone", hint="type kappa prove again")
    return found
