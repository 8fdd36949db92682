"""Pipelines, births and logs with defaults, so that a test states only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from births import make_birth
from journals import NOWHERE, held, numbered, served, staged, verified

from kappa import Table, Topic, pipeline
from kappa.code.fingerprint import SEMANTICS, version_of
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.plan.facts import Declared, LogFacts, Observed
from kappa.state.build import Birth, TopicBirth
from kappa.state.journal.events import CaughtUp, Event
from kappa.state.offsets import Offsets
from kappa.state.table import TableBirth
from kappa.tables.shape import REJECTS_BIRTH

ORDERS = Topic("orders", event="id string, n int", partitions=2, key="id")


def declared(
    name: str = "flights",
    *,
    code: str = "1",
    topic: Topic = ORDERS,
    table: str = "delays",
    columns: tuple[tuple[str, str], ...] = (("n", "int"),),
) -> Declared:
    def function(orders: Any) -> dict[str, Any]:
        return {table: orders}

    def nothing() -> dict[str, Any]:
        return {}

    latest = topic.kind == "compacted"
    made = pipeline(
        name=name,
        reads={"orders": topic},
        writes=[Table(table, latest=topic) if latest else Table(table)],
    )(nothing if latest else function)
    parts = {f"function pipelines/{name}.py:{name}": code, f"topic {topic.name}": "1"}
    tables = (TableBirth(table, columns), REJECTS_BIRTH)
    sources = {f"pipelines/{name}.py": code.encode()}
    return Declared(made, f"pipelines.{name}", version_of(parts), parts, tables, sources)


def birth(build: str, of: Declared, *, topic_id: str = "id-of-orders") -> Birth:
    topics = tuple(
        TopicBirth(topic.name, topic_id, topic.kind, topic.partitions)
        for topic in of.pipeline.topics
    )
    return make_birth(
        build,
        of.tables,
        topics=topics,
        pipeline=of.pipeline.name,
        version=of.version,
        parts=of.parts,
        semantics=SEMANTICS,
        module=of.module,
        by="ada@test",
    )


def log(
    *,
    ids: Mapping[str, str] | None = None,
    partitions: int = 2,
    beginning: int = 0,
    end: int = 100,
    hour_ago: int | None = None,
    config: Mapping[str, str] | None = None,
) -> LogFacts:
    there = {"orders": "id-of-orders"} if ids is None else ids

    def everywhere(offset: int) -> Offsets:
        return Offsets({name: dict.fromkeys(range(partitions), offset) for name in there})

    return LogFacts(
        there,
        dict.fromkeys(there, partitions),
        everywhere(beginning),
        everywhere(end),
        hour_ago=None if hour_ago is None else everywhere(hour_ago),
        configs={} if config is None else dict.fromkeys(there, config),
    )


def observed(
    *pipelines: Declared,
    journal: tuple[Event, ...] = (),
    births: tuple[Birth, ...] = (),
    facts: LogFacts | None = None,
) -> Observed:
    by_name = {each.pipeline.name: each for each in pipelines}
    return Observed(
        frozenset(by_name),
        by_name,
        fold_records(numbered(*journal)),
        {each.build: each for each in births},
        facts or log(),
    )


V1 = declared()
V2 = declared(code="2")
# Build a serves; then b, and a is kept.
A_SERVES = (staged("a"), CaughtUp(1, NOWHERE), verified(1), served(1, 1, "a"))
B_SERVES = (
    *(*A_SERVES, staged("b"), CaughtUp(5, NOWHERE), verified(5), held(5, "a")),
    served(5, 2, "b", live="a"),
)
