"""Laws of a branch: it begins exactly where requested, only on state that it would also keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from journals import NOWHERE, held, served, staged, verified
from msgspec import structs
from plans import A_SERVES, V1, V2, birth, declared, log, observed

from kappa import Topic
from kappa.base.errors import KappaError, UsageError
from kappa.code.fingerprint import SEMANTICS, declaration_lines
from kappa.declare.table import Expiry
from kappa.replay.rollout.plan.branch import Branching, branch_of
from kappa.replay.rollout.plan.facts import Declared, Observed
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change, Plan
from kappa.replay.rollout.plan.plan_text import plan_document, plan_text
from kappa.replay.rollout.plan.retry import plan_again
from kappa.state.build import Base, Birth
from kappa.state.frontier import Frontier
from kappa.state.journal.events import CaughtUp, Event, Failed, Staged
from kappa.state.offsets import Offsets

A_SERVES_V1: tuple[Event, ...] = (structs.replace(staged("a"), version=V1.version), *A_SERVES[1:])


def at(*offsets: int) -> Offsets:
    return Offsets({"orders": dict(enumerate(offsets))})


def shown(*offsets: Offsets) -> tuple[Frontier, ...]:
    numbered = enumerate(offsets, 1)
    return tuple(Frontier(10 * number, "a", 1, each, {}, "then") for number, each in numbered)


SHOWN = shown(at(10, 10), at(40, 20), at(60, 60))


def born(of: Declared = V1, **changes: Any) -> Birth:
    folded = {"semantics": SEMANTICS, "declarations": declaration_lines(of.pipeline)}
    return structs.replace(birth("a", of), **{**folded, **changes})


def seen(
    now: Declared = V2,
    *,
    of: Birth | None = None,
    beginning: int = 0,
    journal: tuple[Event, ...] = A_SERVES_V1,
    frontiers: tuple[Frontier, ...] = SHOWN,
) -> Observed:
    facts = log(beginning=beginning)
    found = observed(now, journal=journal, births=(of or born(),), facts=facts)
    return replace(found, shown={"a": frontiers})


def planned(
    now: Declared = V2, *, start: Offsets | None = None, of: Birth | None = None, beginning: int = 0
) -> Plan:
    found = seen(now, of=of, beginning=beginning)
    return make_plan(found, only=("flights",), branching=Branching(start))


@pytest.mark.parametrize(
    ("start", "frontier", "begun_at"),
    [
        (at(60, 60), 30, at(60, 60)),
        (None, 30, at(60, 60)),
        (at(59, 60), 20, at(40, 20)),
        (at(40, 20), 20, at(40, 20)),
        (at(39, 20), 10, at(10, 10)),
        (at(9, 60), None, Offsets()),
        (at(0, 0), None, Offsets()),
    ],
)
def test_it_is_begun_with_the_newest_state_that_lies_behind_no_partition(
    start: Offsets | None, frontier: int | None, begun_at: Offsets
) -> None:
    branch = branch_of(born(), SHOWN, Branching(start))

    asked = (start or at(60, 60)).plain()
    assert branch.base == Base("a", V1.version, asked, frontier, begun_at.plain())
    assert branch.start.equals(begun_at)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (at(10), "names no offset of orders partition 1"),
        (at(10, 10, 0), "reads no orders partition 2"),
        (Offsets({**at(10, 10).next, "other": {0: 1}}), "reads no other partition 0"),
        (at(61, 0), "has not folded up to orders:0=61 orders:1=0"),
    ],
)
def test_offsets_at_which_the_build_never_stood_are_refused(start: Offsets, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        planned(start=start)
    assert "orders:0=60 orders:1=60" in refused.value.hint


def test_a_branch_of_a_branch_begins_no_earlier_than_that_one_does() -> None:
    of = born(base=Base("z", "v0", at(40, 20).plain(), 3))

    assert branch_of(of, SHOWN, Branching(at(40, 20))).frontier == SHOWN[1]
    early = "is before the beginning of build a, at orders:0=40 orders:1=20"
    with pytest.raises(UsageError, match=early):
        branch_of(of, SHOWN, Branching(at(39, 20)))
    lost = "held where it begins, at orders:0=40 orders:1=20, is not kept"
    with pytest.raises(UsageError, match=lost):
        branch_of(of, SHOWN[2:], Branching(at(41, 20)))


def test_nothing_that_serves_is_nothing_to_branch_from() -> None:
    with pytest.raises(UsageError, match="no build of pipeline flights serves") as refused:
        make_plan(seen(journal=()), only=("flights",), branching=Branching(None))
    assert "kappa deploy flights" in refused.value.hint


def test_what_has_shown_nothing_is_nothing_to_branch_from() -> None:
    with pytest.raises(UsageError, match="build a has no frontier"):
        make_plan(seen(frontiers=()), only=("flights",), branching=Branching(None))


def test_the_plan_says_what_it_is_and_what_is_folded() -> None:
    plan = planned(start=at(50, 50))

    plan.ensure_possible()
    (step,) = plan.steps
    assert (step.change, step.records, step.origin) == (Change.CHANGED, 140, Offsets())
    told, place = plan_text(plan), "orders:0=50 orders:1=50"
    branch = f"a branch of build a (version {V1.version}) at {place}"
    assert f"{branch}, 140 records to fold" in told
    assert f"the rows before {place} stay as build a has folded it, rejects too" in told
    assert "folded once more before that, by the code of build a: 40 offsets" in told
    assert plan_document(plan)["steps"][0]["base"] == {
        "build": "a",
        "version": V1.version,
        "offsets": at(50, 50).plain(),
        "frontier": 20,
        "start": at(40, 20).plain(),
    }


def test_unchanged_code_may_be_branched_too() -> None:
    (step,) = planned(V1).steps

    assert step.change == Change.AGAIN
    assert step.reasons == ("a branch was asked for",)
    assert step.records == 80


@pytest.mark.parametrize(
    ("start", "beginning", "lost"),
    [
        # The log has lost offsets before the branch begins: that is no gap.
        (at(60, 60), 60, None),
        (at(60, 60), 61, "60 to 60 and begins at 61"),
        (at(59, 60), 41, "40 to 40 and begins at 41"),
    ],
)
def test_what_it_would_read_must_be_there(start: Offsets, beginning: int, lost: str | None) -> None:
    plan = planned(start=start, beginning=beginning)
    if lost is None:
        plan.ensure_possible()
    else:
        with pytest.raises(KappaError, match=f"orders partition 0 lost offsets {lost}"):
            plan.ensure_possible()


def changed(**fields: Any) -> Declared:
    """Returns the second version, with other fields of its first table."""
    first, *others = V2.tables
    return replace(V2, tables=(structs.replace(first, **fields), *others))


ORDERS = born().topics[0]
SUMMED = changed(fold={"n": ("sum", "n")})


@pytest.mark.parametrize(
    ("now", "of", "says"),
    [
        (changed(keys=("n",)), {}, "the keys of table delays changed: none to n"),
        (SUMMED, {}, r"the fold of n of table delays changed: none to sum\(n\)"),
        (
            *(changed(fold={"n": ("avg", "n")}), {"tables": SUMMED.tables}),
            r"the fold of n of table delays changed: sum\(n\) to avg\(n\)",
        ),
        (
            *(changed(columns=(("n", "bigint"),)), {}),
            "the column n of table delays changed: int to bigint",
        ),
        (
            *(changed(columns=(("n", "int"), ("_state", "int"))), {}),
            "the column _state of table delays changed: none to int",
        ),
        (*(changed(view="select\n1"), {}), "the query of view delays changed: none to select 1"),
        (*(changed(file="ab" * 32), {}), "the file of table delays changed: none to abababababab"),
        (
            *(changed(expiry=Expiry("at", 3_600_000)), {}),
            "the expiry of table delays changed: none to rows are gone 1 hour after at",
        ),
        (replace(V2, tables=V2.tables[1:]), {}, "table delays is gone"),
        (V2, {"tables": born().tables[1:]}, "table delays is new"),
        (
            *(V2, {"semantics": SEMANTICS - 1}),
            f"it was folded by Kappa's rules number {SEMANTICS - 1}, and they are number",
        ),
        (V2, {"topics": ()}, "topic orders was not read, and is retained now"),
        (
            *(V2, {"topics": (structs.replace(ORDERS, kind="compacted"),)}),
            "topic orders was compacted, and is retained now",
        ),
    ],
)
def test_state_new_code_would_not_keep_is_refused(
    now: Declared, of: dict[str, Any], says: str
) -> None:
    with pytest.raises(KappaError, match=f"a branch of build a cannot be made: {says}") as refused:
        planned(now, of=born(**of)).ensure_possible()
    assert "kappa deploy flights" in refused.value.hint


def test_a_topic_made_anew_is_refused() -> None:
    another = (structs.replace(ORDERS, id="another"),)
    with pytest.raises(KappaError, match="topic orders was deleted and created again"):
        planned(of=born(topics=another)).ensure_possible()


KEYED = {"event": "id string, n int", "partitions": 2, "key": "id"}
WITH_IDENTITY = declared(code="2", topic=Topic("orders", **KEYED, identity="id"))


def test_memories_of_identities_must_follow_from_the_log_by_the_same_declaration() -> None:
    planned(WITH_IDENTITY, of=born(WITH_IDENTITY)).ensure_possible()

    other = "topic orders has an identity, and another declaration now"
    with pytest.raises(KappaError, match=other):
        planned(WITH_IDENTITY).ensure_possible()
    lost = "orders partition 0 lost offsets 0 to 4 .* what is remembered of identities follows from"
    with pytest.raises(KappaError, match=f"{lost} all of it"):
        planned(WITH_IDENTITY, of=born(WITH_IDENTITY), beginning=5).ensure_possible()


def test_where_deletions_may_have_been_missed_it_is_refused() -> None:
    then = datetime(2026, 11, 1, tzinfo=UTC)
    pages = declared(topic=Topic("orders", kind="compacted", **KEYED))
    frontiers = tuple(structs.replace(each, published_at=then.isoformat()) for each in SHOWN)
    found = seen(pages, of=born(pages), frontiers=frontiers)
    found = replace(found, log=log(config={"delete.retention.ms": "86400000"}))

    def refusals(now: datetime) -> list[str]:
        plan = make_plan(found, only=("flights",), branching=Branching(None, now))
        return [each.message for each in plan.refusals]

    assert refusals(then + timedelta(days=1)) == []
    (refused,) = refusals(then + timedelta(days=1, seconds=1))
    kept = "topic orders keeps a tombstone for 1 day (delete.retention.ms), and all of it was"
    assert f"{kept} read last 86401 seconds ago: deletions may have been missed" in refused


def test_a_sketch_of_other_values_is_refused_and_one_of_before_they_were_kept_is_not() -> None:
    def of(kind: str) -> Declared:
        return changed(fold={"n": ("hll", "visitor")}, sketched={"n": kind} if kind else {})

    planned(of("int"), of=born(tables=of("int").tables)).ensure_possible()
    planned(of("int"), of=born(tables=of("").tables)).ensure_possible()
    other = "the type of what n counts of table delays changed: int to string"
    with pytest.raises(KappaError, match=other):
        planned(of("string"), of=born(tables=of("int").tables)).ensure_possible()


def test_what_the_base_lacks_the_branch_lacks_and_says_so() -> None:
    gap = "gap: orders partition 0 begins at offset 41: a replay would miss what came before"

    (step,) = planned(of=born(accepted=(gap, "rate: it was slow: never mind"))).steps

    assert step.accepted == (gap,)


def test_a_refusal_names_the_command_that_was_typed() -> None:
    place = "pipelines/flights.py:3"
    random = replace(V2, doubtful=(Finding(f"{place} uses random", name=place),))
    (refusal,) = planned(random, start=at(50, 50)).refusals

    assert "allow it: kappa branch flights --from orders:0=50,orders:1=50 --allow" in refusal.hint


def test_where_a_branch_serves_or_is_kept_the_plan_says_so() -> None:
    branch = structs.replace(birth("a", V2), base=Base("z", "v0", at(1, 1).plain()))
    (serving,) = make_plan(observed(V2, journal=A_SERVES_V1, births=(branch,))).steps
    assert f"build a is {branch.base}" in serving.notes

    second = structs.replace(staged("b"), version=V1.version)
    switch = (CaughtUp(5, NOWHERE), verified(5), held(5, "a"), served(5, 2, "b", live="a"))
    both = (*A_SERVES_V1, second, *switch)
    (kept,) = make_plan(observed(V2, journal=both, births=(branch, birth("b", V1)))).steps
    assert kept.change is Change.KEPT
    assert f"build a is {branch.base}" in kept.notes


def test_checks_thresholds_and_views_may_be_others() -> None:
    planned(changed(checks=("n > 0",))).ensure_possible()


def test_a_branch_that_failed_is_begun_again_at_the_same_offsets() -> None:
    base, why = Base("a", V1.version, at(40, 20).plain(), 20), ("function flights changed",)
    branch = Staged("flights", "b", V2.version, why, base=base)
    journal = (*A_SERVES_V1, branch, Failed(5, "its job stopped"))

    (step,) = plan_again(seen(journal=journal), "flights").steps

    assert step.branch.base == Base("a", V1.version, at(40, 20).plain(), 20, at(40, 20).plain())
    assert step.reasons == ("function flights changed", "rollout 2 is begun again")
