"""Laws of a plan: each pipeline's step, its reasons, its cost, and any blocker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from journals import NOWHERE, held, served, staged, switch_asked, verified
from msgspec import structs
from plans import A_SERVES, B_SERVES, V1, V2, birth, declared, observed
from plans import log as facts_of

from kappa import Topic
from kappa.base.cluster_rules import IS_DYNAMIC
from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.base.process import cores_here
from kappa.base.sections import EngineSettings
from kappa.base.settings import Settings
from kappa.code.code_snapshot import load_snapshot
from kappa.code.fingerprint import version_of
from kappa.kafka.client import Log
from kappa.kafka.producer import ProducedRecord
from kappa.replay.rollout.plan.facts import Declared, LogFacts, Observed
from kappa.replay.rollout.plan.finding import Allowances, Finding
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.observe import gather_facts
from kappa.replay.rollout.plan.plan import Change, Plan, PlanStep
from kappa.replay.rollout.plan.plan_text import plan_text
from kappa.replay.rollout.stage import stage_plan
from kappa.state.build import Birth, read_birth
from kappa.state.journal.events import CaughtUp, Event
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark, one_log

BORN = birth("a", V1)


def beside_a(*pipelines: Declared, births: tuple[Birth, ...] = (BORN,), **given: Any) -> Observed:
    """Observes these pipelines while build a of the first version serves."""
    return observed(*pipelines, journal=A_SERVES, births=births, **given)


def beside_b(
    *pipelines: Declared, a: Birth = BORN, b: Declared = V2, journal: tuple[Event, ...] = B_SERVES
) -> Observed:
    """Observes these pipelines while build b serves and build a is kept."""
    return observed(*pipelines, journal=journal, births=(a, birth("b", b)))


def only_step(seen: Observed) -> PlanStep:
    (step,) = make_plan(seen).steps
    return step


def refused(plan: Plan | Observed) -> str:
    (refusal,) = (make_plan(plan) if isinstance(plan, Observed) else plan).refusals
    return refusal.message


def test_a_plan_says_which_subjects_have_moved_on_and_refuses_nothing() -> None:
    subjects = {"bids-value": (5, 7), "orders-value": (5, 5), "shops-value": (2, None)}
    plan = make_plan(replace(observed(V1), subjects=subjects))

    assert plan.notes == (
        "subject bids-value is at version 7, and version 5 is pinned: kappa schemas pin bids-value",
        "subject shops-value is pinned at version 2, and its newest one is unknown",
    )
    assert not plan.refusals


def test_a_pipeline_that_nothing_serves_is_new_and_replays_the_whole_log() -> None:
    step = only_step(observed(V1))

    assert (step.change, step.records, step.serving) == (Change.NEW, 200, None)
    assert step.text == f"flights: new (version {V1.version}), 200 records to replay"
    assert step.origin.plain() == {"orders": {"0": 0, "1": 0}}
    assert [topic.id for topic in step.topics] == ["id-of-orders"]


def test_a_version_that_serves_is_unchanged() -> None:
    plan = make_plan(beside_a(V1))

    assert [step.change for step in plan.steps] == [Change.SAME]
    assert not plan.has_changes
    assert plan.looked_at == 4
    assert plan.generation == 1


def test_a_changed_pipeline_says_why() -> None:
    step = only_step(beside_a(V2))

    assert (step.change, step.build) == (Change.CHANGED, "a")
    assert step.reasons == ("function flights in pipelines/flights.py changed",)
    changed = f"flights: changed to version {V2.version} ({step.reasons[0]})"
    assert step.text == f"{changed}, 200 records to replay"


def test_a_version_whose_build_is_kept_serves_again_without_a_replay() -> None:
    step = only_step(beside_b(V1))

    assert (step.change, step.build, step.serving, step.records) == (Change.KEPT, "a", "b", 0)
    assert step.acts
    assert not step.replays


def test_a_replay_that_is_asked_for_makes_a_new_build_of_the_same_version() -> None:
    (step,) = make_plan(beside_a(V1), only=("flights",), again=True).steps

    assert (step.change, step.records) == (Change.AGAIN, 200)
    assert step.reasons == ("a replay was asked for",)


def test_a_replay_that_is_asked_for_replays_a_kept_version_too() -> None:
    plan = make_plan(beside_b(V1), only=("flights",), again=True)

    assert [step.change for step in plan.steps] == [Change.CHANGED]


def test_a_pipeline_that_is_no_longer_declared_goes_on_serving() -> None:
    plan = make_plan(beside_a())

    (step,) = plan.steps
    undeclared, until = step.text.split("; ")
    assert undeclared == "flights: no longer declared"
    assert until == "build a continues to serve until: kappa retire flights"
    assert not plan.has_changes


def test_readers_are_told_what_they_will_miss() -> None:
    before = declared(columns=(("n", "int"), ("m", "int"), ("_hidden", "int")))
    after = declared(code="2", columns=(("n", "bigint"), ("new", "int")))

    step = only_step(beside_a(after, births=(birth("a", before),)))

    assert {change.text: change.breaking for change in step.readers} == {
        "column m of table delays goes": True,
        "column n of table delays becomes bigint, from int": False,
        "column new of table delays is new (int)": False,
    }


def test_a_table_that_goes_is_told() -> None:
    readers = only_step(beside_a(declared(code="2", table="lateness"))).readers

    told = {change.text: change.breaking for change in readers}
    assert told == {"table delays goes": True, "table lateness is new": False}


NARROWER = declared(code="2", columns=())


def test_what_breaks_readers_is_refused_with_what_to_type_until_it_is_let_through() -> None:
    seen = beside_a(NARROWER)

    plan = make_plan(seen)
    breaks = "what reads the tables of flights may break: column n of table delays goes"
    assert refused(plan) == breaks
    assert plan.refusals[0].hint == "allow it: kappa deploy flights --allow-breaking"

    allowed = make_plan(seen, accepting=Allowances(breaking=True))
    assert allowed.refusals == ()
    assert allowed.steps[0].accepted == (f"breaking: {breaks}",)


def test_a_kept_version_that_breaks_readers_is_refused_too() -> None:
    wide = declared(code="2", columns=(("n", "int"), ("m", "int")))

    assert "column m of table delays goes" in refused(beside_b(V1, b=wide))


LOST = (
    "orders partition 0 begins at offset 41, partition 1 begins at offset 41: a replay would miss "
    "what came before"
)


def test_a_lost_beginning_can_be_accepted_and_is_written_down() -> None:
    plan = make_plan(observed(V1, facts=facts_of(beginning=41)), accepting=Allowances(gap=True))

    assert plan.refusals == ()
    assert plan.steps[0].accepted == (f"gap: {LOST}",)
    assert plan.steps[0].origin.plain() == {"orders": {"0": 41, "1": 41}}


def test_a_reason_may_be_given_for_what_has_a_flag() -> None:
    allowances = Allowances(allowed={"gap": "lost in the fire"})
    plan = make_plan(observed(V1, facts=facts_of(beginning=41)), accepting=allowances)

    assert plan.refusals == ()
    assert plan.steps[0].accepted[0].endswith(f"{LOST}: lost in the fire")


DOUBT = Finding(
    "pipelines/flights.py:7 uses time.time, which reads the clock",
    "take it from the record",
    "pipelines/flights.py:7",
)


def test_what_is_not_deterministic_is_refused_until_a_reason_is_given() -> None:
    seen = observed(replace(V1, doubtful=(DOUBT,)))

    plan = make_plan(seen)
    assert refused(plan) == DOUBT.message
    typed = "kappa deploy flights --allow 'pipelines/flights.py:7=REASON'"
    assert plan.refusals[0].hint == f"take it from the record; or allow it: {typed}"

    allowed = make_plan(seen, accepting=Allowances(allowed={DOUBT.name: "only logged"}))
    assert allowed.refusals == ()
    assert allowed.steps[0].accepted == (f"{DOUBT.message}: only logged",)


def test_allowing_what_nobody_refuses_is_told() -> None:
    allowances = Allowances(allowed={"pipelines/flights.py:8": "moved"})
    (note,) = make_plan(observed(V1), accepting=allowances).notes

    unknown = "nothing named pipelines/flights.py:8 blocks the plan"
    assert note == f"{unknown}: --allow lets nothing through"


def test_what_is_not_there_cannot_be_let_through() -> None:
    allowances = Allowances(gap=True, breaking=True, allowed={"": "x"})
    plan = make_plan(observed(V1, facts=facts_of(ids={})), accepting=allowances)
    assert refused(plan).endswith("is not on the broker")


def test_a_change_of_one_pipeline_leaves_the_others_alone() -> None:
    other = declared("other", table="others")
    replayed = (staged("o", pipeline="other"), CaughtUp(5, NOWHERE), verified(5))
    switch = served(5, 2, "o", pipeline="other", others={"flights": "a"})
    journal = (*A_SERVES, *replayed, switch)

    plan = make_plan(observed(V2, other, journal=journal, births=(BORN, birth("o", other))))

    changes = {step.pipeline: step.change for step in plan.steps}
    assert changes == {"flights": Change.CHANGED, "other": Change.SAME}


def test_a_changed_library_is_told_and_changes_nothing() -> None:
    before = {"duckdb": "1.5.4", "gone": "1", "pyspark": "4.2.0", "Pytest": "8"}
    now = {"duckdb": "1.5.5", "pyspark": "4.2.0", "new": "2", "Pytest": "9"}
    born = structs.replace(BORN, libraries=before)
    plan = make_plan(replace(beside_a(V1, births=(born,)), libraries=now))

    assert not plan.has_changes
    (note,) = plan.steps[0].notes
    others, effect = note.split(": ")
    assert others == "other libraries are installed than when build a was born"
    assert effect == "duckdb 1.5.4 to 1.5.5, gone 1 to (none); that alone replays nothing"


def test_another_meaning_of_folds_is_a_change_with_its_reason() -> None:
    def meaning(number: str) -> Declared:
        parts = {**V1.parts, "semantics": number}
        return replace(V1, parts=parts, version=version_of(parts))

    step = only_step(beside_a(meaning("2"), births=(birth("a", meaning("1")),)))

    assert step.change is Change.CHANGED
    assert step.reasons == ("what Kappa means by a valid record and a fold changed (1 to 2)",)


def test_a_change_is_shown_as_a_diff_of_what_serves_and_the_tree() -> None:
    def coded(text: str, limit: str) -> Declared:
        parts = {
            "function pipelines/flights.py:flights": text,
            "value pipelines/flights.py:LIMIT": limit,
            "topic orders": "1",
        }
        body = f"def flights(orders):\n    return orders.where({text} > LIMIT)\n"
        files = {"pipelines/flights.py": f"# {text}\nLIMIT = {limit}\n{body}".encode()}
        return replace(declared(), parts=parts, version=version_of(parts), files=files)

    old, new = coded("a", "1"), coded("b", "1")
    seen = replace(beside_a(new, births=(birth("a", old),)), snapshots={"a": old.files})

    (diff,) = only_step(seen).diffs

    assert diff.what == "function flights in pipelines/flights.py"
    assert diff.lines[1:] == (
        " def flights(orders):",
        "-    return orders.where(a > LIMIT)",
        "+    return orders.where(b > LIMIT)",
    )
    shown = "     def flights(orders):\n    -    return orders.where(a > LIMIT)\n"
    assert f"  {diff.what}:\n{shown}" in plan_text(make_plan(seen))


def test_a_missing_topic_refuses_a_replay_and_says_what_to_type() -> None:
    plan = make_plan(observed(V1, facts=facts_of(ids={})))

    assert refused(plan) == "topic orders of pipeline flights is not on the broker"
    assert plan.refusals[0].hint == "kappa topics create orders"
    with pytest.raises(KappaError, match="not on the broker") as error:
        plan.ensure_possible()
    assert error.value.exit_code == 1


def test_another_number_of_partitions_refuses_a_replay() -> None:
    seen = observed(V1, facts=facts_of(partitions=3))
    assert "topic orders has 3 partitions, and" in refused(seen)


def test_a_log_that_has_lost_its_beginning_refuses_a_replay() -> None:
    assert refused(observed(V1, facts=facts_of(beginning=41))) == LOST


def test_a_compacted_topic_may_begin_anywhere() -> None:
    topic = Topic("orders", event="id string, n int", partitions=2, kind="compacted", key="id")

    plan = make_plan(observed(declared(topic=topic), facts=facts_of(beginning=41)))

    assert plan.refusals == ()
    assert plan.steps[0].records == 118


@pytest.mark.parametrize(
    "seen",
    [
        # What serves already is not doubted again, and needs no beginning of the log.
        beside_a(replace(V1, doubtful=(DOUBT,))),
        beside_a(V1, facts=facts_of(beginning=41)),
    ],
)
def test_what_serves_is_not_refused(seen: Observed) -> None:
    assert make_plan(seen).refusals == ()


@pytest.mark.parametrize("code", ["1", "2"])
def test_a_topic_made_anew_refuses_until_a_replay_is_asked_for(code: str) -> None:
    seen = beside_a(declared(code=code), births=(birth("a", V1, topic_id="before"),))

    refusal, lost = refused(make_plan(seen)).split(": ")
    assert refusal == "topic orders was deleted and created again since build a was born"
    assert lost == "what it held then is in build a alone"
    assert make_plan(seen, only=("flights",), again=True).refusals == ()


def test_a_kept_build_of_another_topic_does_not_serve_again() -> None:
    seen = beside_b(V1, a=birth("a", V1, topic_id="before"))
    assert "since build a was born" in refused(seen)


def test_a_rollout_on_its_way_is_a_conflict() -> None:
    plan = make_plan(beside_b(V2, journal=(*A_SERVES, staged("b"))))

    assert plan.steps[0].text.endswith("; rollout 2 of build b is replaying")
    underway = "rollout 2 of pipeline flights is on its way: build b, begun by ada@test"
    with pytest.raises(Conflict, match=underway):
        plan.ensure_possible()


def test_a_rollout_of_another_pipeline_is_in_nobodys_way() -> None:
    other = declared("orders_per_day", table="orders_per_day")

    journal = (staged("o", pipeline="orders_per_day"),)
    seen = observed(V1, other, journal=journal, births=(birth("o", other),))

    assert make_plan(seen, only=("flights",)).refusals == ()


def test_a_table_that_another_pipeline_serves_is_refused() -> None:
    other = declared("lateness", table="delays")

    plan = make_plan(beside_a(other), only=("lateness",))

    assert refused(plan) == "delays is served by pipeline flights (build a)"


def test_every_pipeline_has_a_table_of_rejects() -> None:
    seen = beside_a(declared("other", table="others"))
    assert make_plan(seen, only=("other",)).refusals == ()


@pytest.mark.parametrize(
    ("name", "hint"), [("flight", "did you mean flights?"), ("zzz", "there are flights")]
)
def test_an_unknown_pipeline_is_a_usage_error(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"no pipeline {name}") as error:
        make_plan(observed(V1), only=(name,))

    assert error.value.hint == hint


def test_a_switch_back_that_was_undone_is_a_kept_version_again() -> None:
    undone = (*B_SERVES, switch_asked("a"), held(10, "b"), served(10, 3, "a", live="b"))

    step = only_step(beside_b(V2, journal=undone))

    assert (step.change, step.build) == (Change.KEPT, "b")


@pytest.mark.parametrize(
    ("engine", "cores"),
    [
        (EngineSettings(cores=3), 3),
        (EngineSettings(), cores_here()),
        (EngineSettings(cores=3, master="spark://one:7077", conf={"spark.cores.max": "16"}), 16),
        # A cluster that gives as many as there are tasks: nobody knows how many are there.
        (EngineSettings(master="spark://one:7077", conf={IS_DYNAMIC: "true"}), 0),
    ],
)
def test_replay_has_its_clusters_cores(tmp_path: Path, engine: EngineSettings, cores: int) -> None:
    (tmp_path / "pipelines").mkdir()
    settings = Settings(project=tmp_path, engine=engine)

    seen = gather_facts(settings, Store(settings.root_url), Log("127.0.0.1:9"))

    assert seen.cores == cores


def written(project: Path, text: str) -> Settings:
    """Writes the file of pipeline orders; returns the settings of the project."""
    (project / "pipelines").mkdir()
    (project / "pipelines" / "orders.py").write_text(text, encoding="utf-8")
    (project / "kappa.toml").touch()
    return Settings(project=project)


@pytest.mark.jvm
def test_a_project_is_observed_with_a_real_log(tmp_path: Path, log: Log, topic_name: str) -> None:
    topic = f'Topic("{topic_name}", event="id string", partitions=2)'
    table = 'Table("t", keys=("id",), fold={"n": count()})'
    declaration = f'@pipeline(reads={{"o": {topic}}}, writes=[{table}])'
    imports = "from kappa import Table, Topic, count, pipeline"
    function = 'def orders(o):\n    return {"t": o}'
    settings = written(tmp_path, f"{imports}\n{declaration}\n{function}\n")
    store = Store(settings.root_url)

    missing = make_plan(gather_facts(settings, store, log))
    log.create(Topic(topic_name, event="id string", partitions=2))
    log.produce((ProducedRecord(b"{}") for _ in range(10)), topic_name)
    (number,) = stage_plan(store, make_plan(gather_facts(settings, store, log)))
    underway = make_plan(gather_facts(settings, store, log, only=("orders",)), only=("orders",))

    assert refused(missing) == f"topic {topic_name} of pipeline orders is not on the broker"
    (step,) = underway.steps
    assert step.records == 10
    assert step.declared.tables[0].columns == (("id", "string"), ("n", "bigint"))
    assert step.rollout.id == number
    assert load_snapshot(store, read_birth(store, step.rollout.build)).name == "orders"


@pytest.mark.jvm
def test_random_is_found_in_code_or_plan(tmp_path: Path, log: Log, topic_name: str) -> None:
    """Everything that gives another value each time is found, in code or in Spark's plan."""
    imports = "from pyspark.sql import functions as F\nfrom kappa import Table, Topic, pipeline"
    reads = f'{{"o": Topic("{topic_name}", event="id string")}}'
    rows = 'o.withColumn("at",\n        F.current_timestamp())'
    drawn = 'withColumn("x", getattr(F, "ra" + "nd")())'
    function = f'def orders(o):\n    return {{"t": {rows}.{drawn}}}'
    declaration = f'@pipeline(reads={reads}, writes=[Table("t")])'
    settings = written(tmp_path, f"{imports}\n{declaration}\n{function}\n")

    seen = gather_facts(settings, Store(settings.root_url), log)

    in_code, in_plan = (each.message for each in seen.declared["orders"].doubtful)
    used = "pipelines/orders.py:6 uses pyspark.sql.functions.current_timestamp"
    assert in_code == f"{used}, which reads the clock"
    used = "pipelines/orders.py:3 uses Spark's Rand"
    assert in_plan == f"{used}, which gives another value each time"
    names = [found.name for found in seen.declared["orders"].doubtful]
    assert names == ["pipelines/orders.py:6", "pipelines/orders.py:3"]


