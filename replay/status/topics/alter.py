"""Computes the steps of a change of a topic, and the reasons to refuse the change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kappa.base.errors import Conflict, UsageError
from kappa.base.units import count_of
from kappa.declare.topic_options import BROKERS_TIME, TIMESTAMP_TYPE, TopicKind
from kappa.replay.status.topics.describe import TopicDescription


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The settings to set, and the new number of partitions (None if it does not change)."""

    config: Mapping[str, str] = field(default_factory=dict)
    partitions: int | None = None

    def __bool__(self) -> bool:
        return bool(self.config) or self.partitions is not None


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    """Parses settings `NAME=VALUE`. Raises UsageError if a text does not have this form."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"{text!r} is not a setting", hint="write --set retention.ms=-1")
        found[name] = value
    return found


def change_of(
    found: TopicDescription, settings: Mapping[str, str], partitions: int | None
) -> TopicChange:
    """Returns the change from the topic's present settings to the wanted settings.

    The wanted settings are `settings` and `partitions`, or those of the declaration if neither is
    given. Raises UsageError if neither is given and the topic is not declared, or if the number of
    partitions would become smaller. Raises Conflict if keys would move to other partitions, if
    users of the topic would lose records, or if the topic needs the broker's timestamps and would
    lose them.
    """
    if not settings and partitions is None:
        if found.declared is None:
            raise UsageError(
                f"the project declares no topic {found.facts.name}, so there is nothing to set",
                hint="name what to set: --set retention.ms=-1, or --partitions 6",
            )
        settings, partitions = found.declared_config, found.declared.partitions
    change = TopicChange(
        {name: value for name, value in settings.items() if found.config.get(name) != value},
        partitions if partitions != found.facts.partitions else None,
    )
    if change.partitions is not None:
        _refuse_partitions(found, change.partitions)
    _refuse_settings(found, change.config)
    return change


def change_text(found: TopicDescription, change: TopicChange) -> str:
    """Formats the change for display, with one step per line."""
    lines = [
        f"topic {found.facts.name}: {name}={value}, instead of {found.config.get(name, 'default')}"
        for name, value in change.config.items()
    ]
    if change.partitions is not None:
        lines.append(
            f"topic {found.facts.name}: {count_of(change.partitions, 'partition')}, instead of "
            f"{found.facts.partitions}; Kafka cannot take them away again"
        )
    return "".join(f"{line}\n" for line in lines)


def _refuse_partitions(found: TopicDescription, wanted: int) -> None:
    """Raises UsageError for fewer partitions, and Conflict if keys would move.

    If a topic has keys, additional partitions move keys to other partitions. So while builds use
    the topic, the function refuses additional partitions.
    """
    name, there = found.facts.name, found.facts.partitions
    if wanted < there:
        raise UsageError(
            f"topic {name} has {count_of(there, 'partition')}, and Kafka cannot take any away",
            hint=f"declare partitions={there}; or make another topic, and copy the records: "
            f"kappa topics export {name} FILE, kappa topics import OTHER FILE",
        )
    declared = found.declared
    is_keyed = declared is not None and declared.key is not None
    is_sent = any(each.sends for each in found.users)
    if found.users and (is_keyed or is_sent):
        raise Conflict(
            f"topic {name} has {there} partitions by its keys, and {found.users[0]}: with {wanted} "
            "a key's later records would be in another partition than its earlier ones, and have "
            "no order with them",
            hint=f"make another topic with {wanted} partitions, copy the records (kappa topics "
            f"export {name} FILE, kappa topics import OTHER FILE), and let the pipeline read it",
        )


def _refuse_settings(found: TopicDescription, config: Mapping[str, str]) -> None:
    """Raises Conflict if a setting would make users of the topic lose records.

    Also raises Conflict if the topic needs the broker's timestamps, and a setting would replace
    them with the producers' timestamps.
    """
    name = found.facts.name
    policy = config.get("cleanup.policy", "")
    is_sent = any(each.sends for each in found.users)
    is_history = found.declared is not None and found.declared.kind is TopicKind.RETAINED
    if found.users and "compact" in policy and is_history:
        raise Conflict(
            f"topic {name} is declared as retained, and {found.users[0]}: with "
            f"cleanup.policy={policy} Kafka drops all but the latest record of each key",
            hint="declare it as compacted, in another topic",
        )
    if is_sent and policy and policy != "compact":
        raise Conflict(
            f"topic {name} is a sink's, and {found.users[0]}: with cleanup.policy={policy} its "
            "rows would be deleted by their age",
            hint="leave cleanup.policy=compact",
        )
    wanted, time = found.declared_config.get(TIMESTAMP_TYPE), config.get(TIMESTAMP_TYPE)
    if wanted == BROKERS_TIME and time not in {None, BROKERS_TIME}:
        raise Conflict(
            f"topic {name} needs {TIMESTAMP_TYPE}={BROKERS_TIME}: its lateness, its identity or "
            "rows that expire go by the broker's time",
            hint="leave it, or declare the topic without them",
        )
