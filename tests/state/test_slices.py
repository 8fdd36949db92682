"""Laws of slices: how their ends move to nearby bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.state.offsets import Offsets
from kappa.state.slices import even_ends, snapped_ends

_BOUNDS = st.lists(st.integers(0, 1_000), max_size=12).map(sorted)


@pytest.mark.law
@given(
    st.tuples(st.integers(0, 500), st.integers(0, 500)),
    st.tuples(st.integers(500, 1_000), st.integers(500, 1_000)),
    st.integers(1, 9),
    st.tuples(_BOUNDS, _BOUNDS),
)
def test_ends_move_to_bounds_and_no_partition_goes_back(
    first: tuple[int, int],
    last: tuple[int, int],
    pieces: int,
    bounds: tuple[list[int], list[int]],
) -> None:
    start = Offsets({"t": dict(enumerate(first))})
    end = Offsets({"t": dict(enumerate(last))})
    even = even_ends(start, end, pieces)

    moved = snapped_ends(start, even, {"t": dict(enumerate(bounds))})

    assert moved[-1] == end
    assert all(later.covers(earlier) for earlier, later in pairwise([start, *moved]))
    for before, wanted, found in zip([start, *even], even[:-1], moved, strict=False):
        for partition in range(2):
            to, is_at = wanted.at("t", partition), found.at("t", partition)
            reach = (to - before.at("t", partition)) // 2
            near = [bound for bound in bounds[partition] if abs(bound - to) <= reach]
            assert is_at in near if near else is_at == to
            assert all(abs(is_at - to) <= abs(bound - to) for bound in near)


def test_slices_without_bounds_stay_as_they_are() -> None:
    even = even_ends(Offsets(), Offsets({"t": {0: 10}, "u": {0: 5}}), 3)

    assert snapped_ends(Offsets(), even, {"u": {}}) == even
    assert snapped_ends(Offsets(), (), {"t": {0: [1]}}) == ()
