"""Witnesses: the records by which a log is recognized, and a record that has changed."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kappa.state.frontier import Frontier
from kappa.state.mark import origin_mark, parse_mark
from kappa.state.offsets import Offsets
from kappa.state.witness import (
    NO_EPOCH,
    LostEnd,
    Witness,
    digest_of,
    is_other_record,
    leader_changed,
    offsets_before_cut,
    witnesses_after_slice,
)

SEEN = Witness(8, 2, "d")
LATER = Witness(9, 2, "d")


def test_digests_differ_by_time_key_and_value_null_and_empty_and_where_they_meet() -> None:
    records = [
        (1, b"k", b"v"),
        (2, b"k", b"v"),
        (1, b"kv", b""),
        (1, b"", b"kv"),
        (1, None, b"kv"),
        (1, b"kv", None),
        (1, None, None),
        (1, b"", b""),
        (1, b"-", None),
    ]

    assert len({digest_of(*record) for record in records}) == len(records)
    assert digest_of(1, b"k", b"v") == digest_of(1, b"k", b"v")


@pytest.mark.parametrize(
    ("found", "other"),
    [
        ([SEEN], False),
        # Compaction or retention has taken it: the broker's epochs decide.
        ([], False),
        ([replace(SEEN, epoch=NO_EPOCH)], False),
        ([replace(SEEN, epoch=4)], True),
        ([replace(SEEN, digest="e")], True),
        ([replace(SEEN, epoch=NO_EPOCH, digest="e")], True),
        # There was a hole behind it.
        ([SEEN, LATER], True),
        ([LATER], True),
    ],
)
def test_a_log_is_another_if_any_record_but_the_witness_is_there(
    found: list[Witness], other: bool
) -> None:
    assert is_other_record(SEEN, found) is other


def test_a_slice_without_records_in_a_partition_keeps_the_witness_before() -> None:
    """A witness of a partition outside of the slice comes from another read, and is not used."""
    before = {"a": {0: SEEN, 1: SEEN}, "b": {0: SEEN}}
    start = Offsets({"a": {0: 9, 1: 9}, "b": {0: 9}})
    end = Offsets({"a": {0: 12, 1: 12, 2: 3}, "b": {0: 9}})

    assert witnesses_after_slice(
        before, {"a": {0: LATER, 2: LATER}, "b": {0: LATER}}, start, end
    ) == {
        "a": {0: LATER, 1: SEEN, 2: LATER},
        "b": {0: SEEN},
    }


def test_only_a_partition_that_was_read_before_can_have_another_leader() -> None:
    before = {"a": {0: SEEN}}

    assert not leader_changed(before, {"a": {0: LATER, 1: Witness(3, 7, "")}, "b": {0: SEEN}})
    assert leader_changed(before, {"a": {0: replace(LATER, epoch=3)}})


def test_a_branch_may_begin_before_the_cut_if_it_is_known() -> None:
    end = Offsets({"a": {0: 9, 1: 4}})

    assert offsets_before_cut(end, [LostEnd("a", 0, 6, 9)]) == Offsets({"a": {0: 6, 1: 4}})
    assert offsets_before_cut(end, [LostEnd("a", 0, 6, 9), LostEnd("a", 1, None, 4)]) is None


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (LostEnd("a", 0, 8, 9), "a partition 0 was cut at offset 8 and has lost offset 8"),
        (LostEnd("a", 0, 3, 9), "a partition 0 was cut at offset 3 and has lost offsets 3 to 8"),
        (LostEnd("a", 0, None, 9), "a partition 0 has another record before offset 9"),
    ],
)
def test_a_lost_end_names_its_offsets(lost: LostEnd, text: str) -> None:
    assert str(lost) == text


def test_marks_and_frontiers_carry_witnesses_and_older_ones_have_none() -> None:
    mark = replace(origin_mark("b", Offsets({"a": {0: 9}})), witnesses={"a": {0: SEEN}})
    older = mark.to_json().replace(
        ',"witnesses":{"a":{"0":{"offset":8,"epoch":2,"digest":"d"}}}', ""
    )

    assert parse_mark(mark.to_json(), where="it") == mark
    assert older != mark.to_json()
    assert parse_mark(older, where="it") == replace(mark, witnesses={})
    assert Frontier(1, "b", 1, Offsets(), {}, "").witnesses == {}
