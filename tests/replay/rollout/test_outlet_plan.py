"""Laws of changed sinks and alerts: nothing is replayed, and the plan lists the messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from overlays import born, declared
from plans import A_SERVES, log, observed

from kappa import Alert, Avro, Sink
from kappa.declare.sink import SinkBirth
from kappa.replay.rollout.current_state import current_state
from kappa.replay.rollout.plan.declared_pipelines import _unfit_outlets
from kappa.replay.rollout.plan.facts import Declared, Observed
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change, Plan
from kappa.replay.rollout.stage import stage_plan
from kappa.state.build import Birth, TopicBirth, read_birth
from kappa.state.journal.journal import Journal
from kappa.state.store import Store

SINK = Sink("out", of="delays", where="rows > 1")
ORDER = Avro("tests/data/order.avsc")
ALERT = Alert("late", of="delays", to="page")
V1, V2 = declared(), declared(outlets=(SINK, ALERT))


def beside(*others: Birth, pipeline: str = "ships") -> Observed:
    """Observes the second version while the first serves, next to a pipeline with build z."""
    seen = observed(V2, journal=A_SERVES, births=(born("a", V1), *others))
    serving = {**seen.state.serving, pipeline: "z"}
    return replace(seen, state=replace(seen.state, serving=serving))


def planned(after: Declared, before: Declared = V1, **facts: object) -> Plan:
    seen = observed(after, journal=A_SERVES, births=(born("a", before),))
    return make_plan(replace(seen, **facts))  # type: ignore[arg-type]


def test_a_change_of_sinks_and_alerts_alone_replays_nothing_and_is_noted() -> None:
    (step,) = planned(V2, rows={"out": 1204}).steps

    assert step.change is Change.OVERLAY
    assert step.reasons == ("sink out is new", "alert late is new")
    assert step.notes == (
        "sink out is new: the snapshot of delays, 1,204 rows now, is sent",
        "alert late is new: it begins with the first change after the switch",
    )
    assert [diff.lines[1:] for diff in step.diffs] == [
        ("+of delays", "+partitions 1", "+where rows > 1"),
        ("+of delays", "+to page"),
    ]


def test_what_ends_or_changes_is_noted() -> None:
    (gone,) = planned(V1, V2).steps
    (other,) = planned(declared(outlets=(Sink("out", of="delays"), ALERT)), V2).steps

    assert gone.notes == ("sink out ends: its topic keeps what it has", "alert late ends")
    assert other.change == Change.OVERLAY
    assert other.notes == ("sink out is another: what differs from its topic is sent",)


def test_a_replay_sends_what_differs() -> None:
    (step,) = planned(declared(least=1, outlets=(SINK, ALERT)), V2).steps

    assert step.change is Change.CHANGED
    assert "sink out: what differs in delays is sent when it serves" in step.notes


def test_pipelines_downstream_are_named() -> None:
    topics = (TopicBirth("out", "i", "compacted", 1),)
    reader = structs.replace(born("z", V1), pipeline="ships", topics=topics)
    (step,) = make_plan(beside(reader), only=("flights",)).steps

    assert step.notes[-1] == "pipeline ships reads sink out: what is sent changes its tables too"


@pytest.mark.parametrize(
    ("policy", "partitions", "said", "name"),
    [
        ("delete", 1, "topic out has cleanup.policy=delete on the broker", "sink:out"),
        ("compact,delete", 1, "has cleanup.policy=compact,delete on", "sink:out"),
        ("compact", 3, "topic out has 3 partitions, and", ""),
        ("compact", 1, "", ""),
    ],
)
def test_topic_losing_rows_is_refused(policy: str, partitions: int, said: str, name: str) -> None:
    there, configs = {**log().partitions, "out": partitions}, {"out": {"cleanup.policy": policy}}
    facts = replace(log(), partitions=there, configs=configs)
    refusals = planned(V2, log=facts).refusals

    found = [(each.name, said in each.message) for each in refusals]
    assert found == ([(name, True)] if said else [])


def test_a_topic_with_records_of_others_is_refused_until_it_is_let_through() -> None:
    there = {**log().partitions, "out": 1}
    facts = replace(log(), partitions=there, others=frozenset({"out"}))
    (refused,) = planned(V2, log=facts).refusals
    seen = replace(observed(V2, journal=A_SERVES, births=(born("a", V1),)), log=facts)
    plan = make_plan(seen, accepting=Allowances(allowed={"sink:out": "it is ours"}))

    assert (refused.name, "records that no sink has sent" in refused.message) == ("sink:out", True)
    assert plan.refusals == ()
    assert plan.steps[0].accepted[0].startswith("sink:out: topic out has records")


def test_a_sink_of_another_pipeline_is_refused() -> None:
    sinks = (SinkBirth("out", "x"),)
    other = structs.replace(born("z", V1), pipeline="ships", tables=(), sinks=sinks)
    plan = make_plan(beside(other), only=("flights",))

    assert [each.message for each in plan.refusals] == ["sink out is of pipeline ships (build z)"]


@pytest.mark.parametrize(
    ("outlet", "said"),
    [
        (Sink("out", of="delays", columns=["nope"]), "sink out: table delays has no column nope"),
        (Sink("out", of="delays", format=ORDER), "is not a field of the sche"),
        (Sink("out", of="delays", where="nope > 1"), "names nope, which is not a column"),
        (Alert("a", of="delays", to="page", where="rows >"), "alert a: the condition"),
        (Alert("a", of="delays", to="page", where="rows like 'x'"), "alert a: "),
    ],
)
def test_outlet_that_does_not_fit_its_table_is_refused(outlet: Sink | Alert, said: str) -> None:
    made = declared(outlets=(outlet,))
    (refused,) = _unfit_outlets(made.pipeline, made.tables)

    assert refused.message.startswith(f"{__file__}:")
    assert said in refused.message


def test_an_overlay_is_born_with_its_own_sinks_and_alerts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = Journal(store)
    for number, event in enumerate(A_SERVES, start=1):
        assert journal.append(number, event)

    (number,) = stage_plan(store, planned(V2))

    birth = read_birth(store, current_state(store).rollout(number).build)
    assert birth.tables_of == "a"
    assert birth.sinks == (SinkBirth("out", "delays", where="rows > 1"),)
    assert [alert.name for alert in birth.alerts] == ["late"]
