"""Laws of a change of sinks and alerts: it replays nothing, and the plan says what it sends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from journals import NOWHERE, served, staged, verified
from msgspec import structs
from overlays import born, declared
from plans import log, observed

from kappa import Alert, Avro, Sink
from kappa.declare.sink import SinkBirth
from kappa.replay.rollout.current import current_state
from kappa.replay.rollout.plan.declared_pipelines import _unfit_outlets
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.finding import Allowances
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Change, Plan
from kappa.replay.rollout.stage import stage_plan
from kappa.state.build import TopicBirth, read_birth
from kappa.state.journal.events import CaughtUp
from kappa.state.journal.journal import Journal
from kappa.state.store import Store

SINK = Sink("out", of="delays", where="rows > 1")
ALERT = Alert("late", of="delays", to="page")
V1, V2 = declared(), declared(outlets=(SINK, ALERT))
SERVES = (staged("a"), CaughtUp(1, NOWHERE), verified(1), served(1, 1, "a"))


def planned(after: Declared, before: Declared = V1, **facts: object) -> Plan:
    seen = observed(after, journal=SERVES, births=(born("a", before),))
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
    assert (other.change, other.notes) == (
        Change.OVERLAY,
        ("sink out is another: what differs from its topic is sent",),
    )


def test_a_replay_sends_what_differs() -> None:
    (step,) = planned(declared(least=1, outlets=(SINK, ALERT)), V2).steps

    assert step.change is Change.CHANGED
    assert "sink out: what differs in delays is sent when it serves" in step.notes


def test_pipelines_downstream_are_named() -> None:
    reader = structs.replace(
        born("z", V1), pipeline="ships", topics=(TopicBirth("out", "i", "compacted", 1),)
    )
    seen = observed(V2, journal=SERVES, births=(born("a", V1), reader))
    serving = {**seen.state.serving, "ships": "z"}
    (step,) = make_plan(
        replace(seen, state=replace(seen.state, serving=serving)), only=("flights",)
    ).steps

    assert step.notes[-1] == ("pipeline ships reads sink out: what is sent changes its tables too")


@pytest.mark.parametrize(
    ("policy", "partitions", "said", "name"),
    [
        ("delete", 1, "topic out has cleanup.policy=delete on the broker", "sink:out"),
        ("compact,delete", 1, "has cleanup.policy=compact,delete on", "sink:out"),
        ("compact", 3, "topic out has 3 partitions, and", ""),
        ("compact", 1, "", ""),
    ],
)
def test_a_topic_that_would_lose_rows_is_refused(
    policy: str, partitions: int, said: str, name: str
) -> None:
    facts = log()
    facts = replace(
        facts,
        partitions={**facts.partitions, "out": partitions},
        configs={"out": {"cleanup.policy": policy}},
    )
    refusals = planned(V2, log=facts).refusals

    assert [(each.name, said in each.message) for each in refusals] == (
        [(name, True)] if said else []
    )


def test_a_topic_with_records_of_others_is_refused_until_it_is_let_through() -> None:
    facts = log()
    there = {**facts.partitions, "out": 1}
    facts = replace(facts, partitions=there, others=frozenset({"out"}))
    (refused,) = planned(V2, log=facts).refusals
    seen = replace(observed(V2, journal=SERVES, births=(born("a", V1),)), log=facts)
    plan = make_plan(seen, accepting=Allowances(allowed={"sink:out": "it is ours"}))

    assert (refused.name, "records that no sink has sent" in refused.message) == ("sink:out", True)
    assert plan.refusals == ()
    assert plan.steps[0].accepted[0].startswith("sink:out: topic out has records")


def test_a_sink_of_another_pipeline_is_refused() -> None:
    other = structs.replace(
        born("z", V1), pipeline="ships", tables=(), sinks=(SinkBirth("out", "x"),)
    )
    seen = observed(V2, journal=SERVES, births=(born("a", V1), other))
    serving = {**seen.state.serving, "ships": "z"}
    plan = make_plan(replace(seen, state=replace(seen.state, serving=serving)), only=("flights",))

    assert [each.message for each in plan.refusals] == ["sink out is of pipeline ships (build z)"]


@pytest.mark.parametrize(
    ("outlet", "said"),
    [
        (Sink("out", of="delays", columns=["nope"]), "sink out: table delays has no column nope"),
        (
            Sink("out", of="delays", format=Avro("tests/data/order.avsc")),
            "is not a field of the sche",
        ),
        (Sink("out", of="delays", where="nope > 1"), "names nope, which is not a column"),
        (Alert("a", of="delays", to="page", where="rows >"), "alert a: the condition"),
        (Alert("a", of="delays", to="page", where="rows like 'x'"), "alert a: "),
    ],
)
def test_what_does_not_fit_its_table_is_refused_with_the_line(
    outlet: Sink | Alert, said: str
) -> None:
    made = declared(outlets=(outlet,))
    (refused,) = _unfit_outlets(made.pipeline, made.tables)

    assert refused.message.startswith(f"{__file__}:")
    assert said in refused.message


def test_an_overlay_is_born_with_its_own_sinks_and_alerts(tmp_path: Path) -> None:
    store = Store(tmp_path)
    journal = Journal(store)
    for number, event in enumerate(SERVES, start=1):
        assert journal.append(number, event)

    (number,) = stage_plan(store, planned(V2))

    birth = read_birth(store, current_state(store).rollout(number).build)
    assert birth.tables_of == "a"
    assert birth.sinks == (SinkBirth("out", "delays", where="rows > 1"),)
    assert [alert.name for alert in birth.alerts] == ["late"]
