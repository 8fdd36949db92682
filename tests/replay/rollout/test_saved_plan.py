"""Laws of a saved plan: it is applied as agreed, or refused with a report of all that moved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from journals import NOWHERE, held, served, staged, switch_asked, verified
from plans import A_SERVES, B_SERVES, V1, V2, birth, declared, log, observed

from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.replay.rollout.plan.facts import Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.plan.saved_plan import SavedPlan, ground_changes, ground_of, save_plan
from kappa.state.journal.events import CaughtUp

C_SERVES = (
    *B_SERVES,
    staged("c"),
    CaughtUp(10, NOWHERE),
    verified(10),
    held(10, "b"),
    served(10, 3, "c", live="b"),
)
BIRTHS = (birth("a", V1), birth("b", declared(code="b")), birth("c", declared(code="c")))
THEN = observed(V2, journal=A_SERVES, births=BIRTHS)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def saved(
    file: Path,
    seen: Observed = THEN,
    *,
    only: tuple[str, ...] = (),
    accepting: Allowances | None = None,
) -> SavedPlan:
    accepting = accepting or Allowances()
    save_plan(
        file, make_plan(seen, only=only, accepting=accepting), seen, only=only, accepting=accepting
    )
    return SavedPlan.read(file)


def stale(file: Path, now: Observed, seen: Observed = THEN, *, only: tuple[str, ...] = ()) -> str:
    """Returns the reported reason why a saved plan is stale."""
    with pytest.raises(Conflict) as error:
        saved(file, seen, only=only).plan_again(file, now)
    assert error.value.exit_code == 6
    assert error.value.hint == f"plan again: kappa plan --out {file}"
    return error.value.message.partition(": ")[2]


def test_what_is_read_is_what_was_saved(file: Path) -> None:
    accepting = Allowances(gap=True, breaking=True, allowed={"rate": "it is night"})

    found = saved(file, only=("flights",), accepting=accepting)

    assert (found.only, found.accepting) == (("flights",), accepting)
    assert found.ground == ground_of(make_plan(THEN, only=("flights",), accepting=accepting), THEN)


def test_a_plan_on_the_same_ground_is_made_again(file: Path) -> None:
    assert saved(file).plan_again(file, THEN) == make_plan(THEN)


def test_a_log_that_has_grown_is_the_same_ground(file: Path) -> None:
    plan: Plan = saved(file).plan_again(file, replace(THEN, log=log(end=300)))

    assert plan.steps[0].records == 600


def test_what_was_let_through_is_let_through_again(file: Path) -> None:
    seen = replace(THEN, log=log(beginning=41))

    plan = saved(file, seen, accepting=Allowances(gap=True)).plan_again(file, seen)

    assert plan.refusals == ()
    assert plan.steps[0].accepted[0].startswith("gap: orders partition 0 begins at offset 41")


def test_the_file_carries_the_plan_for_people_and_machines(file: Path) -> None:
    saved(file)

    document = json.loads(file.read_text())
    assert document["plan"]["steps"][0]["change"] == "changed"
    assert document["plan"]["steps"][0]["cost"]["records"] == 200
    assert document["ground"]["journal"] == 4
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_plan_takes_the_place_of_the_one_before(file: Path) -> None:
    saved(file, observed(V1))

    assert saved(file).ground.journal == 4


def test_changed_code_is_named(file: Path) -> None:
    third = declared(code="3")

    said = stale(file, observed(third, journal=A_SERVES, births=BIRTHS))

    assert (
        said == f"code: pipeline flights is version {third.version} now, and was {V2.version} "
        "(function flights in pipelines/flights.py changed)"
    )


def test_prose_moves_nothing(file: Path) -> None:
    commented = replace(V2, files={"pipelines/flights.py": b"2 # a comment"})

    assert (
        saved(file)
        .plan_again(file, replace(THEN, declared={"flights": commented}))
        .steps[0]
        .declared
        == commented
    )


def test_a_pipeline_that_is_gone_or_new_is_named(file: Path) -> None:
    other = declared("other", table="others")

    assert (
        stale(file, observed(V2, other, journal=A_SERVES, births=BIRTHS))
        == "code: pipeline other was declared since"
    )
    assert (
        stale(file, observed(V2), observed(V2, other))
        == "code: pipeline other was taken away since"
    )
    assert (
        stale(file, observed(), only=("flights",)) == "code: pipeline flights was taken away since"
    )


def test_another_build_that_serves_is_named(file: Path) -> None:
    assert (
        stale(file, observed(V2, journal=B_SERVES, births=BIRTHS))
        == "journal: pipeline flights is served by build b now, and was by build a (record 4 "
        "then, 9 now)"
    )


def test_a_first_build_that_serves_since_is_named(file: Path) -> None:
    assert "is served by build a now, and was by no build (record 0 then, 4 now)" in stale(
        file, THEN, observed(V2)
    )


def test_another_build_that_is_kept_is_named(file: Path) -> None:
    # After an undo and a new deploy, the same build serves and another one is kept.
    undone = (*C_SERVES, switch_asked("b"), held(15, "c"), served(15, 4, "b", live="c"))

    said = stale(
        file,
        observed(V2, journal=undone, births=BIRTHS),
        observed(V2, journal=B_SERVES, births=BIRTHS),
    )

    assert (
        said == "journal: build c is kept for pipeline flights now, and was build a (record 9 "
        "then, 17 now)"
    )


def test_a_rollout_on_its_way_is_named(file: Path) -> None:
    assert (
        stale(file, observed(V2, journal=(*A_SERVES, staged("b")), births=BIRTHS))
        == "journal: rollout 2 of pipeline flights is on its way (record 4 then, 5 now)"
    )


def test_records_of_other_pipelines_move_nothing(file: Path) -> None:
    others = birth("o", declared("other", table="others"))
    now = observed(V2, journal=(*A_SERVES, staged("o", pipeline="other")), births=(*BIRTHS, others))

    assert saved(file, only=("flights",)).plan_again(file, now).looked_at == 5


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (log(ids={"orders": "another"}), "topics: orders was deleted and created again"),
        (log(ids={}), "topics: orders was deleted since"),
        (log(partitions=3), "topics: orders has 3 partitions, and had 2"),
        (
            log(beginning=7),
            (
                "topics: orders partition 0 begins at offset 7 now, and began at 0; topics: "
                "orders partition 1 begins at offset 7 now, and began at 0"
            ),
        ),
        (
            log(end=90),
            (
                "topics: orders partition 0 ends at offset 90 now, and ended at 100; topics: "
                "orders partition 1 ends at offset 90 now, and ended at 100"
            ),
        ),
    ],
)
def test_topics_that_moved_are_named(file: Path, facts: object, says: str) -> None:
    assert stale(file, replace(THEN, log=facts)) == says


def test_a_topic_that_was_made_since_is_named(file: Path) -> None:
    ground = ground_of(make_plan(THEN), THEN)

    assert list(ground_changes(replace(ground, topics={}), ground)) == [
        "topics: orders was made since"
    ]


def test_another_thing_to_let_through_is_named(file: Path) -> None:
    ground = ground_of(make_plan(THEN), THEN)
    (flights,) = ground.pipelines.values()
    other = replace(
        ground, pipelines={"flights": replace(flights, accepted=("rate: it is night",))}
    )

    assert list(ground_changes(ground, other)) == [
        "what is let through for pipeline flights: now rate: it is night"
    ]
    assert list(ground_changes(other, ground)) == [
        "what is let through for pipeline flights: no longer rate: it is night"
    ]


def test_all_that_moved_is_named_at_once(file: Path) -> None:
    said = stale(
        file, observed(declared(code="3"), journal=B_SERVES, births=BIRTHS, facts=log(beginning=7))
    )

    assert [each.partition(":")[0] for each in said.split("; ")] == [
        "code",
        "journal",
        "topics",
        "topics",
    ]


def test_a_file_that_was_changed_by_hand_is_refused(file: Path) -> None:
    saved(file)
    file.write_text(file.read_text().replace('"gap": false', '"gap": true'))

    with pytest.raises(Damaged, match="was changed after it was saved"):
        SavedPlan.read(file)


@pytest.mark.parametrize("content", ["", "[]", "{}", "not json", '{"format": 1}'])
def test_a_file_that_is_no_plan_is_a_slip(file: Path, content: str) -> None:
    file.write_text(content)

    with pytest.raises(UsageError, match="is not a saved plan"):
        SavedPlan.read(file)


def test_a_plan_for_several_pipelines_is_of_a_format_of_its_own(file: Path) -> None:
    """A Kappa that knows only format 1 would read the names as one pipeline's."""
    seen = observed(V2, declared("other", table="others"), journal=A_SERVES, births=BIRTHS)

    assert saved(file, seen, only=("other", "flights")).only == ("other", "flights")
    assert json.loads(file.read_text())["format"] == 2
    saved(file, seen, only=("other",))
    assert json.loads(file.read_text())["format"] == 1


def test_a_format_of_another_kappa_is_said(file: Path) -> None:
    saved(file)
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 3}))

    with pytest.raises(UsageError, match="of format 3, and this Kappa reads formats 1 and 2"):
        SavedPlan.read(file)


def test_a_file_that_is_not_there_or_cannot_be_written_is_a_slip(file: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        SavedPlan.read(file)
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        saved(file.parent / "nowhere" / "plan.json")
