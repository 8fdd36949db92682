"""Laws of rollouts: the state that results from a journal, and the events that may follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from journals import (
    NOWHERE,
    READY,
    held,
    numbered,
    open_hold,
    pipeline_retired,
    served,
    staged,
    switch_asked,
    together,
    verified,
)
from msgspec.structs import replace
from plans import A_SERVES as FIRST
from plans import B_SERVES as SECOND

from kappa.replay.rollout.fold import advance_state, check_may_follow, fold_records
from kappa.replay.rollout.rollout import BEGINNINGS, TRANSITIONS, IllegalTransition, Move, Phase
from kappa.replay.rollout.state import State, soak_end, soaked_builds
from kappa.state.journal.events import (
    Abandoned,
    CaughtUp,
    Event,
    Failed,
    GenerationMade,
    Paused,
    PipelineRetired,
    PromoteAsked,
    RedriveAsked,
    Released,
    Resumed,
    Retired,
    Served,
    VerifyAsked,
)


def ready(number: int, build: str, **given: Any) -> tuple[Event, ...]:
    """Returns the events after which a build waits for a yes, or has it already."""
    return (staged(build, **given), CaughtUp(number, NOWHERE), verified(number))


UNASKED = (*FIRST, *ready(5, "b", auto_promote=False))
UNDONE = (*SECOND, switch_asked("a"), held(10, "b"), served(10, 3, "a", live="b"))
REDONE = (*UNDONE, switch_asked("b"), held(13, "a"), served(13, 4, "b", live="a"))
THIRD = (*SECOND, *ready(10, "c"), held(10, "b"), served(10, 3, "c", live="b"))
GROUP = (*READY, PromoteAsked(9, (12,)))
BOTH_HELD = (*GROUP, held(9, "a", together=(12,)), held(12, "x", together=(9,)))
BOTH_SERVED = together(served(9, 3, "b", live="a"), served(12, 3, "y", pipeline="trains", live="x"))


def state_of(*events: Event) -> State:
    return fold_records(numbered(*events))


def test_a_rollout_goes_from_replaying_to_served() -> None:
    phases = [state_of(*SECOND[:length]).rollouts[-1].phase for length in range(5, 10)]

    assert phases == [Phase.REPLAYING, Phase.VERIFYING, Phase.READY, Phase.HOLDING, Phase.SERVED]


@pytest.mark.parametrize(
    ("events", "serving", "idle", "to_retire"),
    [
        # A first build serves without a hold, and leaves nothing idle.
        (FIRST, "a", None, set()),
        # The build that served before is kept.
        (SECOND, "b", "a", set()),
        # An undo swaps the pair and retires nobody, and a redo is the undo of an undo.
        (UNDONE, "a", "b", set()),
        (
            (*UNDONE, switch_asked("b"), held(13, "a"), served(13, 4, "b", live="a")),
            "b",
            "a",
            set(),
        ),
        # A promote of a new build leaves the idle one of the pair before to retire.
        (THIRD, "c", "b", {"a"}),
        ((*THIRD, Retired("a")), "c", "b", set()),
        # An idle build may be retired, and then there is none to go back to.
        ((*SECOND, Retired("a")), "b", None, set()),
    ],
    ids=["first", "second", "undone", "redone", "third", "third, first gone", "no way back"],
)
def test_who_serves_is_kept_and_goes(
    events: tuple[Event, ...], serving: str, idle: str | None, to_retire: set[str]
) -> None:
    state = state_of(*events)

    assert state.serving == {"flights": serving}
    assert state.idle == ({"flights": idle} if idle else {})
    assert state.unneeded_builds() == to_retire
    assert state.generation == sum(isinstance(event, Served) for event in events)


def test_kept_build_consumes_and_a_retired_one_was_before() -> None:
    assert state_of(*SECOND).wanted_builds() == {"a", "b"}
    assert state_of(*SECOND, Retired("a")).served_before("flights") == "a"
    assert state_of(*SECOND, Retired("a")).retired == {"a"}


def timed(*events: Event) -> State:
    """Returns the state of records in which the n-th Served record is of the n-th of January."""
    records = numbered(*events)
    days = iter(range(1, 32))
    return fold_records(
        replace(each, at=f"2026-01-{next(days):02}T12:00:00.000+00:00")
        if isinstance(each.event, Served)
        else each
        for each in records
    )


@pytest.mark.parametrize(("hours", "over"), [(0, False), (0.99, False), (1, True), (30, True)])
def test_build_is_kept_through_its_soak(hours: float, over: bool) -> None:
    """The soak begins when the build stops serving."""
    state, now = timed(*SECOND), datetime(2026, 1, 2, 12, tzinfo=UTC) + timedelta(hours=hours)

    assert soak_end(state, "flights", 3600) == datetime(2026, 1, 2, 13, tzinfo=UTC)
    assert soaked_builds(state, now, 3600) == ({"a"} if over else set())


def test_an_undo_begins_the_soak_of_the_other_one() -> None:
    assert soak_end(timed(*UNDONE), "flights", 3600) == datetime(2026, 1, 3, 13, tzinfo=UTC)
    assert soaked_builds(timed(*UNDONE), datetime(2026, 1, 4, tzinfo=UTC), 3600) == {"b"}


def test_a_switch_of_another_pipeline_begins_no_soak() -> None:
    switch = served(10, 3, "x", pipeline="trains", others={"flights": "b"})
    state = timed(*SECOND, *ready(10, "x", pipeline="trains"), switch)

    assert soak_end(state, "flights", 3600) == datetime(2026, 1, 2, 13, tzinfo=UTC)
    assert soak_end(state, "trains", 3600) is None


def test_a_build_on_its_way_back_is_not_retired_however_long_its_soak_is_over() -> None:
    year = datetime(2027, 1, 1, tzinfo=UTC)

    assert soaked_builds(timed(*SECOND, switch_asked("a")), year, 3600) == frozenset()
    assert soaked_builds(timed(*SECOND, switch_asked("a"), Failed(10, "no")), year, 3600) == {"a"}
    assert soaked_builds(timed(*SECOND, staged("c")), year, 3600) == {"a"}


def test_while_a_new_build_is_on_its_way_the_idle_one_is_kept() -> None:
    assert state_of(*SECOND, staged("c")).wanted_builds() == {"a", "b", "c"}


@pytest.mark.parametrize("end", [Abandoned(5, "no"), Failed(5, "no")])
@pytest.mark.parametrize("length", [5, 6, 7, 8])
def test_candidate_that_ends_is_to_retire(length: int, end: Event) -> None:
    state = state_of(*SECOND[:length], end)

    assert state.unneeded_builds() == {"b"}
    assert state.serving == {"flights": "a"}
    assert state.active("flights") is None


def test_a_switch_that_fails_keeps_both_builds() -> None:
    state = state_of(*SECOND, switch_asked("a"), Failed(10, "it never came near"))

    assert state.wanted_builds() == {"a", "b"}
    assert state.unneeded_builds() == frozenset()


@pytest.mark.parametrize("verdict", ["failed", "inconclusive"])
def test_a_verdict_that_is_not_passed_ends_the_rollout_and_swaps_nothing(verdict: str) -> None:
    state = state_of(*SECOND[:6], verified(5, verdict=verdict))

    assert state.rollout(5).phase is Phase.FAILED
    assert state.rollout(5).reason == "2 of 3 rows fail"
    assert state.serving == {"flights": "a"}


def test_a_candidate_that_passed_waits_for_a_yes_unless_it_was_given_beforehand() -> None:
    assert state_of(*UNASKED).rollouts[-1].waits
    assert not state_of(*UNASKED, PromoteAsked(5)).rollouts[-1].waits
    assert not state_of(*SECOND[:7]).rollouts[-1].waits
    assert state_of(*UNASKED, PromoteAsked(5), held(5, "a")).rollouts[-1].phase is Phase.HOLDING


def test_a_yes_does_not_outlive_the_verification_that_it_was_given_to() -> None:
    again = state_of(*UNASKED, PromoteAsked(5), VerifyAsked(5, 1)).rollouts[-1]

    assert (again.phase, again.verified, again.approved) == (Phase.VERIFYING, None, False)


def test_a_release_makes_room_for_the_next_attempt() -> None:
    state = state_of(*SECOND[:8], Released(5, "a", 8, "too long"))
    rollout = state.rollout(5)

    assert (rollout.phase, rollout.attempts, rollout.hold) == (Phase.READY, 1, None)
    check_may_follow(state, held(5, "a", attempt=2))


def test_pipelines_roll_out_side_by_side_in_one_serving_map() -> None:
    switch = served(5, 2, "x", pipeline="trains", others={"flights": "a"})
    waiting, *read = ready(5, "x", pipeline="trains")
    state = state_of(*FIRST, waiting, staged("b"), *read, switch)

    assert state.serving == {"flights": "a", "trains": "x"}
    assert state.active("flights") is not None
    assert state.active("trains") is None


@pytest.mark.parametrize(
    ("before", "illegal"),
    [
        (FIRST[:1], staged("b")),
        (FIRST, staged("a")),
        (FIRST, switch_asked("a")),
        (SECOND, switch_asked("b")),
        (FIRST, CaughtUp(2, NOWHERE)),
        (FIRST[:2], served(1, 1, "a")),
        (FIRST[:3], served(1, 2, "a")),
        (SECOND[:7], served(5, 2, "b", live="a")),
        (SECOND[:7], held(5, "b")),
        (SECOND[:8], held(5, "a")),
        (SECOND[:8], Released(5, "a", 7, "which?")),
        (SECOND[:8], served(5, 3, "b", live="a")),
        (SECOND[:8], served(5, 2, "b", live="a", others={"trains": "x"})),
        (FIRST[:2], PromoteAsked(1)),
        ((*UNASKED, VerifyAsked(5, 1)), PromoteAsked(5)),
        (UNASKED, held(5, "a")),
        (SECOND[:8], VerifyAsked(5, 1)),
        (SECOND, PromoteAsked(5)),
        (SECOND, Abandoned(5, "too late")),
        (SECOND, Retired("b")),
        ((*SECOND, switch_asked("a")), Retired("a")),
        ((*SECOND, Retired("a")), switch_asked("a")),
        ((*SECOND, Retired("a")), Retired("a")),
        (SECOND, Retired("never heard of")),
        ((*THIRD, Retired("a")), Retired("a")),
        (READY[:-1], PromoteAsked(9, (12,))),
        (READY, PromoteAsked(9, (9,))),
        (READY, PromoteAsked(9, (77,))),
        ((*READY, PromoteAsked(12)), PromoteAsked(9, (12,))),
        (GROUP, PromoteAsked(9)),
        (GROUP, PromoteAsked(12, (9,))),
        (GROUP, held(9, "a")),
        (GROUP, held(9, "a", together=(5,))),
        ((*READY, PromoteAsked(9)), held(9, "a", together=(12,))),
        (GROUP, BOTH_SERVED),
        (BOTH_HELD[:-1], BOTH_SERVED),
        (BOTH_HELD[:-1], served(9, 3, "b", live="a", others={"trains": "x"})),
        (BOTH_HELD, served(9, 3, "b", live="a", others={"trains": "x"})),
        (BOTH_HELD, served(12, 3, "y", pipeline="trains", live="x", others={"flights": "a"})),
        (BOTH_HELD, served(9, 3, "b", live="a", others={"trains": "y"})),
        (BOTH_HELD, replace(BOTH_SERVED, serving={"flights": "b", "trains": "x"})),
        (BOTH_HELD, replace(BOTH_SERVED, serving={"flights": "b", "trains": "y", "boats": "z"})),
        (BOTH_HELD, replace(BOTH_SERVED, serving={"flights": "b"})),
        (BOTH_HELD, replace(BOTH_SERVED, receipt=BOTH_SERVED.others[0].receipt)),
        (BOTH_HELD, replace(BOTH_SERVED, generation=4)),
        (BOTH_HELD, together(BOTH_SERVED, BOTH_SERVED)),
        ((*READY, PromoteAsked(9), PromoteAsked(12), held(9, "a"), held(12, "x")), BOTH_SERVED),
        ((*BOTH_HELD, Abandoned(12, "no")), BOTH_SERVED),
        ((*BOTH_HELD, Released(9, "a", 16, "too long")), BOTH_SERVED),
        ((*BOTH_HELD, Released(9, "a", 16, "too long")), Released(12, "x", 17, "too long")),
        (GROUP, Failed(9, "no", together=(5,))),
        (READY, Failed(9, "no", together=(12,))),
    ],
)
def test_illegal_transitions_change_nothing(before: tuple[Event, ...], illegal: Event) -> None:
    state = state_of(*before)

    with pytest.raises(IllegalTransition):
        check_may_follow(state, illegal)

    assert state == state_of(*before)


def holds(*events: Event) -> dict[str, int | None]:
    found = {build: open_hold(numbered(*events), build) for build in ("a", "x")}
    return {build: None if hold is None else hold.number for build, hold in found.items()}


def test_approved_together_serve_in_one_record() -> None:
    """Rollouts that were approved together serve by one record, which ends every hold."""
    state = state_of(*BOTH_HELD, BOTH_SERVED)

    assert state.generation == 3
    assert state.serving == {"flights": "b", "trains": "y"}
    assert state.idle == {"flights": "a", "trains": "x"}
    assert {rollout.phase for rollout in state.rollouts} == {Phase.SERVED}
    assert holds(*BOTH_HELD) == {"a": 16, "x": 17}
    assert holds(*BOTH_HELD, BOTH_SERVED) == {"a": None, "x": None}


def test_a_group_may_hold_a_first_build_that_nothing_was_held_for() -> None:
    first = ready(8, "x", pipeline="trains", auto_promote=False)
    asked = (*UNASKED, *first, PromoteAsked(8, (5,)))
    both = together(served(8, 2, "x", pipeline="trains"), served(5, 2, "b", live="a"))

    with pytest.raises(IllegalTransition, match="build a was not held"):
        state_of(*asked, both)
    state = state_of(*asked, held(5, "a", together=(8,)), both)
    assert (state.serving, state.idle) == ({"flights": "b", "trains": "x"}, {"flights": "a"})


@pytest.mark.parametrize("before", [GROUP, BOTH_HELD[:-1], BOTH_HELD])
@pytest.mark.parametrize(("leaves", "other"), [(9, 12), (12, 9)])
@pytest.mark.parametrize(
    ("kind", "leaving"),
    [
        *((Failed, "failed"), (Abandoned, "was abandoned")),
        (lambda leaves, _: VerifyAsked(leaves, 1), "is verified once more"),
    ],
)
def test_who_leaves_a_group_takes_yes_and_holds_along(
    before: tuple[Event, ...], leaves: int, other: int, kind: Callable[..., Event], leaving: str
) -> None:
    event = kind(leaves, "no")
    if isinstance(event, VerifyAsked) and state_of(*before).rollout(leaves).phase is Phase.HOLDING:
        with pytest.raises(IllegalTransition):
            state_of(*before, event)
        return
    left = state_of(*before, event).rollout(other)

    assert (left.phase, left.waits, left.hold, left.group) == (Phase.READY, True, None, ())
    assert leaving in left.reason
    number = state_of(*before).rollout(leaves).number
    assert f"rollout {number} of pipeline" in left.reason
    assert holds(*before, event) == {"a": None, "x": None}
    again = state_of(*before, event, PromoteAsked(other)).rollout(other)
    assert (again.approved, again.reason, again.attempts, again.group) == (True, "", 0, ())


@pytest.mark.parametrize(
    "released", [Released(9, "a", 16, "too long"), Released(12, "x", 17, "too long")]
)
def test_a_release_of_one_releases_all_and_the_group_stays_together(released: Released) -> None:
    state = state_of(*BOTH_HELD, released)

    assert len(state.active_rollouts) == 2
    for rollout in state.active_rollouts:
        assert (rollout.phase, rollout.hold, rollout.group) == (Phase.READY, None, (9, 12))
        assert (rollout.attempts, rollout.approved) == (1, True)
    assert holds(*BOTH_HELD, released) == {"a": None, "x": None}


def test_a_group_of_which_one_was_held_when_it_was_released_has_been_tried_as_often() -> None:
    state = state_of(*BOTH_HELD[:-1], Released(9, "a", 16, "too long"))

    assert [rollout.attempts for rollout in state.active_rollouts] == [1, 1]


def test_a_switch_that_never_came_ends_the_whole_group_in_one_record() -> None:
    state = state_of(*GROUP, Failed(12, "they never came near", "look", (9,)))

    assert [(rollout.phase, rollout.reason) for rollout in state.rollouts[-2:]] == [
        (Phase.FAILED, "they never came near")
    ] * 2
    assert state.serving == {"flights": "a", "trains": "x"}


def test_one_pipeline_of_a_generation_of_several_is_undone_by_itself() -> None:
    served_both = (*BOTH_HELD, BOTH_SERVED)
    state = state_of(
        *served_both,
        switch_asked("x", pipeline="trains"),
        held(19, "y"),
        served(19, 4, "x", pipeline="trains", live="y", others={"flights": "b"}),
    )

    assert state.serving == {"flights": "b", "trains": "x"}
    assert state.idle == {"flights": "a", "trains": "y"}
    for pipeline in ("flights", "trains"):
        ends = soak_end(timed(*served_both), pipeline, 3600)
        assert ends == datetime(2026, 1, 3, 13, tzinfo=UTC)


RETIRED = (*SECOND, pipeline_retired("b", 3))
LEFT = (*RETIRED, switch_asked("b"), served(11, 4, "b"))


def test_a_retired_pipeline_leaves_the_serving_map_and_its_build_is_kept_for_an_undo() -> None:
    state = state_of(*RETIRED)

    assert (state.generation, state.serving, state.idle) == (3, {}, {"flights": "b"})
    # The idle build of the pair before goes, as at a promote of a new build.
    assert state.unneeded_builds() == {"a"}
    assert state.wanted_jobs() == {"b"}
    assert state.retirements["flights"].event.names == ("flights_table",)


def test_an_undo_of_a_retirement_serves_the_kept_build_without_a_hold() -> None:
    state = state_of(*LEFT)

    assert (state.serving, state.idle, state.retirements) == ({"flights": "b"}, {}, {})
    assert state.unneeded_builds() == {"a"}


def test_other_pipelines_serve_on_through_a_retirement() -> None:
    state = state_of(*READY[:8], pipeline_retired("a", 3, others={"trains": "x"}))

    assert state.serving == {"trains": "x"}


def test_a_new_build_may_follow_a_retirement_and_the_old_one_is_still_kept() -> None:
    events = (*RETIRED, staged("c"), CaughtUp(11, NOWHERE), verified(11), served(11, 4, "c"))
    state = state_of(*events)

    assert (state.serving, state.idle) == ({"flights": "c"}, {"flights": "b"})
    assert state_of(*events, switch_asked("b")).active("flights") is not None


@pytest.mark.parametrize(("seconds", "over"), [(0, False), (99, False), (100, True)])
def test_retired_pipelines_build_is_kept_as_recorded(seconds: int, over: bool) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    events = (*SECOND, pipeline_retired("b", 3, kept_seconds=100))
    state = fold_records(replace(record, at=begin.isoformat()) for record in numbered(*events))

    soaked = soaked_builds(state, begin + timedelta(seconds=seconds), 3600.0)
    assert soaked == ({"b"} if over else set())


def test_when_the_kept_build_of_a_retired_pipeline_is_gone_there_is_no_way_back() -> None:
    state = state_of(*RETIRED, Retired("b"))

    assert (state.idle, state.wanted_jobs()) == ({}, set())
    assert not state.retirements["flights"].kept
    assert not follows(state, switch_asked("b"))


def test_a_paused_pipeline_serves_and_none_of_its_jobs_runs() -> None:
    state = state_of(*SECOND, Paused("flights"))

    assert (state.serving, state.idle) == ({"flights": "b"}, {"flights": "a"})
    assert state.wanted_builds() == {"a", "b"}
    assert state.wanted_jobs() == set()
    assert state_of(*SECOND, Paused("flights"), Resumed("flights")).wanted_jobs() == {"a", "b"}


def test_a_redrive_is_remembered_and_changes_nothing_else() -> None:
    before, after = state_of(*SECOND), state_of(*SECOND, RedriveAsked("flights", {"visits": 2}))

    assert [record.event for record in after.service] == [RedriveAsked("flights", {"visits": 2})]
    assert (after.generation, after.serving, after.rollouts, after.idle) == (
        *(before.generation, before.serving, before.rollouts, before.idle),
    )
    assert not follows(before, RedriveAsked("nobody", {"visits": 2}))


def test_an_undo_of_a_paused_pipeline_runs_the_kept_build_alone_and_the_pause_stays() -> None:
    asked = (*SECOND, Paused("flights"), switch_asked("a"))
    undone = (*asked, held(11, "b"), served(11, 3, "a", live="b"))

    assert state_of(*asked).wanted_jobs() == {"a"}
    assert state_of(*undone).wanted_jobs() == set()


def test_a_pause_goes_through_a_retirement_and_its_undo_and_ends_with_the_last_build() -> None:
    retired = (*SECOND, Paused("flights"), pipeline_retired("b", 3))

    assert state_of(*retired).wanted_jobs() == set()
    assert state_of(*retired, switch_asked("b"), served(12, 4, "b")).paused.keys() == {"flights"}
    assert state_of(*retired, Retired("a")).paused.keys() == {"flights"}
    assert state_of(*retired, Retired("b")).paused == {}


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ((), pipeline_retired("a", 1)),
        (SECOND, pipeline_retired("a", 3)),
        (SECOND, pipeline_retired("b", 4)),
        (SECOND, pipeline_retired("b", 3, others={"trains": "x"})),
        (SECOND, replace(pipeline_retired("b", 3), serving={"flights": "b"})),
        (UNASKED, pipeline_retired("a", 2)),
        (RETIRED, pipeline_retired("b", 4)),
        (RETIRED, Paused("flights")),
        (UNASKED, Paused("flights")),
        ((*SECOND, Paused("flights")), Paused("flights")),
        ((*SECOND, Paused("flights")), staged("c")),
        (SECOND, Resumed("flights")),
    ],
)
def test_illegal_retirements_and_pauses_are_none(before: tuple[Event, ...], event: Event) -> None:
    assert not follows(state_of(*before), event)


def test_a_record_out_of_its_turn_is_refused() -> None:
    with pytest.raises(IllegalTransition, match="record 3 cannot follow record 1"):
        advance_state(state_of(FIRST[0]), numbered(*FIRST)[2])


def test_phases_without_a_way_out_are_the_three_ends() -> None:
    ends = {phase for phase, moves in TRANSITIONS.items() if not moves}
    assert ends == {Phase.SERVED, Phase.FAILED, Phase.ABANDONED}
    assert set(TRANSITIONS) == set(Phase)
    assert {move for moves in TRANSITIONS.values() for move in moves} | set(BEGINNINGS) == set(Move)


def test_every_phase_can_be_abandoned_before_it_serves() -> None:
    assert all(Move.ABANDONED in moves for moves in TRANSITIONS.values() if moves)


PIPELINES = {**dict.fromkeys("abcd", "flights"), **dict.fromkeys("xyz", "trains"), "s": "ships"}


def switch_of(state: State, numbers: Iterable[int]) -> Served:
    """Returns the record that makes these rollouts serve, in one generation."""
    rollouts = [state.rollout(number) for number in numbers]
    each = [
        served(
            one.id,
            state.generation + 1,
            one.build,
            pipeline=one.pipeline,
            live=state.serving.get(one.pipeline),
        )
        for one in rollouts
    ]
    serving = {**state.serving, **{one.pipeline: one.build for one in rollouts}}
    return replace(together(*each), serving=serving)


def any_events(
    state: State, draw: st.DrawFn, pipelines: Mapping[str, str] = PIPELINES
) -> tuple[list[Event], list[Event]]:
    """Returns events of each kind with few names, whether or not they may follow.

    The first list has the events that advance a rollout, the second one all others.
    """
    active = [rollout.id for rollout in state.active_rollouts]
    number = draw(st.sampled_from(active * 3 + [rollout.id for rollout in state.rollouts] or [1]))
    build = draw(st.sampled_from(sorted(pipelines)))
    rollout = next((each for each in state.rollouts if each.id == number), None)
    pipeline = rollout.pipeline if rollout else "flights"
    live = state.serving.get(pipeline)
    ready = [each.id for each in state.active_rollouts if each.waits and each.id != number]
    some = draw(st.sampled_from([tuple(ready), tuple(ready[:1]), tuple(active)]))
    group = rollout.together if rollout else ()
    on: list[Event] = [
        staged(build, pipeline=pipelines[build], auto_promote=draw(st.booleans())),
        CaughtUp(number, NOWHERE),
        verified(number),
        PromoteAsked(number, draw(st.sampled_from([(), some, some]))),
        held(number, live or build, together=group),
    ]
    if rollout is not None:
        members = draw(st.sampled_from([rollout.group, rollout.group, ()])) or (number,)
        on.append(switch_of(state, members))
    off = [
        switch_asked(state.idle.get(pipelines[build], build), pipeline=pipelines[build]),
        verified(number, verdict="failed"),
        VerifyAsked(number, 1),
        Released(number, build, (rollout.hold if rollout else None) or 1, "too long"),
        Abandoned(number, "no"),
        Failed(number, "no", together=draw(st.sampled_from([(), group]))),
        Retired(build),
        pipeline_retired(
            live or build,
            state.generation + 1,
            pipeline=pipeline,
            others={name: each for name, each in state.serving.items() if name != pipeline},
        ),
        Paused(pipeline),
        Resumed(pipeline),
        RedriveAsked(pipeline, {"visits": 1}),
    ]
    return on, off


def next_events(state: State, draw: st.DrawFn) -> list[Event]:
    """Lists the events that may follow, with more weight on events that advance a rollout."""
    on, off = any_events(state, draw)
    return [event for event in on * 4 + off if follows(state, event)]


def follows(state: State, event: Event) -> bool:
    try:
        check_may_follow(state, event)
    except IllegalTransition:
        return False
    return True


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    events = list(draw(st.sampled_from([(), SECOND, READY, GROUP])))
    state = state_of(*events)
    for _ in range(draw(st.integers(0, 20))):
        legal = next_events(state, draw)
        if legal:
            event = draw(st.sampled_from(legal))
            state = advance_state(state, numbered(event, after=state.last)[0])
            events.append(event)
    return events


@pytest.mark.law
@examples(60)
@given(histories())
def test_in_every_legal_history_the_laws_of_state_hold(events: list[Event]) -> None:
    records = numbered(*events)
    states = [fold_records(records[:length]) for length in range(len(records) + 1)]
    for before, after in pairwise(states):
        record = records[before.last]
        # Only what makes a generation raises its number, by one. A Served changes the builds that
        # serve one pipeline or group; a retirement takes away one pipeline.
        assert after.generation - before.generation == isinstance(record.event, GenerationMade)
        gone = {record.event.pipeline} if isinstance(record.event, PipelineRetired) else set()
        assert before.serving.keys() - after.serving.keys() == gone
        changed = {name for name, _ in after.serving.items() - before.serving.items()}
        switched = record.event.switched if isinstance(record.event, Served) else ()
        assert changed == {each.receipt.pipeline for each in switched}
        assert not switched or {each.rollout for each in switched} == set(
            before.rollout(switched[0].rollout).group or (switched[0].rollout,)
        )
        # A group acts as one: all of it has a yes, or all of it ended in one record.
        for rollout in after.active_rollouts:
            others = [each for each in after.active_rollouts if each.group == rollout.group]
            assert {*rollout.group} <= {each.id for each in others if each.approved}
        # At most one rollout of a pipeline is active. No build is retired that it or a reader
        # needs.
        active = [rollout.pipeline for rollout in after.active_rollouts]
        assert len({*active}) == len(active)
        assert not after.wanted_builds() & (after.retired | after.unneeded_builds())
        assert not set(after.serving.values()) & set(after.idle.values())
        assert after.unneeded_builds() | after.retired | after.wanted_builds() == set(
            after.versions
        )
        # Of a paused pipeline only a build on its way back runs. A retired one does not serve.
        assert after.wanted_builds() - after.wanted_jobs() == {
            build
            for build in after.wanted_builds() - {each.build for each in after.active_rollouts}
            if after.pipelines[build] in after.paused
        }
        assert not after.retirements.keys() & after.serving.keys()
        assert after.paused.keys() <= {*after.serving, *after.idle}
        # No build serves without a yes, and a yes needs a verified build.
        for rollout in after.rollouts:
            if rollout.phase in {Phase.HOLDING, Phase.SERVED}:
                assert rollout.approved
            if rollout.phase in {Phase.READY, Phase.HOLDING, Phase.SERVED} and not rollout.switch:
                assert rollout.verified
        # The job and its rollout have the same hold.
        for name, build in after.serving.items():
            underway = after.active(name)
            hold = open_hold(records[: after.last], build)
            assert (hold.number if hold else None) == (underway.hold if underway else None)


@pytest.mark.law
@examples(40)
@given(histories(), st.integers(0, 40))
def test_folding_in_two_parts_is_folding_at_once(events: list[Event], cut: int) -> None:
    records = numbered(*events)

    assert fold_records(records[cut:], fold_records(records[:cut])) == fold_records(records)


@st.composite
def attempts(draw: st.DrawFn) -> tuple[list[Event], State]:
    """Returns events that were tried one after the other, and the last state.

    The events are of one or two pipelines. Some of them may not follow.
    """
    begins = {"abcd": [(), SECOND], "abcdxyz": [(), READY, BOTH_HELD]}
    pairs = [(pipelines, begun) for pipelines, all_begun in begins.items() for begun in all_begun]
    pipelines, begun = draw(st.sampled_from(pairs))
    known = {build: PIPELINES[build] for build in pipelines}
    tried = list(begun)
    state = state_of(*begun)
    for _ in range(draw(st.integers(0, 30))):
        on, off = any_events(state, draw, known)
        legal = [each for each in on if follows(state, each)]
        event = draw(st.sampled_from([*legal * 4, *on, *off]))
        tried.append(event)
        with suppress(IllegalTransition):
            state = advance_state(state, numbered(event, after=state.last)[0])
    return tried, state


@pytest.mark.law
@examples(40)
@given(attempts())
def test_what_is_refused_leaves_no_trace(attempted: tuple[list[Event], State]) -> None:
    tried, after = attempted
    taken: list[Event] = []
    for event in tried:
        before = state_of(*taken)
        if follows(before, event):
            taken.append(event)
        # Nor do the parts change that two states share.
        else:
            assert before == state_of(*taken)

    assert after == state_of(*taken)


def next_to_serve(state: State) -> Event:
    """Returns the event that advances a rollout if one can advance, otherwise the switch."""
    for rollout in state.active_rollouts:
        live = state.serving.get(rollout.pipeline)
        match rollout.phase:
            case Phase.REPLAYING:
                return CaughtUp(rollout.id, NOWHERE)
            case Phase.VERIFYING:
                return verified(rollout.id)
            case Phase.READY if rollout.waits:
                return PromoteAsked(rollout.id)
            case Phase.READY if live is not None:
                return held(rollout.id, live, together=rollout.together)
    first = state.active_rollouts[0]
    return switch_of(state, first.group or (first.id,))


@pytest.mark.law
@examples(40)
@given(attempts())
def test_wherever_rollouts_stand_all_can_serve(attempted: tuple[list[Event], State]) -> None:
    _, state = attempted
    under_way = [rollout.id for rollout in state.active_rollouts]
    # The longest way: caught up, verified, a yes, a hold, served.
    for _ in range(5 * len(under_way)):
        if state.active_rollouts:
            state = advance_state(state, numbered(next_to_serve(state), after=state.last)[0])

    assert {state.rollout(number).phase for number in under_way} <= {Phase.SERVED}


@pytest.mark.law
@examples(40)
@given(attempts())
def test_each_active_rollout_can_be_given_up(attempted: tuple[list[Event], State]) -> None:
    """If all active rollouts are abandoned, the live builds continue to serve."""
    _, before = attempted
    state = before
    for rollout in before.active_rollouts:
        state = advance_state(state, numbered(Abandoned(rollout.id, "no"), after=state.last)[0])

    given_up = {state.rollout(rollout.id).phase for rollout in before.active_rollouts}
    assert given_up <= {Phase.ABANDONED}
    assert not state.active_rollouts
    assert (state.serving, state.idle) == (before.serving, before.idle)
    assert state.generation == before.generation
