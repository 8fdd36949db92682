"""Laws of a pipeline's service: retiring, pausing and resuming; each request may be repeated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from journals import (
    NOWHERE,
    append,
    frontier,
    held,
    numbered,
    served,
    staged,
    state_of,
    switch_asked,
    verified,
)
from msgspec.structs import replace
from plans import B_SERVES, V1, V2, birth, declared, log
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.base.errors import Conflict, ExitCode, KappaError, UsageError
from kappa.replay.rollout.operator_requests import ask_pause, ask_resume, ask_undo
from kappa.replay.rollout.pipeline_retirement import (
    LeavingTable,
    RetirementPreview,
    ask_retire,
    leaving_tables,
    retirement_text,
)
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State
from kappa.state.build import put_birth, read_birth
from kappa.state.frontier import Frontiers
from kappa.state.journal.events import CaughtUp, PipelineRetired, PromoteAsked, Retired
from kappa.state.journal.journal import JournalRecord
from kappa.state.journal.projections import retired_after
from kappa.state.store import Store

V3, TRAINS = declared(code="3"), declared("trains", table="delays")
ON_ITS_WAY = (
    *(staged("c", auto_promote=False), CaughtUp(10, NOWHERE), verified(10)),
    *(PromoteAsked(10), held(10, "b")),
)


def retire(store: Store, *, seen: State | None = None) -> JournalRecord | None:
    return ask_retire(store, "flights", kept_seconds=3600, seen=seen)


@pytest.fixture
def house(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    for build, version in (("a", V1), ("b", V2), ("c", V3), ("x", TRAINS)):
        put_birth(store, birth(build, version))
        Frontiers(store, build).publish(frontier(build, 7))
    append(store, *B_SERVES)
    return store


def plan(store: Store, of: object, **asked: bool) -> object:
    seen = state_of(store)
    births = {build: read_birth(store, build) for build in seen.versions}
    observed = Observed(frozenset({"flights"}), {"flights": of}, seen, births, log())
    return make_plan(observed, only=("flights",), **asked)


def test_one_record_makes_a_generation_without_the_pipeline(house: Store) -> None:
    record = retire(house)

    offsets = frontier("b", 7).offsets
    assert record.event == PipelineRetired("flights", "b", 3, {}, ("delays",), offsets, 3600, 2)
    assert (state_of(house).serving, state_of(house).idle) == ({}, {"flights": "b"})


def test_tables_that_leave_are_measured_in_any_store(any_store: Store) -> None:
    """Sizes of leaving tables come from the Delta log: a file in a bucket has no local path."""
    Platform(any_store).serve("flights", {DELAYS: ROWS_OF_DELAYS})

    leaving = leaving_tables(any_store, "flights", "flights-1")
    delays = next(each for each in leaving if each.name == "delays")

    assert (delays.rows, delays.files) == (3, 1)
    assert delays.bytes > 100


def test_what_is_retired_paused_or_resumed_already_takes_no_second_record(house: Store) -> None:
    assert ask_resume(house, "flights") is None
    assert ask_pause(house, "flights") is not None
    assert ask_pause(house, "flights") is None
    assert ask_resume(house, "flights") is not None
    assert retire(house) is not None
    last = state_of(house).last

    assert retire(house) is None
    assert state_of(house).last == last


@pytest.mark.parametrize("length", range(1, len(ON_ITS_WAY) + 1))
@pytest.mark.parametrize("ask", [retire, lambda store: ask_pause(store, "flights")])
def test_while_a_rollout_is_on_its_way_it_is_refused_with_what_to_type(
    house: Store, ask: Callable[[Store], object], length: int
) -> None:
    append(house, *ON_ITS_WAY[:length])
    before = state_of(house)
    with pytest.raises(Conflict) as told:
        ask(house)

    assert "rollout 3 of pipeline flights has not ended" in told.value.message
    assert "kappa abandon flights" in told.value.hint
    assert state_of(house) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: ask_retire(store, "ships", kept_seconds=1),
        lambda store: ask_pause(store, "ships"),
        lambda store: ask_resume(store, "ships"),
    ],
)
def test_never_served_pipeline_is_a_slip(house: Store, ask: Callable[[Store], object]) -> None:
    with pytest.raises(UsageError, match="no build of pipeline ships serves") as told:
        ask(house)

    assert told.value.hint == "there are flights"


def test_retired_pipeline_cannot_be_paused(house: Store) -> None:
    """A retired pipeline cannot be paused; the refusal says how to bring the pipeline back."""
    retire(house)
    with pytest.raises(UsageError) as told:
        ask_pause(house, "flights")

    assert "flights was retired at generation 3" in told.value.message
    assert "kappa undo flights" in told.value.hint


def test_yes_is_to_the_build_looked_at(house: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = state_of(house)
    monkeypatch.setenv("KAPPA_BY", "ada@home")
    append(house, switch_asked("a"), held(10, "b"), served(10, 3, "a", live="b"))
    with pytest.raises(Conflict, match="ada@home was first: .* served by build a now") as told:
        retire(house, seen=seen)

    assert told.value.exit_code == ExitCode.CONFLICT


def test_a_plan_that_was_made_before_a_retirement_is_stale(house: Store) -> None:
    before = plan(house, V3)
    retire(house)
    with pytest.raises(Conflict, match="flights is served by no build now, and not by build b"):
        stage_plan(house, before)


def test_deploy_of_retired_version_replays_nothing(house: Store) -> None:
    retire(house)
    made = plan(house, V2)
    (step,) = made.steps

    assert (step.change, step.build, step.serving) == (Change.KEPT, "b", None)
    stage_plan(house, made)
    assert state_of(house).active("flights").switch


def test_another_version_of_a_retired_pipeline_is_replayed_as_a_new_one(house: Store) -> None:
    retire(house)

    assert [step.change for step in plan(house, V3).steps] == [Change.NEW]


def test_undo_of_retirement_needs_free_tables(house: Store) -> None:
    """The undo is refused if another pipeline serves the table now."""
    retire(house)
    append(house, staged("x", pipeline="trains"), CaughtUp(11, NOWHERE), verified(11))
    append(house, served(11, 4, "x", pipeline="trains"))
    with pytest.raises(UsageError, match="delays is a table of pipeline trains by now") as told:
        ask_undo(house, "flights")

    assert "kappa retire trains" in told.value.hint


def test_an_undo_of_a_retirement_whose_build_is_gone_says_so(house: Store) -> None:
    retire(house)
    append(house, Retired("b"))
    with pytest.raises(UsageError, match="build b, .* is retired: its soak is over"):
        ask_undo(house, "flights")


@pytest.mark.parametrize("again", [False, True])
def test_nothing_is_deployed_or_replayed_of_a_paused_pipeline(house: Store, again: bool) -> None:
    ask_pause(house, "flights")
    made = plan(house, V2 if again else V3, again=again)
    with pytest.raises(KappaError, match="flights is paused since") as told:
        made.ensure_possible()

    assert "kappa resume flights" in told.value.hint


def test_a_plan_that_was_made_before_a_pause_is_refused(house: Store) -> None:
    before = plan(house, V3)
    ask_pause(house, "flights")
    with pytest.raises(Conflict, match="flights is paused since") as told:
        stage_plan(house, before)

    assert "kappa resume flights" in told.value.hint


def test_an_undo_of_a_paused_pipeline_is_asked_for_as_ever(house: Store) -> None:
    ask_pause(house, "flights")
    ask_undo(house, "flights")

    assert state_of(house).wanted_jobs() == {"a"}


def test_what_leaves_is_told_with_who_reads_it() -> None:
    delays = LeavingTable("delays", "table", 12_000, 3, 40_000)
    leaving = (delays, LeavingTable("late", "view", 4), LeavingTable("odd", "view", None))
    readers = (("bob@work", 17, 2),)
    told = retirement_text(RetirementPreview("flights", "b", "v2", leaving, readers, "a", 3600))

    assert "build b (version v2) stops serving" in told
    assert "table delays: 12,000 rows, 3 files, 40.0 kB" in told
    assert "view late: 4 rows\n" in told
    assert "view odd: it cannot be read" in told
    assert "read now by bob@work, process 17 (2 leases)" in told
    assert "build a, kept for an undo of the last switch, is retired at once" in told
    assert "kept for 60 min: kappa undo flights" in told


def test_a_retirement_says_until_when_it_can_be_undone_and_that_it_cannot_any_more() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    event = PipelineRetired("flights", "b", 3, {}, ("delays",), NOWHERE, 3600, 2)
    records = [replace(each, at=begin.isoformat()) for each in numbered(event, Retired("b"))]

    kept = retired_after({}, records[0])
    gone = retired_after(kept, records[1])

    assert kept["flights"].kept_until == begin + timedelta(hours=1)
    until = "kappa undo flights brings it back until 2026-01-01T01:00:00Z"
    assert until in kept["flights"].way_back
    assert "its data are deleted" in gone["flights"].way_back