def test_what_the_build_that_serves_has_rejected_is_read_again_and_the_plan_says_so() -> None:
    seen = beside_a(V2)

    assert only_step(seen).notes == ()
    (note,) = only_step(replace(seen, rejected={"a": 1200})).notes
    rejected, again = note.split(": ")
    assert rejected == "build a has rejected 1,200 records"
    assert again == "a replay reads all rejects again, and takes in what can be read now"


def test_an_archive_and_its_topic_are_one_log_whose_parts_the_plan_names() -> None:
    gone = facts_of(beginning=40)
    mark = ArchiveMark("orders", "id-of-orders", "f", {0: 0, 1: 0}, {0: 90, 1: 40})

    def facts(mark: ArchiveMark) -> LogFacts:
        begins = {"beginning": one_log(gone.beginning, [mark]), "topics_beginning": gone.beginning}
        return replace(gone, archived=(mark,), **begins)

    step = only_step(observed(V1, facts=facts(mark)))

    assert (step.records, step.origin.plain()) == (200, {"orders": {"0": 0, "1": 0}})
    (note,) = step.notes
    parts, begins = note.split("; ")
    archived = "topic orders: offsets 0 to 89 of partition 0, 0 to 39 of partition 1"
    assert parts == f"{archived} come from its archive, all that follows from the topic"
    assert begins == "the topic itself begins at 40 in partition 0, 40 in partition 1"
    # The offsets between archive and topic are in neither.
    apart = observed(V1, facts=facts(structs.replace(mark, end={0: 90, 1: 39})))
    assert "orders partition 1 begins at offset 40: a replay would miss" in refused(apart)
