"""Laws of a saved plan: it is applied as agreed, or refused with a list of all changes since."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from journals import NOWHERE, held, served, staged, switch_asked, verified
from plans import A_SERVES, B_SERVES, V1, V2, birth, declared, log, observed

from kappa.base.errors import Conflict, Damaged, UsageError
from kappa.replay.rollout.plan.facts import Declared, Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.plan.saved_plan import SavedPlan, ground_changes, ground_of, save_plan
from kappa.state.journal.events import CaughtUp, Event

C_SERVES = (
    *(*B_SERVES, staged("c"), CaughtUp(10, NOWHERE), verified(10)),
    *(held(10, "b"), served(10, 3, "c", live="b")),
)
BIRTHS = (birth("a", V1), birth("b", declared(code="b")), birth("c", declared(code="c")))


def of_births(*pipelines: Declared, journal: tuple[Event, ...] = A_SERVES) -> Observed:
    return observed(*pipelines, journal=journal, births=BIRTHS)


THEN = of_births(V2)


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
    plan = make_plan(seen, only=only, accepting=accepting)
    save_plan(file, plan, seen, only=only, accepting=accepting)
    return SavedPlan.read(file)


def stale(file: Path, now: Observed, seen: Observed = THEN, *, only: tuple[str, ...] = ()) -> str:
    """Returns the reason why a saved plan is stale."""
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

    code, why = stale(file, of_births(third)).split(" (")

    assert code == f"code: pipeline flights is version {third.version} now, and was {V2.version}"
    assert why == "function flights in pipelines/flights.py changed)"


def test_prose_moves_nothing(file: Path) -> None:
    commented = replace(V2, files={"pipelines/flights.py": b"2 # a comment"})

    plan = saved(file).plan_again(file, replace(THEN, declared={"flights": commented}))
    assert plan.steps[0].declared == commented


def test_a_pipeline_that_is_gone_or_new_is_named(file: Path) -> None:
    other = declared("other", table="others")

    since = stale(file, of_births(V2, other))
    assert since == "code: pipeline other was declared since"
    gone = stale(file, observed(V2), observed(V2, other))
    assert gone == "code: pipeline other was taken away since"
    gone = stale(file, observed(), only=("flights",))
    assert gone == "code: pipeline flights was taken away since"


def test_another_build_that_serves_is_named(file: Path) -> None:
    said, records = stale(file, of_births(V2, journal=B_SERVES)).split(" (")
    assert said == "journal: pipeline flights is served by build b now, and was by build a"
    assert records == "record 4 then, 9 now)"


def test_a_first_build_that_serves_since_is_named(file: Path) -> None:
    said = "is served by build a now, and was by no build (record 0 then, 4 now)"
    assert said in stale(file, THEN, observed(V2))


def test_another_build_that_is_kept_is_named(file: Path) -> None:
    # After an undo and a new deploy, the same build serves and another one is kept.
    undone = (*C_SERVES, switch_asked("b"), held(15, "c"), served(15, 4, "b", live="c"))

    now, then = (of_births(V2, journal=journal) for journal in (undone, B_SERVES))
    said, records = stale(file, now, then).split(" (")

    assert said == "journal: build c is kept for pipeline flights now, and was build a"
    assert records == "record 9 then, 17 now)"


def test_a_rollout_on_its_way_is_named(file: Path) -> None:
    said = stale(file, of_births(V2, journal=(*A_SERVES, staged("b"))))
    on_its_way = "journal: rollout 2 of pipeline flights is on its way"
    assert said == f"{on_its_way} (record 4 then, 5 now)"


def test_records_of_other_pipelines_move_nothing(file: Path) -> None:
    others = birth("o", declared("other", table="others"))
    now = observed(V2, journal=(*A_SERVES, staged("o", pipeline="other")), births=(*BIRTHS, others))

    assert saved(file, only=("flights",)).plan_again(file, now).looked_at == 5


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (log(ids={"orders": "another"}), ("orders was deleted and created again",)),
        (log(ids={}), ("orders was deleted since",)),
        (log(partitions=3), ("orders has 3 partitions, and had 2",)),
        (
            log(beginning=7),
            [f"orders partition {n} begins at offset 7 now, and began at 0" for n in (0, 1)],
        ),
        (
            log(end=90),
            [f"orders partition {n} ends at offset 90 now, and ended at 100" for n in (0, 1)],
        ),
    ],
)
def test_topics_that_moved_are_named(file: Path, facts: object, says: Sequence[str]) -> None:
    told = stale(file, replace(THEN, log=facts))
    assert told == "; ".join(f"topics: {each}" for each in says)


def test_a_topic_that_was_made_since_is_named(file: Path) -> None:
    ground = ground_of(make_plan(THEN), THEN)

    made = list(ground_changes(replace(ground, topics={}), ground))
    assert made == ["topics: orders was made since"]


def test_another_thing_to_let_through_is_named(file: Path) -> None:
    ground = ground_of(make_plan(THEN), THEN)
    (flights,) = ground.pipelines.values()
    night = replace(flights, accepted=("rate: it is night",))
    other = replace(ground, pipelines={"flights": night})

    let_through = "what is let through for pipeline flights"
    assert [*ground_changes(ground, other)] == [f"{let_through}: now rate: it is night"]
    assert [*ground_changes(other, ground)] == [f"{let_through}: no longer rate: it is night"]


def test_all_that_moved_is_named_at_once(file: Path) -> None:
    now = of_births(declared(code="3"), journal=B_SERVES)
    said = stale(file, replace(now, log=log(beginning=7)))

    moved = [each.partition(":")[0] for each in said.split("; ")]
    assert moved == ["code", "journal", "topics", "topics"]


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
    """A plan for several pipelines has format 2, so that a Kappa of format 1 refuses it.

    That Kappa would read the names as the name of one pipeline.
    """
    seen = of_births(V2, declared("other", table="others"))

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
