"""Laws of a branch: it begins exactly where asked, only on state that it would keep itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from journals import NOWHERE, held, served, staged, verified
from msgspec import structs
from plans import birth, declared, log, observed

from kappa import Topic
from kappa.base.errors import KappaError, UsageError
from kappa.code.declaration import declaration_lines
from kappa.code.fingerprint import SEMANTICS
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

V1, V2 = declared(code="1"), declared(code="2")
SERVES: tuple[Event, ...] = (
    structs.replace(staged("a"), version=V1.version),
    CaughtUp(1, NOWHERE),
    verified(1),
    served(1, 1, "a"),
)


def at(*offsets: int) -> Offsets:
    return Offsets({"orders": dict(enumerate(offsets))})


def shown(*offsets: Offsets) -> tuple[Frontier, ...]:
    return tuple(
        Frontier(10 * number, "a", 1, each, {}, "then") for number, each in enumerate(offsets, 1)
    )


SHOWN = shown(at(10, 10), at(40, 20), at(60, 60))


def born(of: Declared = V1) -> Birth:
    return structs.replace(
        birth("a", of), semantics=SEMANTICS, declarations=declaration_lines(of.pipeline)
    )


def seen(
    now: Declared = V2,
    *,
    of: Birth | None = None,
    beginning: int = 0,
    journal: tuple[Event, ...] = SERVES,
    frontiers: tuple[Frontier, ...] = SHOWN,
) -> Observed:
    return replace(
        observed(now, journal=journal, births=(of or born(),), facts=log(beginning=beginning)),
        shown={"a": frontiers},
    )


def planned(
    now: Declared = V2, *, start: Offsets | None = None, of: Birth | None = None, beginning: int = 0
) -> Plan:
    return make_plan(
        seen(now, of=of, beginning=beginning), only=("flights",), branching=Branching(start)
    )


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

    assert branch.base == Base(
        "a", V1.version, (start or at(60, 60)).plain(), frontier, begun_at.plain()
    )
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
    of = structs.replace(born(), base=Base("z", "v0", at(40, 20).plain(), 3))

    assert branch_of(of, SHOWN, Branching(at(40, 20))).frontier == SHOWN[1]
    with pytest.raises(
        UsageError, match="is before the beginning of build a, at orders:0=40 orders:1=20"
    ):
        branch_of(of, SHOWN, Branching(at(39, 20)))
    with pytest.raises(
        UsageError, match="held where it begins, at orders:0=40 orders:1=20, is not kept"
    ):
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
    assert (
        f"a branch of build a (version {V1.version}) at orders:0=50 orders:1=50, 140 "
        "records to fold" in plan_text(plan)
    )
    assert (
        "the rows before orders:0=50 orders:1=50 stay as build a has folded it, rejects too"
        in plan_text(plan)
    )
    assert "folded once more before that, by the code of build a: 40 offsets" in plan_text(plan)
    assert plan_document(plan)["steps"][0]["base"] == {
        "build": "a",
        "version": V1.version,
        "offsets": at(50, 50).plain(),
        "frontier": 20,
        "start": at(40, 20).plain(),
    }


def test_unchanged_code_may_be_branched_too() -> None:
    (step,) = planned(V1).steps

    assert (step.change, step.reasons, step.records) == (
        Change.AGAIN,
        ("a branch was asked for",),
        80,
    )


def test_what_the_log_has_lost_before_it_begins_is_no_gap_and_what_it_would_read_is() -> None:
    planned(start=at(60, 60), beginning=60).ensure_possible()

    with pytest.raises(
        KappaError, match=r"orders partition 0 lost offsets 60 to 60 and begins at 61"
    ):
        planned(start=at(60, 60), beginning=61).ensure_possible()
    with pytest.raises(
        KappaError, match=r"orders partition 0 lost offsets 40 to 40 and begins at 41"
    ):
        planned(start=at(59, 60), beginning=41).ensure_possible()


OTHER_KEYS = replace(V2, tables=(structs.replace(V2.tables[0], keys=("n",)), *V2.tables[1:]))
OTHER_FOLD = replace(
    V2, tables=(structs.replace(V2.tables[0], fold={"n": ("sum", "n")}), *V2.tables[1:])
)
AVERAGED = replace(
    V2, tables=(structs.replace(V2.tables[0], fold={"n": ("avg", "n")}), *V2.tables[1:])
)
OTHER_TYPE = replace(
    V2, tables=(structs.replace(V2.tables[0], columns=(("n", "bigint"),)), *V2.tables[1:])
)
OTHER_STATE = replace(
    V2,
    tables=(
        structs.replace(V2.tables[0], columns=(("n", "int"), ("_state", "int"))),
        *V2.tables[1:],
    ),
)


@pytest.mark.parametrize(
    ("now", "of", "says"),
    [
        (OTHER_KEYS, born(), "the keys of table delays changed: none to n"),
        (OTHER_FOLD, born(), r"the fold of n of table delays changed: none to sum\(n\)"),
        (
            AVERAGED,
            structs.replace(born(), tables=OTHER_FOLD.tables),
            r"the fold of n of table delays changed: sum\(n\) to avg\(n\)",
        ),
        (OTHER_TYPE, born(), "the column n of table delays changed: int to bigint"),
        (OTHER_STATE, born(), "the column _state of table delays changed: none to int"),
        (
            replace(V2, tables=(structs.replace(V2.tables[0], view="select\n1"), *V2.tables[1:])),
            born(),
            "the query of view delays changed: none to select 1",
        ),
        (
            replace(V2, tables=(structs.replace(V2.tables[0], file="ab" * 32), *V2.tables[1:])),
            born(),
            "the file of table delays changed: none to abababababab",
        ),
        (
            replace(
                V2,
                tables=(
                    structs.replace(V2.tables[0], expiry=Expiry("at", 3_600_000)),
                    *V2.tables[1:],
                ),
            ),
            born(),
            "the expiry of table delays changed: none to rows are gone 1 hour after at",
        ),
        (replace(V2, tables=V2.tables[1:]), born(), "table delays is gone"),
        (V2, structs.replace(born(), tables=born().tables[1:]), "table delays is new"),
        (
            V2,
            structs.replace(born(), semantics=SEMANTICS - 1),
            (
                f"it was folded by Kappa's rules number {SEMANTICS - 1}, and they are number "
                f"{SEMANTICS} now"
            ),
        ),
        (V2, structs.replace(born(), topics=()), "topic orders was not read, and is retained now"),
        (
            V2,
            structs.replace(born(), topics=(structs.replace(born().topics[0], kind="compacted"),)),
            "topic orders was compacted, and is retained now",
        ),
    ],
)
def test_state_that_new_code_would_not_keep_itself_is_refused_by_name(
    now: Declared, of: Birth, says: str
) -> None:
    with pytest.raises(KappaError, match=f"a branch of build a cannot be made: {says}") as refused:
        planned(now, of=of).ensure_possible()
    assert "kappa deploy flights" in refused.value.hint


def test_a_topic_made_anew_is_refused() -> None:
    with pytest.raises(KappaError, match="topic orders was deleted and created again"):
        planned(
            of=structs.replace(born(), topics=(structs.replace(born().topics[0], id="another"),))
        ).ensure_possible()


WITH_IDENTITY = declared(
    code="2", topic=Topic("orders", event="id string, n int", partitions=2, key="id", identity="id")
)


def test_memories_of_identities_must_follow_from_the_log_by_the_same_declaration() -> None:
    planned(WITH_IDENTITY, of=born(WITH_IDENTITY)).ensure_possible()

    with pytest.raises(
        KappaError, match="topic orders has an identity, and another declaration now"
    ):
        planned(WITH_IDENTITY).ensure_possible()
    with pytest.raises(
        KappaError,
        match="orders partition 0 lost offsets 0 to 4 .* what is remembered of identities "
        "follows from all of it",
    ):
        planned(WITH_IDENTITY, of=born(WITH_IDENTITY), beginning=5).ensure_possible()


def test_where_deletions_may_have_been_missed_it_is_refused() -> None:
    then = datetime(2026, 11, 1, tzinfo=UTC)
    pages = declared(
        topic=Topic("orders", kind="compacted", event="id string, n int", partitions=2, key="id")
    )
    found = replace(
        seen(
            pages,
            of=born(pages),
            frontiers=tuple(structs.replace(each, published_at=then.isoformat()) for each in SHOWN),
        ),
        log=log(config={"delete.retention.ms": "86400000"}),
    )

    def refusals(now: datetime) -> list[str]:
        return [
            each.message
            for each in make_plan(found, only=("flights",), branching=Branching(None, now)).refusals
        ]

    assert refusals(then + timedelta(days=1)) == []
    (refused,) = refusals(then + timedelta(days=1, seconds=1))
    assert (
        "topic orders keeps a tombstone for 1 day (delete.retention.ms), and all of it was "
        "read last 86401 seconds ago: deletions may have been missed" in refused
    )


def test_a_sketch_of_other_values_is_refused_and_one_of_before_they_were_kept_is_not() -> None:
    def of(kind: str) -> Declared:
        fold = {"n": ("hll", "visitor")}
        return replace(
            V2,
            tables=(
                structs.replace(V2.tables[0], fold=fold, sketched={"n": kind} if kind else {}),
                *V2.tables[1:],
            ),
        )

    planned(of("int"), of=structs.replace(born(), tables=of("int").tables)).ensure_possible()
    planned(of("int"), of=structs.replace(born(), tables=of("").tables)).ensure_possible()
    with pytest.raises(
        KappaError, match="the type of what n counts of table delays changed: int to string"
    ):
        planned(of("string"), of=structs.replace(born(), tables=of("int").tables)).ensure_possible()


def test_what_the_base_lacks_the_branch_lacks_and_says_so() -> None:
    gap = "gap: orders partition 0 begins at offset 41: a replay would miss what came before"

    (step,) = planned(
        of=structs.replace(born(), accepted=(gap, "rate: it was slow: never mind"))
    ).steps

    assert step.accepted == (gap,)


def test_a_refusal_names_the_command_that_was_typed() -> None:
    (refusal,) = planned(
        replace(
            V2,
            doubtful=(
                Finding("pipelines/flights.py:3 uses random", name="pipelines/flights.py:3"),
            ),
        ),
        start=at(50, 50),
    ).refusals

    assert "allow it: kappa branch flights --from orders:0=50,orders:1=50 --allow" in refusal.hint


def test_where_a_branch_serves_or_is_kept_the_plan_says_so() -> None:
    branch = structs.replace(birth("a", V2), base=Base("z", "v0", at(1, 1).plain()))
    (serving,) = make_plan(observed(V2, journal=SERVES, births=(branch,))).steps
    assert f"build a is {branch.base}" in serving.notes

    both = (
        *SERVES,
        structs.replace(staged("b"), version=V1.version),
        CaughtUp(5, NOWHERE),
        verified(5),
        held(5, "a"),
        served(5, 2, "b", live="a"),
    )
    (kept,) = make_plan(observed(V2, journal=both, births=(branch, birth("b", V1)))).steps
    assert kept.change is Change.KEPT
    assert f"build a is {branch.base}" in kept.notes


def test_checks_thresholds_and_views_may_be_others() -> None:
    now = replace(V2, tables=(structs.replace(V2.tables[0], checks=("n > 0",)), *V2.tables[1:]))

    planned(now).ensure_possible()


def test_a_branch_that_failed_is_begun_again_at_the_same_offsets() -> None:
    journal = (
        *SERVES,
        Staged(
            "flights",
            "b",
            V2.version,
            ("function flights changed",),
            base=Base("a", V1.version, at(40, 20).plain(), 20),
        ),
        Failed(5, "its job stopped"),
    )

    (step,) = plan_again(seen(journal=journal), "flights").steps

    assert step.branch is not None
    assert step.branch.base == Base("a", V1.version, at(40, 20).plain(), 20, at(40, 20).plain())
    assert step.reasons == ("function flights changed", "rollout 2 is begun again")
