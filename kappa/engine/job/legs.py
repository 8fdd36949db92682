"""The legs of a build: the stretches of its job.

Each leg is put if absent before the leg begins. Catch-ups and alignments are bounded. Their slices
are planned in the leg's record, so that the slices are the same after a crash. The tail is
unbounded, and its slices are the micro-batches of its stream.
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

    A `base` brings a branch to the offsets at which the branch's own code begins, by the code of
    the build that the branch begins with.
    """

    BASE = "base"
    CATCH_UP = "catch-up"
    ALIGNMENT = "alignment"
    TAIL = "tail"


class Aim(Struct, frozen=True):
    """The aim of an alignment: the leased live frontier and the common topics."""

    live: Frontier
    comparable: tuple[str, ...]
    lease: str


class Leg(Struct, frozen=True):
    """A leg: start, ends of the planned slices, and an alignment's aim."""

    number: int
    kind: LegKind
    start: Offsets
    ends: tuple[Offsets, ...] = ()
    aim: Aim | None = None
    format: int = 1

    @property
    def end(self) -> Offsets:
        """Returns the end of the last planned slice."""
        return self.ends[-1] if self.ends else self.start

    def slices_after(self, committed: Offsets) -> Iterator[Slice]:
        """Yields the planned slices after `committed`.

        If a slice was cut short, the first slice is the rest of that slice.
        """
        start = self.start
        for number, end in enumerate(self.ends):
            if not committed.covers(end):
                yield Slice(self.number, number, start.highest_with(committed), end)
            start = end


_LEG = Documents(Leg)


def leg_records(store: Store, build: str) -> NumberedRecords[Leg]:
    """Returns the records of a build's legs."""
    return NumberedRecords(
        store, f"{folder_of_build(build)}/legs", _LEG, f"leg {{}} of build {build}"
    )


class Legs:
    """The legs of a build."""

    def __init__(self, store: Store, build: str) -> None:
        self._build = build
        self._records = leg_records(store, build)

    def last(self) -> Leg | None:
        """Returns the newest leg, or None if no leg has begun. Raises Damaged."""
        found = self._records.last()
        return None if found is None else found[1]

    def has_tail(self) -> bool:
        """Returns True if the newest leg is the tail."""
        last = self.last()
        return last is not None and last.kind is LegKind.TAIL

    def has_tailed(self) -> bool:
        """Returns True if the build has had a tail: the build may serve."""
        found = (self._records.get(number) for number in self._records.numbers())
        return any(leg is not None and leg.kind is LegKind.TAIL for leg in found)

    def is_within(self, done: Offsets) -> bool:
        """Returns True within a bounded leg of a build without a tail.

        `done` are the offsets that the build has reached.
        """
        last = self.last()
        return last is not None and not self.has_tailed() and not done.covers(last.end)

    def begin(self, leg: Leg) -> Leg:
        """Writes a leg down.

        Raises NumberTaken if another process has begun a leg of that number.
        """
        failpoint("leg.before_put")
        put = self._records.put(leg.number, leg)
        failpoint("leg.after_put")
        if not put:
            raise NumberTaken(f"leg {leg.number} of build {self._build}")
        return leg


def slice_size(distance: int, slice_records: int, *, small: int = _SMALL_STEP) -> int:
    """Returns the most offsets in a slice of a catch-up.

    `distance` is the distance of the catch-up. There are several slices, so that progress shows,
    and no slice is so small that Spark's own time is felt. Pure.
    """
    return min(slice_records, max(small, -(-distance // _STEPS)))


def short_slice_size(at_most: int, end: Offsets, engine: EngineSettings) -> int:
    """Returns the most offsets in a slice of a short catch-up up to `end`.

    Cuts are rounded: a slice has up to one more offset for each partition. Spark's workers would
    get a slice of more than `driver_rows` offsets. Pure.
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
    """Plans a bounded leg from `start` to `end`.

    Slices have about `at_most` offsets, and about `slice_records` up to the offsets before which
    all is `archived`. Slices end where the archive's files end (`bounds`) if these ends are near,
    since whole files need no filter. The first slice of a long leg has about `first` offsets, if
    `first` is given: people see soon that the code works. Pure.
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
    """Plans a bounded leg that ends exactly at its aim. Pure."""
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
    """Returns True if the build's tail is written down.

    The build has caught up then, and only the tail is started.
    """
    return Legs(store, build).has_tail()
