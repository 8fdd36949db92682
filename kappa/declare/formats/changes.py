"""The rules for topics of changes at a source. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kappa.base.errors import DeclarationError
from kappa.base.source import Source
from kappa.declare.formats.debezium.changes import Debezium
from kappa.declare.formats.debezium.facts import IDENTITY, KEY
from kappa.declare.topic_kind import TopicKind


def check_changes(
    source: Source,
    topic: str,
    form: Debezium,
    kind: str,
    identity: Sequence[str],
    lateness_ms: int | None,
    *,
    archive: str,
    key: str | None,
    keyed: bool,
) -> None:
    """Raises DeclarationError if changes of rows cannot be read so."""
    if keyed:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and a key_format: their format reads "
            "their keys, too",
            hint="leave key_format out",
        )
    if lateness_ms is not None:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and a lateness: without a late change "
            "the rows would not be those of their source",
            hint="leave lateness and event_time out",
        )
    if archive != "none":
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows, which have no archive yet",
            hint="leave archive out",
        )
    facts = dict(form.facts)
    if facts.get(key or "", KEY) != KEY:
        raise DeclarationError(
            f"{source}: topic {topic} has the key {key}, which is a fact of the change, and no "
            "column of the row",
            hint="name the row's key column; one of several columns is change_key",
        )
    if identity and (len(identity) > 1 or facts.get(identity[0]) != IDENTITY):
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and the identity {', '.join(identity)}: "
            "a change is known by its own identity alone, for a truncation has no row",
            hint='add a column change_id string not null to event, and say identity="change_id"',
        )
    if kind == TopicKind.RETAINED and not identity and not form.exactly_once:
        raise DeclarationError(
            f"{source}: topic {topic} has changes of rows and no identity, and Debezium repeats "
            "changes after a crash",
            hint="add a column change_id string not null to event, and say "
            'identity="change_id", identity_horizon="1 day" (longer than Debezium may be away); '
            "or format=Debezium(exactly_once=True), if Kafka Connect writes each change once",
        )


def check_operation(
    source: Source, pipeline: str, topic: str, form: Debezium, names: set[str]
) -> None:
    """Raises DeclarationError unless a function can tell deletions among a topic's changes."""
    if not form.tells_operation & names:
        tells = min(form.tells_operation)
        raise DeclarationError(
            f"{source}: pipeline {pipeline} takes the changes of topic {topic}, and nothing tells "
            "it which of them delete a row",
            hint=f"add a column {tells} string not null to the topic's event; or take the rows "
            "alone, by Table(..., latest=...)",
        )
