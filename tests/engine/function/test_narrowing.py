"""Narrowing finds each single thing that fails, and only those, with few tries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.engine.function.failing_records import Together, failing


class Tries:
    """A function that fails for a range with one of `bad`, and counts its calls."""

    def __init__(self, *bad: int) -> None:
        self.bad = set(bad)
        self.count = 0

    def __call__(self, start: int, end: int) -> str | None:
        self.count += 1
        found = sorted(place for place in self.bad if start <= place < end)
        return f"{found[0]} fails" if found else None


@given(
    st.integers(1, 300).flatmap(
        lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1), min_size=1))
    )
)
def test_all_that_fail_alone_are_found_in_order_with_their_own_errors(
    given: tuple[int, set[int]],
) -> None:
    count, bad = given
    tries = Tries(*bad)

    assert list(failing(count, tries)) == [(place, f"{place} fails") for place in sorted(bad)]
    assert tries.count <= min(2 * count, len(bad) * 2 * (math.ceil(math.log2(count)) + 1))


@pytest.mark.parametrize("bad", [0, 31_415, 49_999])
def test_the_first_is_found_in_as_many_tries_as_the_count_has_bits(bad: int) -> None:
    tries = Tries(bad, 49_999)

    assert next(failing(50_000, tries)) == (bad, f"{bad} fails")
    assert tries.count <= 17


def test_what_fails_only_together_blames_none() -> None:
    with pytest.raises(Together):
        list(failing(8, lambda start, end: "both" if start <= 2 and end > 5 else None))
    with pytest.raises(Together):
        list(failing(1, lambda _start, _end: None))
