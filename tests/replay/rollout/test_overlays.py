"""Laws of overlays: builds that serve another build's tables with their own views."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from journals import NOWHERE, at, frontier, held, numbered, served, staged, switch_asked, verified
from msgspec.structs import replace
from plans import A_SERVES

from kappa.base.sections import RolloutSettings
from kappa.replay.platform.next_step import next_step
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.promote import next_promote_step
from kappa.replay.rollout.rollout import IllegalTransition
from kappa.replay.rollout.state import State, soak_end, soaked_builds
from kappa.replay.rollout.step import Append, Sight, Wait
from kappa.state.journal.events import CaughtUp, Event, Held, Retired, Served

READY: tuple[Event, ...] = (
    *(*A_SERVES, staged("b", tables_of="a")),
    *(CaughtUp(5, NOWHERE), verified(5)),
)
OVERLAID = (*READY, served(5, 2, "b", live="a"))
UNDONE = (*OVERLAID, switch_asked("a"), served(9, 3, "a", live="b"))
NEXT = (CaughtUp(9, NOWHERE), verified(9))
SECOND_OVERLAY = (*OVERLAID, staged("c", tables_of="a"), *NEXT, served(9, 3, "c", live="b"))
# A replay takes the overlay's place: the build below it is held, since its job publishes.
REPLAYED = (*OVERLAID, staged("d"), *NEXT, held(9, "a"), served(9, 3, "d", live="b"))
RULES = RolloutSettings()


def state_of(*events: Event) -> State:
    return fold_records(numbered(*events))


def dated(*events: Event) -> State:
    """Returns the state after records that all have the same time."""
    noon = "2026-01-01T12:00:00.000+00:00"
    return fold_records(replace(each, at=noon) for each in numbered(*events))


def sight(*events: Event) -> Sight:
    """Returns the controller's view of the newest rollout, if both sides serve one frontier."""
    state, shown = state_of(*events), frontier("a", 10)
    return Sight(state, state.rollouts[-1], shown, shown, frozenset({"flights"}))


def test_it_has_no_job_and_the_build_below_it_goes_on() -> None:
    for events in (READY, OVERLAID, UNDONE, SECOND_OVERLAY):
        assert state_of(*events).wanted_jobs() == {"a"}


@pytest.mark.parametrize(
    ("events", "kept", "to_retire"),
    [
        (OVERLAID, {"a"}, set[str]()),
        (SECOND_OVERLAY, {"a"}, set[str]()),
        (UNDONE, {"a"}, set[str]()),
        (REPLAYED, {"a"}, set[str]()),
        ((*REPLAYED, Retired("b")), set[str](), {"a"}),
    ],
    ids=["serves", "a second one serves", "undone", "kept", "gone"],
)
def test_the_build_below_is_kept_for_as_long_as_an_overlay_is(
    events: tuple[Event, ...], kept: set[str], to_retire: set[str]
) -> None:
    state = state_of(*events)

    assert state.overlaid_builds() == kept
    assert not kept & state.retirable_builds()
    assert state.unneeded_builds() == to_retire


def test_the_soak_of_a_build_below_an_overlay_does_not_end() -> None:
    state = dated(*OVERLAID)

    assert state.idle == {"flights": "a"}
    assert soak_end(state, "flights", 60) is None
    assert not soaked_builds(state, datetime(2027, 1, 1, tzinfo=UTC), 60)


def test_the_soak_of_an_overlay_ends() -> None:
    state = dated(*UNDONE)

    assert soak_end(state, "flights", 60) == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)
    assert soaked_builds(state, datetime(2027, 1, 1, tzinfo=UTC), 60) == {"b"}


def test_it_has_caught_up_at_once_where_the_live_build_is() -> None:
    step = next_step(sight(*A_SERVES, staged("b", tables_of="a")), RULES)

    assert step == Append(CaughtUp(5, at(10)))


@pytest.mark.parametrize(
    ("events", "build", "tables_of"),
    [(READY, "b", "a"), ((*OVERLAID, switch_asked("a")), "a", None)],
    ids=["promote", "undo"],
)
def test_it_serves_and_is_undone_without_a_hold(
    events: tuple[Event, ...], build: str, tables_of: str | None
) -> None:
    switch = next_promote_step(sight(*events), RULES).event

    assert isinstance(switch, Served)
    receipt = switch.receipt
    assert (receipt.build, receipt.tables_of, receipt.first) == (build, tables_of, False)
    assert receipt.live_build == ("a" if build == "b" else "b")
    assert receipt.live_offsets == receipt.candidate_offsets == at(10)


def test_what_replaces_an_overlay_waits_for_the_hold_of_the_build_below_it() -> None:
    events = (*OVERLAID, staged("d"), CaughtUp(9, NOWHERE), verified(9))
    state = state_of(*events)
    sides, topics = (frontier("d", 10), frontier("a", 10)), frozenset({"flights"})
    seen = Sight(state, state.rollouts[-1], *sides, topics, target=at(5))

    assert next_promote_step(seen, RULES) == Append(Held(9, "a", 1))
    unacknowledged = state_of(*events, held(9, "a"))
    seen = Sight(unacknowledged, unacknowledged.rollouts[-1], seen.candidate, seen.live)
    assert next_promote_step(seen, RULES) == Wait("build b to acknowledge the hold")


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (A_SERVES, staged("b", tables_of="x")),
        ((), staged("b", tables_of="a")),
        (OVERLAID, staged("c", tables_of="b")),
        (REPLAYED, staged("e", tables_of="a")),
        (READY, held(5, "b")),
    ],
    ids=["of no build", "of nothing", "of an overlay", "of what no longer serves", "held itself"],
)
def test_an_overlay_is_of_tables_that_serve(before: tuple[Event, ...], event: Event) -> None:
    with pytest.raises(IllegalTransition):
        state_of(*before, event)
