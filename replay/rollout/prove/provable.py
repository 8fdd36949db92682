"""Whether a proof of a build is possible: code, rules and log are still its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from kappa.base.errors import Broken, NotProvable
from kappa.code.artifact import ensure_unchanged, load_snapshot
from kappa.code.declaration import has_identity
from kappa.code.semantics import SEMANTICS
from kappa.declare.topic_options import TopicKind
from kappa.engine.read.archived import Archives
from kappa.kafka.cluster import TopicFacts
from kappa.records.tombstones import may_be_missed
from kappa.replay.rollout.verify.unsettled import KeyLog
from kappa.state.build import Birth
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.witness import Witnesses
from kappa.tables.archive import ArchiveMark, LogEnds, archived_topics, one_log
from kappa.tables.branch import base_frontier


class ProofLog(KeyLog, LogEnds, Protocol):
    """The part of Kafka's client that a proof needs (kappa/kafka/client.py)."""

    @property
    def bootstrap_servers(self) -> str: ...  # noqa: D102  # as in Log

    def beginning(self, topics: Iterable[str]) -> Offsets: ...  # noqa: D102  # as in Log

    def config(self, name: str) -> Mapping[str, str]: ...  # noqa: D102  # as in Log


def why_not_provable(
    birth: Birth, upto: Offsets, facts: Mapping[str, TopicFacts | None], beginning: Offsets
) -> str | None:
    """Returns why a build at `upto` cannot be folded again from its topics now, or None. Pure."""
    if birth.semantics != SEMANTICS:
        return (
            f"it was folded by Kappa's rules number {birth.semantics}, and they are number "
            f"{SEMANTICS} now"
        )
    for name, born in birth.topic_ids.items():
        found = facts.get(name)
        if found is None:
            return f"topic {name} is gone"
        if found.id != born:
            return (
                f"topic {name} was re-created: its id is {found.id}, and the build has folded "
                f"the one with id {born}"
            )
    for topic, partition, end in upto.items():
        remembers = has_identity(birth.declarations.get(f"topic {topic}", ""))
        # What is remembered of identities follows from all that the tables contain.
        first, begun = (
            beginning.at(topic, partition),
            (birth.origin_offsets if remembers else birth.begins).at(topic, partition),
        )
        if first > begun and end > begun:
            return (
                f"{topic} partition {partition} begins at offset {first} now, and the build "
                f"has folded it from offset {begun} on"
            )
    return None


def _base_too_old(store: Store, log: ProofLog, birth: Birth) -> str | None:
    """Returns why a branch's base cannot be continued for a compacted topic any more, or None."""
    if birth.base is None:
        return None
    read_at, now = base_frontier(store, birth).heard, datetime.now(UTC)
    compacted = (topic.name for topic in birth.topics if topic.kind == TopicKind.COMPACTED)
    return next(
        filter(None, (may_be_missed(name, read_at, log.config(name), now) for name in compacted)),
        None,
    )


def ensure_provable(
    store: Store, log: ProofLog, birth: Birth, upto: Offsets, witnesses: Witnesses
) -> None:
    """Raises NotProvable, with the reason, if a build cannot be folded again up to `upto`.

    `witnesses` are those of its frontier there.
    """
    facts = {name: log.facts(name) for name in birth.topic_ids}
    there = [name for name, found in facts.items() if found is not None]
    beginning = one_log(log.beginning(there), _archived(store, birth)) if there else Offsets()
    why = (
        why_not_provable(birth, upto, facts, beginning)
        or _cut(log, upto, witnesses)
        or _base_too_old(store, log, birth)
    )
    if why is None:
        try:
            ensure_unchanged(store, birth)
        except Broken as error:
            why = error.message
    if why is not None:
        raise NotProvable(
            f"pipeline {birth.pipeline} is not provable: {why}",
            hint=f"kappa replay {birth.pipeline} makes a new build, of which it can be proved",
        )


def _cut(log: ProofLog, upto: Offsets, witnesses: Witnesses) -> str | None:
    """Returns which ends the log has lost since the build folded them, or None."""
    lost = ", ".join(map(str, log.lost_ends(upto, witnesses)))
    return f"the log has lost its end, which the build has folded: {lost}" if lost else None


def _archived(store: Store, birth: Birth) -> tuple[ArchiveMark, ...]:
    """Returns the marks of the archives of a build's topics."""
    if not archived_topics(store):
        return ()
    try:
        return Archives(store, load_snapshot(store, birth).topics, birth.topic_ids).marks()
    except Broken:
        # The reason is reported by `ensure_unchanged`.
        return ()
