"""Laws of redriven records: which are folded, whatever they name and however often (law 7)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.base.errors import UsageError
from kappa.declare.values.reason import Rejected
from kappa.records.redrive import (
    HEADER,
    Attempt,
    Original,
    Position,
    named_original,
    original_of,
    parse_position,
    settle,
)

AT = Position("visits", 0, 20)


def at(offset: int, partition: int = 0) -> Position:
    return Position("visits", partition, offset)


def attempt(offset: int, of: int, *, valid: bool = True) -> Attempt:
    return Attempt(at(offset), of, valid)


@given(st.integers(0, 10**18 - 1), st.integers(-1, 2**53), st.sampled_from(["visits", "a.b-c_d"]))
def test_a_header_names_what_it_was_made_for(offset: int, ms: int, topic: str) -> None:
    original = Original(Position(topic, 3, offset), ms)

    assert named_original([("trace", b"x"), original.header()]) == original
    assert parse_position(str(original.position)) == original.position


def test_a_record_without_the_header_stands_for_nothing_else() -> None:
    assert original_of([("trace", b"\xff"), ("kappa-Redrive", b"?")], AT) is None


@pytest.mark.parametrize(
    "headers",
    [
        [(HEADER, None)],
        [(HEADER, b"\xff")],
        [(HEADER, b"visits:0:7")],
        [(HEADER, b"visits:0:-7@1")],
        [(HEADER, b"visits:0:20@1")],
        [(HEADER, b"visits:0:21@1")],
        [(HEADER, b"visits:1:7@1")],
        [(HEADER, b"hits:0:7@1")],
        [(HEADER, b"visits:0:7@1"), (HEADER, b"visits:0:7@1")],
    ],
)
def test_impossible_redrive_is_a_reject(headers: Sequence[tuple[str, bytes | None]]) -> None:
    """The reject's reason says what the record cannot replace."""
    with pytest.raises(Rejected, match=HEADER) as verdict:
        original_of(headers, AT)

    assert verdict.value.reason == "bad_redrive"


@pytest.mark.parametrize(
    "text", ["", "visits", "visits:0", "visits:0:x", "visits:0:7@1", "vi sits:0:7"]
)
def test_what_is_no_place_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="not the place") as refused:
        parse_position(text)

    assert "visits:0:17" in refused.value.hint


REJECTED: dict[Position, int | None] = {at(3): None}


@pytest.mark.parametrize(
    ("attempts", "rejected", "folded", "found", "duplicates"),
    [
        # The first valid one of a reject is folded, and later ones are duplicates.
        ([attempt(9, 3), attempt(7, 3), attempt(5, 3, valid=False)], REJECTED, (), {7: 3}, {9}),
        # One of a record that is no reject, or was folded for in an earlier slice.
        ([attempt(9, 3)], {}, (), {}, {9}),
        ([attempt(9, 3)], REJECTED, {at(3)}, {}, {9}),
        # 5 stood for 3 and was rejected; 7 stands for 5, so for 3; 9, which names 3, is too late.
        ([attempt(5, 3, valid=False), attempt(7, 5), attempt(9, 3)], REJECTED, (), {7: 3}, {9}),
        # A reject that named a record which is none stands for itself.
        ([attempt(7, 5)], {at(5): 3}, (), {7: 5}, set()),
    ],
    ids=["first", "no reject", "earlier", "chain", "itself"],
)
def test_one_of_a_rejects_redrives_is_folded(
    attempts: list[Attempt],
    rejected: dict[Position, int | None],
    folded: set[Position],
    found: dict[int, int],
    duplicates: set[int],
) -> None:
    settled = settle(attempts, rejected, folded, {})

    assert settled.folded == {at(offset): of for offset, of in found.items()}
    assert settled.duplicates == {at(offset) for offset in duplicates}


def test_another_partition_is_another_record() -> None:
    found = settle([Attempt(at(9, 1), 3, valid=True)], {**REJECTED, at(3, 1): None}, {at(3)}, {})

    assert found.folded == {at(9, 1): 3}


def test_one_of_a_record_before_the_origin_is_folded_once() -> None:
    """A redriven record from before the origin is folded once, as the build has not read it."""
    found = settle([attempt(9, 3), attempt(11, 3), attempt(12, 8)], {}, (), {("visits", 0): 5})

    assert found.folded == {at(9): 3}
    assert found.duplicates == {at(11), at(12)}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[bool, int | None]]:
    """Draws for each offset whether the record is valid, and the earlier record that it names."""
    count = draw(st.integers(1, 14))
    return [
        (draw(st.booleans()), draw(st.none() | st.integers(0, offset - 1)) if offset else None)
        for offset in range(count)
    ]


@given(histories(), st.lists(st.integers(0, 14)))
def test_any_cut_settles_the_same(history: list[tuple[bool, int | None]], cut: list[int]) -> None:
    def settled(ends: list[int]) -> tuple[dict[Position, int], set[Position]]:
        rejected: dict[Position, int | None] = {}
        folded: dict[Position, int] = {}
        duplicates: set[Position] = set()
        start = 0
        for end in ends:
            part = list(enumerate(history))[start:end]
            rejected |= {at(offset): of for offset, (valid, of) in part if not valid}
            named = [(offset, valid, of) for offset, (valid, of) in part if of is not None]
            attempts = [attempt(offset, of, valid=valid) for offset, valid, of in named]
            found = settle(attempts, rejected, {at(of) for of in folded.values()}, {})
            folded |= found.folded
            duplicates |= found.duplicates
            start = end
        return folded, duplicates

    whole = settled([len(history)])

    assert settled([*sorted(min(end, len(history)) for end in cut), len(history)]) == whole
    # Each valid one is one or the other, and nothing is folded for twice.
    named = [offset for offset, (valid, of) in enumerate(history) if valid and of is not None]
    assert set(whole[0]) | whole[1] == {at(offset) for offset in named}
    assert len(set(whole[0].values())) == len(whole[0])


def test_a_chain_of_rejected_redrives_is_as_long_as_it_gets() -> None:
    rejected: dict[Position, int | None] = {at(0): None}
    rejected |= {at(offset): offset - 1 for offset in range(1, 5_000)}

    found = settle([attempt(5_000, 4_999, valid=True)], rejected, (), {})

    assert found.folded == {at(5_000): 0}
