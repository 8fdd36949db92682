"""The legs of a build: the phases of its job.

A leg is recorded before it begins, unless an earlier job has already recorded the leg. Catch-ups
and alignments are bounded. The record of a bounded leg contains its planned slices, so that the
slices are the same after a crash. The tail is unbounded, and its slices are the micro-batches of
its stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from kappa.base.failpoint import failpoint
from kappa.base.sections import EngineSettings
from kappa.state.build import folder_of_build
from kappa.state.documents import Documents, NumberedRecords, NumberTaken
from kappa.state.frontier import Frontier
from kappa.state.offsets import Offsets
from kappa.state.slices import BoundsOf, Slice, cut_slices, even_ends, snapped_ends
from kappa.state.store import Store

# A catch-up has at least this many slices, unless the slices would be smaller than the small step.
_STEPS = 2
_SMALL_STEP = 250_000
# Archived records are not decoded: slices of this size take no longer than other slices.
_SMALL_ARCHIVED_STEP = 1_000_000
# A leg of so many times the first, small slice is long: the cost of that slice is not felt.
_LONG_STEPS = 40
_NOWHERE = Offsets()
_NO_BOUNDS: BoundsOf = {}


class LegKind(StrEnum):
    """The kind of a leg.

    A `base` brings a branch to the offsets at which the branch's own code begins. The records
    before these offsets are folded by the code of the build that the branch begins with.
    """

    BASE = "base"
    CATCH_UP = "catch-up"
    ALIGNMENT = "alignment"
    TAIL = "tail"


class Aim(Struct, frozen=True):
    """The aim of an alignment: a leased frontier of the live build, and the topics to compare.

    Both builds read these topics.
    """

    live: Frontier
    comparable: tuple[str, ...]
    lease: str


class Leg(Struct, frozen=True):
    """A leg of a build: its number, kind and start, and the ends of its planned slices.

    An alignment also has an aim.
    """

    number: int
    kind: LegKind
    start: Offsets
    ends: tuple[Offsets, ...] = ()
    aim: Aim | None = None
    format: int = 1

    @property
    def end(self) -> Offsets:
        """Returns the end of the last planned slice, or the start if no slice is planned."""
        return self.ends[-1] if self.ends else self.start

    def slices_after(self, committed: Offsets) -> Iterator[Slice]:
        """Yields the planned slices after the offsets `committed`.

        If `committed` is within a slice, the first result is the remaining part of that slice.
        """
        start = self.start
        for number, end in enumerate(self.ends):
            if not committed.covers(end):
                yield Slice(self.number, number, start.highest_with(committed), end)
            start = end


_LEG = Documents(Leg)


def leg_records(store: Store, build: str) -> NumberedRecords[Leg]:
    """Returns the numbered records of a build's legs, for reading and writing."""
    return NumberedRecords(
        store, f"{folder_of_build(build)}/legs", _LEG, f"leg {{}} of build {build}"
    )


class Legs:
    """The recorded legs of a build. `begin` records a new leg."""

    def __init__(self, store: Store, build: str) -> None:
        self._build = build
        self._records = leg_records(store, build)

    def last(self) -> Leg | None:
        """Returns the newest leg, or None if no leg has begun.

        Raises Damaged if the record of the leg is damaged.
        """
        found = self._records.last()
        return None if found is None else found[1]

    def has_tail(self) -> bool:
        """Returns True if the newest leg is the tail."""
        last = self.last()
        return last is not None and last.kind is LegKind.TAIL

    def has_tailed(self) -> bool:
        """Returns True if any leg of the build was a tail; then the build may be serving."""
        found = (self._records.get(number) for number in self._records.numbers())
        return any(leg is not None and leg.kind is LegKind.TAIL for leg in found)

    def is_within(self, done: Offsets) -> bool:
        """Returns True if the build has recorded no tail, and is within a bounded leg.

        `done` contains the offsets that the build has reached.
        """
        last = self.last()
        return last is not None and not self.has_tailed() and not done.covers(last.end)

    def begin(self, leg: Leg) -> Leg:
        """Records a leg, and returns the leg.

        Raises NumberTaken if another process has already recorded a leg with this number.
        """
        failpoint("leg.before_put")
        put = self._records.put(leg.number, leg)
        failpoint("leg.after_put")
        if not put:
            raise NumberTaken(f"leg {leg.number} of build {self._build}")
        return leg


def slice_size(distance: int, slice_records: int, *, small: int = _SMALL_STEP) -> int:
    """Returns the maximum number of offsets per slice for a catch-up of `distance` offsets.

    A catch-up has several slices, so that people see its progress. But a slice has at least `small`
    offsets, so that the fixed time that Spark takes for each slice hardly matters. No slice has
    more than `slice_records` offsets. Pure.
    """
    return min(slice_records, max(small, -(-distance // _STEPS)))


def short_slice_size(at_most: int, end: Offsets, engine: EngineSettings) -> int:
    """Returns the maximum number of offsets per slice for a short catch-up up to `end`.

    The result is at most `at_most`, and so small that no slice has more than `driver_rows` offsets,
    because Spark workers would fold a larger slice. The ends of slices are rounded, so a slice may
    have one more offset for each partition. Pure.
    """
    partitions = sum(1 for _ in end.items())
    return max(1, min(at_most, engine.driver_rows - partitions))


def catch_up(
    number: int,
    start: Offsets,
    end: Offsets,
    *,
    at_most: int,
    kind: LegKind = LegKind.CATCH_UP,
    archived: Offsets = _NOWHERE,
    bounds: BoundsOf = _NO_BOUNDS,
    slice_records: int = 0,
    first: int = 0,
) -> Leg:
    """Plans a bounded leg from `start` to `end`. Pure.

    Slices have about `at_most` offsets. All records before the offsets `archived` are in an
    archive; the slices of these records have about `slice_records` offsets. `bounds` contains the
    offsets at which files of the archive begin. A slice ends at such an offset if one is near,
    since whole files need no filter. If `first` is given and the leg is long, the leg's first slice
    has about `first` offsets, so that people soon see that the code works.
    """
    distance = end.distance(start)
    is_long = first > 0 and distance >= _LONG_STEPS * first
    begun = even_ends(start, end, distance // first)[0] if is_long else start
    middle = end.lowest_with(archived).highest_with(begun)
    at_most_archived = max(
        at_most, slice_size(middle.distance(begun), slice_records, small=_SMALL_ARCHIVED_STEP)
    )
    ends = (
        *([begun] if is_long else []),
        *snapped_ends(
            begun,
            [piece.end for piece in cut_slices(number, begun, middle, at_most=at_most_archived)],
            bounds,
        ),
        *(piece.end for piece in cut_slices(number, middle, end, at_most=at_most)),
    )
    return Leg(number, kind, start, ends)


def alignment(number: int, start: Offsets, end: Offsets, aim: Aim, *, at_most: int) -> Leg:
    """Plans the bounded leg of an alignment, which ends exactly at the offsets `end`. Pure."""
    return Leg(
        number,
        LegKind.ALIGNMENT,
        start,
        tuple(piece.end for piece in cut_slices(number, start, end, at_most=at_most)),
        aim,
    )


def tail(number: int, start: Offsets) -> Leg:
    """Plans an unbounded leg from `start`. Pure."""
    return Leg(number, LegKind.TAIL, start)


def has_tail(store: Store, build: str) -> bool:
    """Returns True if the build's newest leg is the tail.

    Then the build has caught up, and only its tail needs to be started.
    """
    return Legs(store, build).has_tail()
