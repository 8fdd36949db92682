"""The splits of slices that are too large for the machine: jobs die in them (law 12).

Each slice is recorded as begun before it is folded. One that two jobs have begun and none has ended
is split by a record, put if absent, into sub-slices. A sub-slice can be split further. A build's
tables fold them one after the other, each with a commit of its own, and the frontier moves after
the last. So a crash among them leaves a table at the slice's start or at one of the ends in the
record. The table goes on from there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

from kappa.base.failpoint import failpoint
from kappa.state.build import folder
from kappa.state.documents import Documents, NumberedRecords, Taken
from kappa.state.frontier import OffsetsField
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

# A slice is split after this many jobs have begun it without ending it.
_TRIES = 2
_PARTS = 8


@dataclass(frozen=True, slots=True)
class Begun:
    """The (sub-)slice that was begun last, and how many jobs in a row have begun it."""

    leg: int
    slice: int
    start: OffsetsField
    end: OffsetsField
    times: int
    format: int = 1

    def is_of(self, piece: Slice) -> bool:
        """Returns True if this very (sub-)slice was begun."""
        return (
            (self.leg, self.slice) == (piece.leg, piece.number)
            and self.start.equals(piece.start)
            and self.end.equals(piece.end)
        )


@dataclass(frozen=True, slots=True)
class Split:
    """A slice and the ends of its sub-slices, the last of which is the end of the slice."""

    leg: int
    slice: int
    start: OffsetsField
    ends: tuple[OffsetsField, ...]
    format: int = 1


_BEGUN, _SPLIT = Documents(Begun), Documents[Split](Split)


class Splits:
    """The splits of one build's slices, for the holder of the build's lock only."""

    def __init__(self, store: Store, build: str) -> None:
        self._store = store
        self._build = build
        self._begun_name = f"{folder(build)}/begun.json"
        what = f"how slices of build {build} were begun and split"
        self._records = NumberedRecords(store, f"{folder(build)}/splits", _SPLIT, what)
        last = self._records.last()
        self._number = 0 if last is None else last[0]
        self._split = None if last is None else last[1]
        self._begun = _BEGUN.get(store, self._begun_name, what)

    def pieces(self, piece: Slice) -> tuple[Slice, ...]:
        """Lists the parts of a slice in order: itself, or its sub-slices, which have its number."""
        split = self._of(piece)
        if split is None:
            return (piece,)
        return tuple(
            Slice(piece.leg, piece.number, start, end)
            for start, end in zip((split.start, *split.ends), split.ends, strict=False)
        )

    def whole(self, part: Slice) -> Slice:
        """Returns the slice that this is a sub-slice of, or itself."""
        split = self._of(part)
        return part if split is None else replace(part, start=split.start, end=split.ends[-1])

    def split_if_due(self, piece: Slice, part: Slice) -> None:
        """Splits the next part of a slice if too many jobs have begun it."""
        begun = self._begun
        if begun is None or begun.times < _TRIES or not begun.is_of(part) or part.distance < 2:
            return
        parts = _parted(part)
        ends = tuple(
            one.end for each in self.pieces(piece) for one in (parts if each == part else (each,))
        )
        self._put(Split(piece.leg, piece.number, piece.start, ends))
        print(
            f"slice {piece.leg}/{piece.number} was begun {begun.times} times and not ended; "
            f"{part.distance} offsets of it are split into {len(parts)}",
            file=sys.stderr,
            flush=True,
        )

    def begin(self, part: Slice) -> None:
        """Records that this (sub-)slice is begun, or begun once more."""
        before = self._begun
        times = before.times + 1 if before is not None and before.is_of(part) else 1
        self._begun = Begun(part.leg, part.number, part.start, part.end, times)
        failpoint("slice.before_begin")
        _BEGUN.put(self._store, self._begun_name, self._begun)
        failpoint("slice.after_begin")

    def _of(self, piece: Slice) -> Split | None:
        """Returns the newest split if it is of this slice."""
        split = self._split
        return (
            split
            if split is not None and (split.leg, split.slice) == (piece.leg, piece.number)
            else None
        )

    def _put(self, split: Split) -> None:
        self._number += 1
        failpoint("slice.before_split")
        put = self._records.put(self._number, split)
        failpoint("slice.after_split")
        if not put:
            raise Taken(f"the split of slice {split.leg}/{split.slice} of build {self._build}")
        self._split = split


def _parted(piece: Slice) -> list[Slice]:
    """Cuts a (sub-)slice into at most `_PARTS` parts, one partition after the other. Pure.

    So one of two offsets has two parts, in whichever partitions they are.
    """
    size = -(-piece.distance // _PARTS)
    ends = [
        _filled(piece, min(covered, piece.distance))
        for covered in range(size, piece.distance + size, size)
    ]
    return [
        replace(piece, start=start, end=end)
        for start, end in zip((piece.start, *ends), ends, strict=False)
    ]


def _filled(piece: Slice, count: int) -> Offsets:
    """Returns the end of a slice's first `count` offsets, counted by partition. Pure."""
    ends: dict[str, dict[int, int]] = {}
    for topic, partition, end in piece.end.items():
        start = piece.start.at(topic, partition)
        taken = min(count, end - start)
        ends.setdefault(topic, {})[partition] = start + taken
        count -= taken
    return Offsets(ends)
