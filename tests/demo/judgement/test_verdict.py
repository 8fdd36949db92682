"""Laws of the reader's verdict: what counts as mixed, as going back, and as an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from demo.judgement.verdict import Observation, Verdict, after_answer, after_error
from kappa.state.offsets import Offsets

SEEN = Observation(
    at=1.0,
    generation=3,
    build="flights-a",
    offsets=Offsets({"flights": {0: 10, 1: 20}}),
    flights={"delays": 30, "frontier": 30},
    cancelled={"delays": 2, "departures": 2},
    rejects={"rejects": 0, "frontier": 0},
    foreign=0,
)


def test_an_answer_like_the_one_before_is_in_order() -> None:
    verdict = after_answer(Verdict(), SEEN, SEEN)

    assert verdict == Verdict(queries=1)
    assert verdict.clean


def test_an_answer_that_is_further_on_is_in_order() -> None:
    ahead = replace(
        SEEN,
        generation=4,
        build="flights-b",
        offsets=Offsets({"flights": {0: 11, 1: 20, 2: 1}, "planes": {0: 1}}),
    )

    assert after_answer(Verdict(), SEEN, ahead) == Verdict(queries=1, switches=1)


@pytest.mark.parametrize(
    "counts", [{"delays": 30, "frontier": 31}, {"delays": 30, "departures": 29, "frontier": 30}]
)
def test_tables_that_disagree_are_a_mixed_answer(counts: dict[str, int]) -> None:
    verdict = after_answer(Verdict(), SEEN, replace(SEEN, flights=counts))

    assert (verdict.mixed, verdict.clean) == (1, False)


@pytest.mark.parametrize(
    "mixed", [replace(SEEN, cancelled={"delays": 2, "departures": 3}), replace(SEEN, foreign=1)]
)
def test_rows_that_the_version_which_serves_cannot_have_made_are_a_mixed_answer(
    mixed: Observation,
) -> None:
    assert after_answer(Verdict(), SEEN, mixed).mixed == 1


def test_rejects_that_the_frontier_does_not_count_are_a_mixed_answer() -> None:
    assert (
        after_answer(Verdict(), SEEN, replace(SEEN, rejects={"rejects": 1, "frontier": 0})).mixed
        == 1
    )


@pytest.mark.parametrize(
    "behind",
    [
        replace(SEEN, generation=2),
        replace(SEEN, offsets=Offsets({"flights": {0: 9, 1: 99}})),
        replace(SEEN, generation=4, offsets=Offsets({"flights": {0: 10}})),
    ],
)
def test_a_lesser_generation_or_any_lesser_offset_is_a_backward_answer(behind: Observation) -> None:
    verdict = after_answer(Verdict(), SEEN, behind)

    assert (verdict.backward, verdict.clean) == (1, False)


def test_an_error_is_counted_and_the_first_few_are_kept() -> None:
    verdict = Verdict()
    for number in range(7):
        verdict = after_error(verdict, f"error {number}")

    assert (verdict.queries, verdict.errors, len(verdict.faults), verdict.clean) == (7, 7, 5, False)


def test_a_reader_that_never_got_an_answer_has_proved_nothing() -> None:
    assert not Verdict().clean
