"""Laws of offset vectors, and of the cuts of a range between two vectors."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.base.errors import Damaged
from kappa.state.offsets import Offsets
from kappa.state.slices import cut_slices

vectors = st.dictionaries(
    st.sampled_from(["flights", "planes"]),
    st.dictionaries(st.integers(0, 5), st.integers(0, 10_000), max_size=6),
    max_size=2,
).map(Offsets)


@given(vectors)
def test_what_is_written_down_reads_back_equal(vector: Offsets) -> None:
    assert Offsets.parse(vector.to_json()) == vector


@pytest.mark.parametrize("text", ["[]", '{"t": 3}', '{"t": {"a": 1}}', "nonsense", "null"])
def test_what_is_no_vector_is_damaged(text: str) -> None:
    with pytest.raises(Damaged):
        Offsets.parse(text)


@given(vectors, vectors)
def test_the_highest_covers_both_and_both_cover_the_lowest(left: Offsets, right: Offsets) -> None:
    assert left.highest_with(right).covers(left)
    assert left.highest_with(right).covers(right)
    assert left.covers(left.lowest_with(right))
    assert right.covers(left.lowest_with(right))


def test_a_partition_not_named_counts_as_zero() -> None:
    assert Offsets({}).equals(Offsets({"t": {0: 0, 1: 0}}))
    assert not Offsets({}).covers(Offsets({"t": {1: 1}}))


@given(vectors, vectors, st.integers(50, 5_000))
def test_slices_are_contiguous_and_end_where_the_range_does(
    one: Offsets, other: Offsets, at_most: int
) -> None:
    start, end = one.lowest_with(other), one.highest_with(other)

    slices = list(cut_slices(3, start, end, at_most=at_most))

    assert [each.number for each in slices] == list(range(len(slices)))
    assert sum(each.distance for each in slices) == end.distance(start)
    assert all(before.end == after.start for before, after in pairwise(slices))
    if slices:
        assert slices[0].start == start
        assert slices[-1].end.equals(end)
    # Each partition's share is rounded, so a slice may have one offset more of each than asked for.
    assert all(each.distance <= at_most + 12 for each in slices)
