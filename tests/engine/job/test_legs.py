"""Legs are written down before they begin, and planned slices are the same after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.base.errors import Broken
from kappa.base.sections import EngineSettings
from kappa.engine.job.legs import Legs, catch_up, has_tail, short_slice_size, slice_size, tail
from kappa.state.mark import Mark, parse_mark
from kappa.state.offsets import Offsets
from kappa.state.slices import Slice
from kappa.state.store import Store

END = Offsets({"t": {0: 100, 1: 50}})


def test_a_catch_up_goes_on_with_the_slice_that_a_crash_has_cut_short(tmp_path: Path) -> None:
    legs = Legs(Store(tmp_path), "b")
    legs.begin(catch_up(1, Offsets(), END, at_most=50))
    leg = legs.last()
    assert leg is not None
    all_of_it = list(leg.slices_after(Offsets()))

    assert [piece.number for piece in all_of_it] == [0, 1, 2]
    assert all_of_it[-1].end == END
    assert list(leg.slices_after(all_of_it[0].end)) == all_of_it[1:]
    assert list(leg.slices_after(END)) == []
    # A part of a slice that was split is folded already.
    within = Offsets({"t": {0: 40}})
    assert next(leg.slices_after(within)) == Slice(1, 0, within, all_of_it[0].end)


def test_a_build_has_a_tail_as_soon_as_it_is_written_down(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert not has_tail(store, "b")
    Legs(store, "b").begin(catch_up(1, Offsets(), END, at_most=50))
    assert not has_tail(store, "b")
    Legs(store, "b").begin(tail(2, END))
    assert has_tail(store, "b")


@pytest.mark.parametrize(
    ("distance", "most", "size"),
    [
        (40_000, 2_000_000, 250_000),
        (500_000, 2_000_000, 250_000),
        (2_000_000, 2_000_000, 1_000_000),
        (50_000_000, 2_000_000, 2_000_000),
        (700, 150, 150),
    ],
)
def test_a_catch_up_is_in_several_slices_that_are_not_small(
    distance: int, most: int, size: int
) -> None:
    assert slice_size(distance, most) == size


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 9_999), st.integers(0, 9_999))),
    st.integers(100, 3_000),
)
def test_no_slice_of_a_short_leg_is_left_to_spark(
    parts: dict[int, tuple[int, int]], driver_rows: int
) -> None:
    """No slice is large enough for Spark, however the cuts are rounded."""
    start = Offsets({"t": {partition: first for partition, (first, _) in parts.items()}})
    end = Offsets({"t": {partition: first + more for partition, (first, more) in parts.items()}})
    engine = EngineSettings(driver_rows=driver_rows)

    at_most = short_slice_size(1_000_000, end, engine)

    leg = catch_up(1, start, end, at_most=at_most)
    assert all(piece.distance <= driver_rows for piece in leg.slices_after(start))


def test_what_is_archived_is_folded_in_slices_of_its_own_that_are_larger() -> None:
    archived, end = (
        Offsets({"t": {0: 4_000_000, 1: 10}}),
        Offsets({"t": {0: 5_000_000, 1: 50}, "u": {0: 7}}),
    )

    leg = catch_up(
        1, Offsets({"t": {1: 20}}), end, at_most=500_000, archived=archived, slice_records=2_000_000
    )

    assert [each.at("t", 0) for each in leg.ends] == [
        2_000_000,
        4_000_000,
        4_333_333,
        4_666_666,
        5_000_000,
    ]
    # Nothing is folded twice if the build is past the archive; a topic without one is folded too.
    assert [(each.at("t", 1), each.at("u", 0)) for each in leg.ends] == [(20, 0)] * 2 + [
        (30, 2),
        (40, 4),
        (50, 7),
    ]
    assert catch_up(1, end, end, at_most=10, archived=archived).ends == ()
    # They end where files of the archive begin, if those are near.
    bounds = {"t": {0: [0, 900_000, 2_600_000, 4_200_000]}}
    whole = Offsets({"t": {0: 4_000_000}})
    near = catch_up(
        1, Offsets(), whole, at_most=1, archived=whole, bounds=bounds, slice_records=1_000_000
    )
    assert [each.at("t", 0) for each in near.ends] == [900_000, 2_000_000, 2_600_000, 4_000_000]
    # None is larger than the user wants any to be.
    assert (
        max(
            piece.distance
            for piece in catch_up(
                1, Offsets(), end, at_most=100_000, archived=archived, slice_records=200_000
            ).slices_after(Offsets())
        )
        <= 200_002
    )


def test_a_long_leg_begins_with_a_small_slice() -> None:
    end = Offsets({"t": {0: 1_500_000, 1: 500_000}})

    ends = catch_up(1, Offsets(), end, at_most=500_000, first=25_000).ends

    assert ends[0] == Offsets({"t": {0: 18_750, 1: 6_250}})
    assert ends[-1] == end
    sizes = [each.distance(before) for before, each in zip((Offsets(), *ends), ends, strict=False)]
    assert sizes[0] == 25_000
    assert len(sizes) == 5
    assert max(sizes[1:]) - min(sizes[1:]) <= 2
    # For a short one it would be felt.
    assert catch_up(1, Offsets(), end, at_most=500_000, first=51_000).ends[0].at("t", 0) == 375_000


def test_two_processes_do_not_begin_the_same_leg(tmp_path: Path) -> None:
    legs = Legs(Store(tmp_path), "b")
    legs.begin(tail(1, END))

    with pytest.raises(Broken, match="put by another process"):
        legs.begin(tail(1, END))


def test_a_mark_is_read_as_it_was_written() -> None:
    made = Mark("b", "t", 1, 4, Offsets({"t": {0: 5}}), Offsets({"t": {0: 9}}))

    assert parse_mark(made.to_json(), where="here") == made
    for damaged in (None, "", "{}", "[]", made.to_json()[:-5]):
        with pytest.raises(Broken):
            parse_mark(damaged, where="here")


def test_a_build_is_within_a_leg_until_its_end_or_its_first_tail(tmp_path: Path) -> None:
    legs, start = Legs(Store(tmp_path), "b"), Offsets({"t": {0: 0, 1: 0}})
    assert not legs.is_within(start)

    legs.begin(catch_up(1, start, END, at_most=40))

    assert legs.is_within(start)
    assert legs.is_within(Offsets({"t": {0: 100, 1: 49}}))
    assert not legs.is_within(END)
    legs.begin(tail(2, END))
    later = catch_up(3, END, Offsets({"t": {0: 200, 1: 50}}), at_most=40)
    legs.begin(later)
    assert not legs.is_within(END)
