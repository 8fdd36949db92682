"""The splits of slices that are too large for the machine.

A slice that is too large may kill its jobs. So each slice is recorded as begun before it is folded.
This record is local to the host, since another host may have enough memory for the slice. A slice
is split if two jobs have begun the slice and no job has finished it, or if a job has given up the
slice because it made no progress. The record of a split contains the offsets at which the slice is
cut. A part can be split further. Each part is folded as a separate slice with its own frontier, so
the next job continues after the last finished part.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import Struct

from kappa.base.failpoint import failpoint
from kappa.base.log_lines import Level, write_log_line
from kappa.base.units import count_of
from kappa.state.build import folder_of_build
from kappa.state.documents import Documents
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

# A slice is split after this many jobs have begun the slice without ending it.
_TRIES = 2
_PARTS = 8


class Begun(Struct, frozen=True):
    """The slice (or part of a slice) that the build's jobs have begun most recently.

    `times` is the number of consecutive jobs that have begun the slice. `given_up` means that the
    slice made no progress in the last of these jobs.
    """

    start: Offsets
    end: Offsets
    times: int
    given_up: bool = False
    format: int = 1

    def is_of(self, piece: Slice) -> bool:
        """Returns True if `piece` is the slice that was begun.

        In a tail, `piece` may end later than the slice that was begun, because the log has grown
        since.
        """
        return self.start.equals(piece.start) and piece.end.covers(self.end)

    def is_reason_to_split(self) -> bool:
        """Returns True if the next job must not fold the slice as a whole."""
        return self.given_up or self.times >= _TRIES


class Split(Struct, frozen=True):
    """The ends of a slice's parts. Each part begins where the part before it ends."""

    ends: tuple[Offsets, ...]
    format: int = 1


_BEGUN = Documents(Begun, derived=True, synced=False)
_SPLIT = Documents[Split](Split, derived=True)


class Splits:
    """The recorded slice that a build has begun last, and the build's last recorded split.

    Only the holder of the build's lock uses this class.
    """

    def __init__(self, store: Store, build: str) -> None:
        self._store = store
        self._begun_name, self._split_name = (
            f"{folder_of_build(build)}/{name}.json" for name in ("begun", "split")
        )
        what = f"how slices of build {build} were begun and split"
        self._begun = _BEGUN.get(store.local, self._begun_name, what)
        self._split = _SPLIT.get(store, self._split_name, what)

    def parts(self, piece: Slice) -> tuple[Slice, ...]:
        """Returns the parts in which a slice is folded, in order.

        If the slice is not split, the slice itself is the only part. If two jobs have begun the
        first part without finishing it, or a job has given it up, this call first splits that part.
        """
        parts = self._cut(piece)
        begun, first = self._begun, parts[0]
        if (
            begun is None
            or not begun.is_reason_to_split()
            or not begun.is_of(first)
            or first.distance < 2
        ):
            return parts
        smaller = _parted(first)
        self._put(Split(tuple(each.end for each in (*smaller, *parts[1:]))))
        write_log_line(
            f"slice {piece.leg}/{piece.number} was begun {count_of(begun.times, 'time')} and not "
            f"ended; "
            f"{first.distance} offsets of it are split into {len(smaller)}",
            Level.WARN,
        )
        return self._cut(piece)

    def begin(self, part: Slice) -> None:
        """Records that a part is begun, and how many consecutive jobs have begun this part."""
        before = self._begun
        times = before.times + 1 if before is not None and before.is_of(part) else 1
        self._put_begun(Begun(part.start, part.end, times))

    def give_up(self, part: Slice) -> None:
        """Records that `part`, which was begun last, made no progress.

        Then the next job splits the part.
        """
        if self._begun is not None and self._begun.is_of(part):
            before = self._begun
            self._put_begun(Begun(before.start, before.end, before.times, given_up=True))

    def _cut(self, piece: Slice) -> tuple[Slice, ...]:
        ends = [
            end
            for end in (() if self._split is None else self._split.ends)
            if piece.end.covers(end) and end.covers(piece.start) and not piece.start.covers(end)
        ]
        if not ends or not ends[-1].equals(piece.end):
            ends.append(piece.end)
        return tuple(
            replace(piece, start=start, end=end)
            for start, end in zip((piece.start, *ends), ends, strict=False)
        )

    def _put_begun(self, begun: Begun) -> None:
        self._begun = begun
        failpoint("slice.before_begin")
        _BEGUN.put(self._store.local, self._begun_name, begun)
        failpoint("slice.after_begin")

    def _put(self, split: Split) -> None:
        failpoint("slice.before_split")
        _SPLIT.put(self._store, self._split_name, split)
        failpoint("slice.after_split")
        self._split = split


def _parted(piece: Slice) -> list[Slice]:
    """Cuts a slice or part into at most `_PARTS` parts.

    The parts cover one partition after the other. So a slice of two offsets always has two parts,
    whether or not the offsets are in the same partition. Pure.
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
    """Returns the end of the first `count` offsets of a slice.

    The offsets are counted one partition after the other. Pure.
    """
    ends: dict[str, dict[int, int]] = {}
    for topic, partition, end in piece.end.items():
        start = piece.start.at(topic, partition)
        taken = min(count, end - start)
        ends.setdefault(topic, {})[partition] = start + taken
        count -= taken
    return Offsets(ends)
