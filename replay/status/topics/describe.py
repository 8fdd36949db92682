"""Describes a topic as it is on the broker, compared with its declaration, and its users.

Users are the builds that read the topic, and the builds whose sinks send to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kappa.base.errors import Conflict
from kappa.base.units import count_of, size
from kappa.declare.topic import Topic, declared_config
from kappa.kafka.client import TopicFacts, own_config
from kappa.replay.rollout.state import State
from kappa.serving.query.render import Listing
from kappa.state.build import Birth
from kappa.state.offsets import Offsets

if TYPE_CHECKING:
    from kappa.kafka.client import Log


@dataclass(frozen=True, slots=True)
class TopicUser:
    """A build that uses a topic. `role` is live, idle or candidate.

    `sends` is True if a sink of the build sends to the topic, and False if the build reads the
    topic.
    """

    pipeline: str
    build: str
    role: str
    sends: bool = False

    def __str__(self) -> str:
        return (
            f"pipeline {self.pipeline} {'sends' if self.sends else 'reads'} it "
            f"({self.role} build {self.build})"
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its settings on the broker (`config`) and its declared settings.

    `begin` contains the first offset of each partition, and `end` the offset after the last record.
    `bytes` maps each partition to its size on disk, but only for the embedded broker.
    """

    facts: TopicFacts
    declared: Topic | None
    config: Mapping[str, str]
    declared_config: Mapping[str, str]
    begin: Offsets
    end: Offsets
    bytes: Mapping[int, int]
    users: tuple[TopicUser, ...]


def describe_topic(
    log: Log,
    name: str,
    declared: Topic | None,
    users: tuple[TopicUser, ...],
    *,
    brokers_time: bool,
    sizes: Mapping[int, int],
) -> TopicDescription:
    """Describes a topic as it is on the broker.

    `brokers_time` is True if the topic needs the broker's timestamps. `sizes` are the sizes of the
    topic's partitions in bytes. Raises UsageError if the broker has no topic of that name.
    """
    facts = log.must_have(name)
    wanted = {} if declared is None else declared_config(declared, brokers_time=brokers_time)
    there = log.config(name)
    known = {*own_config(log, name), *wanted}
    return TopicDescription(
        facts,
        declared,
        {key: there[key] for key in sorted(known) if key in there},
        wanted,
        log.beginning([name]),
        log.end([name]),
        sizes,
        users,
    )


def description_listing(found: TopicDescription) -> Listing:
    """Returns a listing with a row per partition: offsets and size."""
    name = found.facts.name
    rows = (
        (
            partition,
            found.begin.at(name, partition),
            end,
            end - found.begin.at(name, partition),
            found.bytes.get(partition),
        )
        for _, partition, end in found.end.items()
    )
    return Listing(("partition", "begin", "end", "offsets", "bytes"), tuple(rows))


def description_text(found: TopicDescription) -> str:
    """Formats all facts about a topic except the partitions for display, with one fact per line."""
    facts, declared = found.facts, found.declared
    count = f"{facts.partitions} partition{'' if facts.partitions == 1 else 's'}"
    taken = f", {size(sum(found.bytes.values()))} on disk" if found.bytes else ""
    lines = [
        f"topic {facts.name}, id {facts.id}: {count}{taken}",
        "no pipeline declares that it reads this topic"
        if declared is None
        else f"declared at {declared.source}: {declared.kind}, "
        + count_of(declared.partitions, "partition")
        + ("" if declared.key is None else f", key {declared.key}"),
        *(_setting_line(found, name, value) for name, value in found.config.items()),
        *(str(each) for each in found.users),
        *([] if found.users else ["no build reads or sends it"]),
    ]
    return "".join(f"{line}\n" for line in lines)


def description_document(found: TopicDescription) -> dict[str, Any]:
    """Returns all facts about a topic as a JSON document."""
    declared = found.declared
    return {
        "topic": found.facts.name,
        "id": found.facts.id,
        "partitions": description_listing(found).row_objects(),
        "config": dict(found.config),
        "declared": None
        if declared is None
        else {
            "kind": str(declared.kind),
            "partitions": declared.partitions,
            "key": declared.key,
            "config": dict(found.declared_config),
        },
        "users": [
            {
                "pipeline": each.pipeline,
                "build": each.build,
                "role": each.role,
                "sends": each.sends,
            }
            for each in found.users
        ],
    }


def users_of(topic: str, state: State, births: Mapping[str, Birth]) -> tuple[TopicUser, ...]:
    """Lists the live, idle and candidate builds that use a topic, sorted by pipeline."""
    return tuple(
        sorted(_topic_users(topic, state, births), key=lambda each: (each.pipeline, each.build))
    )


def refuse_used(topic: str, users: Iterable[TopicUser], allowed: Iterable[str]) -> None:
    """Raises Conflict if a pipeline uses the topic and is not in `allowed`."""
    names = {each.pipeline for each in users}
    using = [each for each in users if each.pipeline not in set(allowed)]
    if using:
        raise Conflict(
            f"topic {topic} is used: {'; '.join(map(str, using))}",
            hint=f"first retire what uses it: kappa retire {using[0].pipeline}; or: kappa topics "
            f"delete {topic} {' '.join(f'--allow {name}' for name in sorted(names))}",
        )


def _setting_line(found: TopicDescription, name: str, value: str) -> str:
    wanted = found.declared_config.get(name)
    differs = wanted is not None and wanted != value
    return f"  {name}={value}" + (f", declared as {wanted}" if differs else "")


def _topic_users(topic: str, state: State, births: Mapping[str, Birth]) -> Iterator[TopicUser]:
    for build, role in state.roles.items():
        birth = births[build]
        if any(each.name == topic for each in birth.topics):
            yield TopicUser(birth.pipeline, build, role)
        if any(each.topic == topic for each in birth.sinks):
            yield TopicUser(birth.pipeline, build, role, sends=True)
