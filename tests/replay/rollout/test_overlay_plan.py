"""Laws of a change of only views or checks: nothing is replayed, and it is a new version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from journals import NOWHERE, served, staged, verified
from msgspec import structs
from overlays import born, declared
from plans import A_SERVES, observed

from kappa.code.code_snapshot import hash_files
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change, PlanStep
from kappa.replay.rollout.plan.plan_text import plan_document, plan_text
from kappa.replay.rollout.plan.retry import plan_again
from kappa.replay.rollout.stage import stage_plan
from kappa.state.build import Base, read_birth
from kappa.state.journal.events import Abandoned, CaughtUp
from kappa.state.journal.journal import Journal
from kappa.state.store import Store

V1 = declared(views={"v": "select id from delays"}, checks=("rows > 0",))
V2 = declared(views={"v": "select id, rows from delays"}, checks=("rows > 1",), max_changed=0.5)
B_SERVES = (
    *(*A_SERVES, staged("b", tables_of="a"), CaughtUp(5, NOWHERE), verified(5)),
    served(5, 2, "b", live="a"),
)
A, B = born("a", V1), structs.replace(born("b", V2), tables_of="a")


WIDER = tuple(
    structs.replace(table, columns=(*table.columns, ("more", "int")))
    if table.name == "delays"
    else table
    for table in V2.tables
)


def only_step(of: Declared, *, again: bool = False) -> PlanStep:
    seen = observed(of, journal=A_SERVES, births=(A,))
    (step,) = make_plan(seen, only=("flights",), again=again).steps
    return step


def test_a_change_of_views_and_checks_alone_replays_nothing() -> None:
    step = only_step(V2)

    assert (step.change, step.build, step.records, step.cost) == (Change.OVERLAY, "a", 0, None)
    assert step.acts
    assert not step.replays
    changed = f"flights: changed to version {V2.version} (table delays changed, view v changed)"
    assert step.text == f"{changed}, replays nothing: the tables of build a are used"
    assert [diff.part for diff in step.diffs] == ["table delays", "view v"]


@pytest.mark.parametrize(
    "other",
    [
        declared(least=1, views={"v": "select 1 as x"}),
        declared(keys=("n",), views={"v": "select 1 as x"}),
        replace(V2, tables=WIDER),
    ],
    ids=["code", "keys", "columns that a library makes otherwise"],
)
def test_what_changes_rows_too_is_replayed(other: Declared) -> None:
    assert only_step(other).change is Change.CHANGED


def test_a_replay_that_is_asked_for_replays_it() -> None:
    assert only_step(V2, again=True).change is Change.CHANGED


def test_a_build_that_keeps_no_declarations_is_replayed() -> None:
    old = structs.replace(A, declarations={})
    (step,) = make_plan(observed(V2, journal=A_SERVES, births=(old,))).steps

    assert step.change is Change.CHANGED


def test_a_change_of_an_overlay_is_of_the_build_below_it() -> None:
    third = declared(views={"w": "select rows from delays"})
    seen = observed(third, journal=B_SERVES, births=(A, B))
    plan = make_plan(seen, accepting=Allowances(allowed={"breaking": "v is used by nobody"}))

    (step,) = plan.steps
    assert (step.change, step.build, step.tables_of) == (Change.OVERLAY, "b", "a")
    assert plan_document(plan)["steps"][0]["tables_of"] == "a"
    assert "the tables of build a are used" in plan_text(plan)


def test_a_version_that_is_kept_serves_again_without_another_overlay() -> None:
    (step,) = make_plan(observed(V1, journal=B_SERVES, births=(A, B))).steps

    assert (step.change, step.build) == (Change.KEPT, "a")


def test_a_view_that_goes_is_refused_as_ever_until_it_is_let_through() -> None:
    plan = make_plan(observed(declared(), journal=A_SERVES, births=(A,)))

    assert [step.change for step in plan.steps] == [Change.OVERLAY]
    assert [refusal.name for refusal in plan.refusals] == ["breaking"]


def test_birth_shows_own_views_and_rows_from_below(tmp_path: Path) -> None:
    store, below = Store(tmp_path), structs.replace(A, base=Base("z", "v0", {"orders": {"0": 7}}))
    journal = Journal(store)
    for number, event in enumerate(A_SERVES, start=1):
        assert journal.append(number, event)

    (number,) = stage_plan(store, make_plan(observed(V2, journal=A_SERVES, births=(below,))))

    rollout = current_state(store).rollout(number)
    birth = read_birth(store, rollout.build)
    assert (rollout.tables_of, birth.tables_of, birth.folded_by) == ("a", "a", "a")
    assert (birth.version, birth.views) == (V2.version, {"v": "select id, rows from delays"})
    assert birth.table("delays").checks == ("rows > 1",)
    assert birth.table("delays").thresholds.max_changed == 0.5
    assert birth.table("delays").columns == below.table("delays").columns
    for of_the_rows in ("origin", "base", "libraries", "topics"):
        assert getattr(birth, of_the_rows) == getattr(below, of_the_rows)
    assert birth.sources == hash_files(V2.files)
    assert current_state(store).wanted_jobs() == {"a"}


def test_a_retry_of_an_overlay_replays_nothing_and_one_of_a_replay_replays() -> None:
    for tables_of, change in (("a", Change.OVERLAY), (None, Change.CHANGED)):
        begun = structs.replace(staged("b", tables_of=tables_of), version=V2.version)
        journal = (*A_SERVES, begun, Abandoned(5, "by hand"))
        plan = plan_again(observed(V2, journal=journal, births=(A,)), "flights")

        assert [step.change for step in plan.steps] == [change]


def test_an_unchanged_version_shows_nothing_though_a_library_makes_other_columns() -> None:
    other = replace(V1, tables=tuple(structs.replace(each, columns=()) for each in V1.tables))
    step = only_step(other)

    assert (step.change, step.readers, step.diffs, step.reasons) == (Change.SAME, (), (), ())
