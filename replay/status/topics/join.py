"""Determines the topics of a pattern: topics that match now, and topics that joined before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kappa.base.errors import UsageError
from kappa.declare.topic import Topic
from kappa.declare.topic_patterns import JoinedTopic, JoinedTopics, matching_topics
from kappa.kafka.client import TopicFacts


class Joining(StrEnum):
    """The change of a topic's membership in a pattern."""

    JOINS = "joins"
    STAYS = "stays"
    PARTITIONS = "stays, with other partitions"
    MISSING = "stays, and is not on the broker"
    LEAVES = "leaves"


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of joining topics to a pattern.

    `topics` are the joined topics afterwards. `became` maps the name of each topic to what happened
    to the topic, such as joining or leaving.
    """

    topics: JoinedTopics
    became: Mapping[str, Joining]


def join_topics(
    pattern: Topic,
    there: Mapping[str, TopicFacts],
    sinks: Collection[str],
    leaving: Iterable[str] = (),
) -> JoinResult:
    """Returns the topics of a pattern: topics that have joined before, and topics that match now.

    `there` are the topics on the broker. `sinks` are the topics of sinks, which never match.
    `leaving` are topics to leave out. Raises UsageError if a topic in `leaving` neither has joined
    nor matches, or if no topic remains for the pattern.
    """
    left = frozenset(leaving)
    before = {each.name: each for each in pattern.joined}
    found = {name: there[name].partitions for name in matching_topics(pattern.name, there, sinks)}
    for name in sorted(left - before.keys() - found.keys()):
        raise UsageError(
            f"topic {name} does not match the pattern {pattern.name}",
            hint=f"it has {', '.join(before) or 'none'}",
        )
    became = {
        name: _joining_of(before.get(name), found.get(name), leaves=name in left)
        for name in sorted(before.keys() | found.keys())
        if name in before or name not in left
    }
    topics = tuple(
        JoinedTopic(name, found.get(name, before[name].partitions if name in before else 0))
        for name, joining in became.items()
        if joining is not Joining.LEAVES
    )
    if not topics:
        raise UsageError(
            f"the pattern {pattern.name} matches no topic of the broker",
            hint="see: kappa topics list; internal topics and those of sinks never match",
        )
    return JoinResult(JoinedTopics(pattern.name, topics), became)


def _joining_of(before: JoinedTopic | None, partitions: int | None, *, leaves: bool) -> Joining:
    if leaves:
        return Joining.LEAVES
    if before is None:
        return Joining.JOINS
    if partitions is None:
        return Joining.MISSING
    return Joining.STAYS if partitions == before.partitions else Joining.PARTITIONS
