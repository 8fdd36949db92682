"""Tests of rollout numbers: the journal's fold counts rollouts, and commands take the numbers."""

from __future__ import annotations

from functools import reduce

import pytest

from kappa.base.errors import Conflict, UsageError
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.history import generation_meant
from kappa.replay.rollout.operator_requests import (
    active_rollout,
    awaited_rollout,
    ready_rollouts,
    undo_target,
)
from kappa.replay.rollout.plan.retry import ended_without_serving
from kappa.replay.rollout.rollout_numbers import (
    build_named,
    part_named,
    rollout_named,
    rollout_of_number,
)
from kappa.replay.rollout.state import State
from kappa.replay.rollout.verify.pairs import builds_to_compare
from kappa.state.journal.events import Abandoned, Event, PromoteAsked
from kappa.state.journal.projections import begun_after, rollout_number
from tests.support.journals import READY, held, served, switch_asked
from tests.support.journals import numbered as records

# Rollouts 1 and 2 serve, of flights and trains; 3 and 4, begun by records 9 and 12, are ready.
STATE = fold_records(records(*READY))
# Rollout 3 serves instead of rollout 1, whose build is kept.
SWITCH = (PromoteAsked(9), held(9, "a"), served(9, 3, "b", live="a", others={"trains": "x"}))
SWITCHED: tuple[Event, ...] = (*READY, *SWITCH)


def test_the_nth_record_that_begins_a_rollout_begins_rollout_n() -> None:
    journal = records(*SWITCHED, switch_asked("a"), Abandoned(18, "no"))
    state = fold_records(journal)

    assert [(each.number, each.id) for each in state.rollouts] == [
        (1, 1), (2, 5), (3, 9), (4, 12), (5, 18),
    ]  # fmt: skip
    # Without the fold, the records alone give the same: those who hear single records use it.
    begun = reduce(begun_after, journal, ())
    assert begun == tuple(each.id for each in state.rollouts)
    numbers = [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 3, 3, 3, 5, 5]
    assert [rollout_number(record, begun) for record in journal] == numbers


@pytest.mark.parametrize("text", ["3", "003"])
def test_an_argument_of_digits_only_is_a_rollouts_number(text: str) -> None:
    rollout = rollout_of_number(STATE, 3)

    assert rollout_named(STATE, text) == rollout
    assert build_named(STATE, text) == "b"
    assert part_named(lambda: STATE, text, None) == ("flights", "b")
    assert part_named(lambda: STATE, None, text) == (None, "b")
    assert awaited_rollout(STATE, text) == active_rollout(STATE, text, "abandon") == rollout
    assert ready_rollouts(STATE, text, "flights", "4") == (rollout, rollout_of_number(STATE, 4))


@pytest.mark.parametrize("text", ["flights", "b", "3x", "-3", "٣", "", None])
def test_any_other_argument_is_none(text: str | None) -> None:
    assert rollout_named(STATE, text) is None
    assert part_named(lambda: STATE, text, text) == (text, text)


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        (State(), "none has begun yet: kappa deploy"),
        (fold_records(records(READY[0])), "the only rollout is 1: kappa history"),
        (STATE, "rollouts are numbered 1 to 4: kappa history"),
    ],
)
@pytest.mark.parametrize("number", [0, 9, 10**30])
def test_number_of_no_rollout_names_the_range(state: State, hint: str, number: int) -> None:
    with pytest.raises(UsageError, match=f"there is no rollout {number}") as refused:
        awaited_rollout(state, str(number))

    assert refused.value.hint == hint


def test_a_rollout_that_has_ended_is_waited_for_and_not_given_up() -> None:
    state = fold_records(records(*SWITCHED))

    assert awaited_rollout(state, "1") == rollout_of_number(state, 1)
    with pytest.raises(Conflict, match="rollout 1 of pipeline flights has served"):
        active_rollout(state, "1", "abandon")
    with pytest.raises(Conflict, match="rollout 3 of pipeline flights has served"):
        ready_rollouts(state, "3")


def test_an_undo_by_number_is_of_the_rollout_that_serves() -> None:
    state = fold_records(records(*SWITCHED))

    assert undo_target(state, "3") == undo_target(state, "flights") == ("flights", "a")
    with pytest.raises(UsageError, match="rollout 1 does not serve pipeline flights: rollout 3"):
        undo_target(state, "1")


def test_after_an_undo_the_build_is_that_of_the_rollout_that_brought_it_back() -> None:
    back = served(18, 4, "a", live="b", others={"trains": "x"})
    state = fold_records(records(*SWITCHED, switch_asked("a"), held(18, "b"), back))

    assert undo_target(state, "5") == ("flights", "b")
    with pytest.raises(UsageError, match="rollout 1 does not serve pipeline flights: rollout 5"):
        undo_target(state, "1")


def test_a_comparison_takes_numbers_in_place_of_pipeline_and_builds() -> None:
    state = fold_records(records(*SWITCHED))

    assert builds_to_compare(state, "3", None, None) == ("a", "b")
    assert builds_to_compare(state, "flights", "1", "3") == ("a", "b")
    assert builds_to_compare(state, "3", "1", None) == ("b", "a")
    assert builds_to_compare(state, "3", "1", "b") == ("a", "b")
    assert builds_to_compare(STATE, "3", None, None) == ("a", "b")
    with pytest.raises(UsageError, match="has no build y"):
        builds_to_compare(state, "3", "4", None)


def test_a_retry_by_number_is_of_the_last_rollout_of_its_pipeline() -> None:
    state = fold_records(records(*READY, Abandoned(9, "no")))

    assert ended_without_serving(state, "3").id == 9
    with pytest.raises(UsageError, match="rollout 1 is not the last of pipeline flights") as told:
        ended_without_serving(state, "1")
    assert told.value.hint.endswith("kappa retry 3")
    with pytest.raises(UsageError, match="rollout 1 is not the last of pipeline flights") as told:
        ended_without_serving(fold_records(records(*SWITCHED)), "1")
    assert told.value.hint == "it is served: kappa history; then kappa replay flights"


@pytest.mark.parametrize(
    ("generation", "rollout", "found"), [(2, None, 2), (None, 3, 3), (None, 1, 1)]
)
def test_generation_has_two_names(generation: int | None, rollout: int | None, found: int) -> None:
    """A generation is named by its number or by the rollout that made it."""
    assert generation_meant(fold_records(records(*SWITCHED)), generation, rollout) == found


@pytest.mark.parametrize(
    ("generation", "rollout", "says"),
    [
        (None, None, "named by its number, or by the rollout"),
        (1, 1, "named by its number, or by the rollout"),
        (None, 4, "has made no generation: it is ready"),
        (None, 9, "there is no rollout 9"),
    ],
)
def test_no_generation_is_refused(generation: int | None, rollout: int | None, says: str) -> None:
    """A generation that is named twice, not at all, or that was never made is refused."""
    with pytest.raises(UsageError, match=says):
        generation_meant(fold_records(records(*SWITCHED)), generation, rollout)
