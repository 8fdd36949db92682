"""Laws of staging: a build is complete before it is named, and the journal decides races."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from house import HOUSE, SUPPORT
from journals import NOWHERE, append, held, served, staged, state_of, switch_asked, verified
from msgspec import structs
from plans import A_SERVES, B_SERVES, V1, V2, birth, declared, log

from kappa.base.errors import Conflict, KappaError
from kappa.code.code_snapshot import load_snapshot
from kappa.replay.rollout.plan.facts import Declared, LogFacts, Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State
from kappa.state.build import Birth, read_birth
from kappa.state.journal.events import CaughtUp, Staged, SwitchAsked
from kappa.state.journal.journal import Journal
from kappa.state.store import Store
from kappa.state.table import TableBirth

OTHER = declared("other", table="others")
BIRTHS = (birth("a", V1), birth("b", V2))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def planned(store: Store, *pipelines: Declared, births: tuple[Birth, ...] = ()) -> Plan:
    return make_plan(seen(store, *pipelines, births=births))


def seen(
    store: Store,
    *pipelines: Declared,
    births: tuple[Birth, ...] = (),
    facts: LogFacts | None = None,
) -> Observed:
    by_name = {each.pipeline.name: each for each in pipelines}
    born = {each.build: each for each in births}
    return Observed(frozenset(by_name), by_name, state_of(store), born, facts or log())


def builds(store: Store) -> set[str]:
    return {name.split("/")[1] for name in store.names("builds")}


def test_a_staged_build_has_its_code_and_its_birth_certificate(store: Store) -> None:
    (number,) = stage_plan(store, planned(store, V1))

    rollout = state_of(store).rollout(number)
    born = read_birth(store, rollout.build)
    assert (rollout.phase, rollout.pipeline) == (Phase.REPLAYING, "flights")
    assert rollout.version == V1.version
    assert (born.version, born.parts, born.tables) == (V1.version, V1.parts, V1.tables)
    assert born.origin_offsets.plain() == {"orders": {"0": 0, "1": 0}}
    assert born.topic_ids == {"orders": "id-of-orders"}
    assert store.get(f"builds/{rollout.build}/code/pipelines/flights.py") == b"1"
    assert "pyspark" in born.libraries
    assert builds(store) == {rollout.build}


def test_the_snapshot_that_was_staged_is_the_one_that_loads(store: Store) -> None:
    topic = 'Topic("orders", event="id string")'
    declaration = f'pipeline(reads={{"o": {topic}}}, writes=[Table("delays")])'
    function = 'def flights(o): return {"delays": 41}'
    code = f"from kappa import Table, Topic, pipeline\n@{declaration}\n{function}"
    files = {"pipelines/flights.py": code.encode()}
    (number,) = stage_plan(store, planned(store, replace(V1, files=files)))

    born = read_birth(store, state_of(store).rollout(number).build)
    assert load_snapshot(store, born).function(None) == {"delays": 41}


def test_the_reasons_of_the_plan_are_kept(store: Store) -> None:
    append(store, *A_SERVES)

    (number,) = stage_plan(store, planned(store, V2, births=BIRTHS[:1]))

    (reason,) = state_of(store).rollout(number).reasons
    assert reason == "function flights in pipelines/flights.py changed"


GAP = (
    "gap: orders partition 0 begins at offset 41, partition 1 begins at offset 41: a replay "
    "would miss what came before"
)


def test_what_was_let_through_stands_in_the_build_and_in_the_journal(store: Store) -> None:
    lost = seen(store, V1, facts=log(beginning=41))
    plan = make_plan(lost, accepting=Allowances(gap=True))

    (number,) = stage_plan(store, plan)

    rollout = state_of(store).rollout(number)
    born = read_birth(store, rollout.build)
    assert rollout.accepted == born.accepted == (GAP,)
    assert born.origin_offsets.plain() == {"orders": {"0": 41, "1": 41}}


def test_what_was_let_through_for_a_kept_build_stands_in_the_journal(store: Store) -> None:
    append(store, *B_SERVES)
    two = TableBirth("delays", (("n", "int"), ("m", "int")))
    wide = structs.replace(birth("b", V2), tables=(two, *V2.tables[1:]))
    found = seen(store, V1, births=(BIRTHS[0], wide))

    (number,) = stage_plan(store, make_plan(found, accepting=Allowances(breaking=True)))

    breaks = "what reads the tables of flights may break: column m of table delays goes"
    assert state_of(store).rollout(number).accepted == (f"breaking: {breaks}",)


def test_a_build_keeps_what_its_topics_and_tables_were(store: Store) -> None:
    (number,) = stage_plan(store, planned(store, V1))

    kept = read_birth(store, state_of(store).rollout(number).build).declarations
    assert kept == {
        "topic orders": "kind retained\npartitions 2\nkey id\ncolumn id string\ncolumn n int\n"
        "given to the function as orders",
        "table delays": "rows are appended",
    }


def test_a_build_of_before_these_were_kept_reads_back(store: Store) -> None:
    (number,) = stage_plan(store, planned(store, V1))
    build = state_of(store).rollout(number).build
    name = f"builds/{build}/birth.json"
    document = store.get_json(name)
    for later in ("accepted", "declarations"):
        del document[later]
    store.put_json(name, document)

    assert (read_birth(store, build).accepted, read_birth(store, build).declarations) == ((), {})


def test_a_plan_without_changes_begins_nothing(store: Store) -> None:
    append(store, *A_SERVES)

    assert stage_plan(store, planned(store, V1, births=BIRTHS[:1])) == ()

    assert state_of(store).last == 4
    assert builds(store) == set()


def test_several_pipelines_are_begun_one_after_the_other(store: Store) -> None:
    assert stage_plan(store, planned(store, V1, OTHER)) == (1, 2)

    assert {rollout.pipeline for rollout in state_of(store).active_rollouts} == {"flights", "other"}


def test_a_kept_build_is_asked_to_serve_again_and_none_is_made(store: Store) -> None:
    append(store, *B_SERVES)

    (number,) = stage_plan(store, planned(store, V1, births=BIRTHS))

    record = Journal(store).get(number)
    assert isinstance(record.event, SwitchAsked)
    assert record.event.build == "a"
    assert builds(store) == set()


def test_what_others_did_meanwhile_elsewhere_is_no_conflict(store: Store) -> None:
    plan = planned(store, V1)
    append(store, staged("o", pipeline="other"))

    assert stage_plan(store, plan) == (2,)


def test_a_second_deploy_is_told_who_was_first_and_leaves_nothing(store: Store) -> None:
    plan = planned(store, V1)
    append(store, staged("x"))

    first = r"was first: rollout 1 of pipeline flights is on its way, with build x"
    with pytest.raises(Conflict, match=first) as error:
        stage_plan(store, plan)

    assert error.value.exit_code == 6
    assert state_of(store).last == 1
    assert builds(store) == set()


def test_a_plan_made_on_what_serves_no_more_is_refused(store: Store) -> None:
    append(store, *A_SERVES)
    plan = planned(store, V2, births=BIRTHS[:1])
    append(store, *B_SERVES[4:])

    with pytest.raises(Conflict, match="is served by build b now, and not by build a"):
        stage_plan(store, plan)

    assert builds(store) == set()


def test_a_kept_build_that_is_kept_no_more_is_not_asked_for(store: Store) -> None:
    append(store, *B_SERVES)
    plan = planned(store, V1, births=BIRTHS)
    append(store, staged("c"), CaughtUp(10, NOWHERE), verified(10))
    append(store, held(10, "b"), served(10, 3, "c", live="b"))

    with pytest.raises(Conflict, match="is served by build c now"):
        stage_plan(store, plan)


def test_an_undo_in_between_is_a_conflict(store: Store) -> None:
    append(store, *B_SERVES)
    plan = planned(store, declared(code="3"), births=BIRTHS)
    append(store, switch_asked("a"))

    with pytest.raises(Conflict, match="rollout 3 of pipeline flights is on its way, with build a"):
        stage_plan(store, plan)


def test_a_refused_plan_makes_nothing(store: Store) -> None:
    plan = make_plan(seen(store, V1, facts=log(ids={})))

    with pytest.raises(KappaError, match="not on the broker"):
        stage_plan(store, plan)

    assert store.names("") == ()


def test_of_many_deploys_at_once_one_wins_and_every_other_is_told(store: Store) -> None:
    plan = planned(store, V1)
    begin = threading.Barrier(8)
    won: list[tuple[int, ...]] = []
    told: list[Conflict] = []

    def deploy() -> None:
        begin.wait()
        try:
            won.append(stage_plan(Store(store.folder), plan))
        except Conflict as error:
            told.append(error)

    threads = [threading.Thread(target=deploy) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert won == [(1,)]
    assert len(told) == 7
    assert builds(store) == {state_of(store).rollout(1).build}


@pytest.mark.fault
def test_a_stage_that_is_killed_before_its_record_has_begun_nothing(store: Store) -> None:
    program = """
        from plans import declared, log
        from kappa.state.store import Store
        from kappa.replay.rollout.plan.facts import Observed
        from kappa.replay.rollout.plan.make_plan import make_plan
        from kappa.replay.rollout.state import State
        from kappa.replay.rollout.stage import stage_plan
        import sys
        seen = Observed(frozenset({"flights"}), {"flights": declared()}, State(), {}, log())
        stage_plan(Store(sys.argv[1]), make_plan(seen))
    """
    path = os.pathsep.join([str(SUPPORT), str(HOUSE)])

    died = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(store.folder)],
        env={**os.environ, "PYTHONPATH": path, "KAPPA_FAIL": "birth.after_put:kill"},
        capture_output=True,
        check=False,
    )

    assert died.returncode == -9
    assert state_of(store) == State()
    (number,) = stage_plan(store, planned(store, V1))
    record = Journal(store).get(number)
    assert isinstance(record.event, Staged)
