"""Laws of pipelines that read each other's sinks: no pipeline may read its own output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from overlays import ORDERS, born
from overlays import declared as flights
from plans import A_SERVES, observed

from kappa import Sink, Table, Topic, count, pipeline
from kappa.base.errors import DeclarationError
from kappa.base.settings import load_settings
from kappa.declare.sink import SinkBirth
from kappa.replay.rollout.plan.facts import Declared
from kappa.replay.rollout.plan.make_plan import make_plan
from kappa.replay.rollout.plan.plan import Plan
from kappa.replay.rollout.plan.preflight import TopicUse, circle_through
from kappa.replay.rollout.plan.validate import validate_project
from kappa.state.build import Birth, TopicBirth
from kappa.state.store import Store


def declares(name: str, *, reads: str, sends: str) -> Declared:
    """Returns a pipeline that reads one topic, and whose sink sends to another."""
    topic = Topic(reads, event="id string, n int", key="id", kind="retained", partitions=2)

    def function(orders: Any) -> dict[str, Any]:
        return {"delays": orders}

    table = Table(f"of_{name}", keys=("id",), fold={"n": count()})
    writes = [table, Sink(sends, of=table.name)]
    made = pipeline(reads={"orders": topic}, writes=writes, name=name)(function)
    return replace(flights(), pipeline=made, tables=())


def serves(name: str, build: str, *, reads: str, sends: str) -> Birth:
    return structs.replace(
        born(build, flights()),
        pipeline=name,
        tables=(),
        topics=(TopicBirth(reads, "i", "compacted", 1),),
        sinks=(SinkBirth(sends, "x"),),
    )


def planned(*pipelines: Declared, serving: Mapping[str, Birth] | None = None) -> Plan:
    births = tuple((serving or {}).values())
    seen = observed(*pipelines, journal=A_SERVES, births=(born("a", flights()), *births))
    builds = {name: birth.build for name, birth in (serving or {}).items()}
    state = replace(seen.state, serving=builds)
    return make_plan(replace(seen, state=state), only=[each.pipeline.name for each in pipelines])


def circles(plan: Plan) -> dict[str, str]:
    found = [each for each in plan.refusals if "reads what it" in each.message]
    return {each.pipeline: each.message for each in found}


def test_two_declared_pipelines_that_feed_each_other_are_refused_by_name() -> None:
    one = declares("one", reads="orders", sends="ones")
    plan = planned(one, declares("two", reads="ones", sends="orders"))

    there, back = "one sends ones, which two reads", "two sends orders, which one reads"
    endless = "Each change would cause another, without end"
    assert circles(plan) == {
        "one": f"pipeline one reads what it changes itself: {there}; {back}. {endless}",
        "two": f"pipeline two reads what it changes itself: {back}; {there}. {endless}",
    }
    hint = [each.hint for each in plan.refusals if each.pipeline == "one"][-1]
    mend, now = hint.split("; ")
    assert mend == "let one not read orders, or give the sink of two another topic"
    assert now == "what serves counts until a deploy of two"
    assert all(not each.name for each in plan.refusals), "nothing lets it through"


def test_a_circle_of_three_through_what_serves_is_refused() -> None:
    serving = {
        "two": serves("two", "b", reads="ones", sends="twos"),
        "three": serves("three", "c", reads="twos", sends="orders"),
    }
    one = declares("one", reads="orders", sends="ones")

    way = "one sends ones, which two reads; two sends twos, which three reads; three sends"
    assert way in circles(planned(one, serving=serving))["one"]
    # What is declared counts, and not what that pipeline served before.
    other = declares("three", reads="twos", sends="threes")
    assert circles(planned(one, other, serving=serving)) == {}


def test_pipelines_behind_one_another_are_no_circle() -> None:
    chained = {"one": ("orders", "ones"), "two": ("ones", "twos"), "three": ("ones", "threes")}
    pipelines = (declares(name, reads=a, sends=b) for name, (a, b) in chained.items())

    assert circles(planned(*pipelines)) == {}
    # One before a circle is not in it.
    uses = {
        "before": TopicUse(frozenset({"x"}), frozenset({"a"})),
        "one": TopicUse(frozenset({"a", "b"}), frozenset({"c"})),
        "two": TopicUse(frozenset({"c"}), frozenset({"b"})),
    }
    assert circle_through("before", uses) == ()
    assert circle_through("one", uses) == (("one", "c"), ("two", "b"))


def test_a_pipeline_that_reads_its_own_sinks_topic_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DeclarationError, match="goes to a topic that its own pipeline reads"):
        declares("one", reads="orders", sends=ORDERS.name)
    own = TopicUse(frozenset({"a"}), frozenset({"a"}))
    assert circle_through("one", {"one": own}) == (("one", "a"),)


CHAINED = """
from kappa import Sink, Table, Topic, pipeline

READ = Topic("{reads}", kind="compacted", key="id", event="id string not null")

@pipeline(reads={{"read": READ}}, writes=[Table("of_{name}", latest=READ),
          Sink("{sends}", of="of_{name}")])
def {name}():
    return {{}}
"""


def test_validation_finds_a_circle_without_a_broker(tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines").mkdir()
    for name, reads, sends in (("one", "a", "b"), ("two", "b", "a"), ("three", "b", "c")):
        text = CHAINED.format(name=name, reads=reads, sends=sends)
        (tmp_path / "pipelines" / f"{name}.py").write_text(text)
    settings = load_settings(tmp_path)

    validated = validate_project(settings, Store(settings.root_url))
    found = {each.name: each.refused for each in validated}

    assert [name for name, refused in found.items() if refused] == ["one", "two"]
    assert "one sends b, which two reads; two sends a, which one reads" in found["one"][0].message
    assert found["one"][0].hint == "let one not read a, or give the sink of two another topic"
