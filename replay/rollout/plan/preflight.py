"""The parts of the log that are gone, or will be before a replay has read them. Pure.

An unknown fact refuses nothing. What refuses says what to do, and has a name if it may be let
through. A compacted topic that is folded is refused at its declaration (kappa/declare/pipeline.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from kappa.base.units import duration, size
from kappa.declare.pipeline import Pipeline
from kappa.declare.topic import Topic
from kappa.declare.topic_options import (
    BROKERS_TIME,
    SET_BROKERS_TIME,
    TIMESTAMP_TYPE,
    Archive,
    TopicKind,
)
from kappa.replay.rollout.plan.cost import Cost
from kappa.replay.rollout.plan.finding import GAP, Finding
from kappa.replay.rollout.plan.observed import LogFacts
from kappa.replay.rollout.plan.replication import replication
from kappa.state.build import Birth
from kappa.tables.archive import ArchiveMark

_FOR_EVER = -1
# A retention shorter than so many times the replay is close: its time is an estimate.
_CLOSE = 2.0
# The archiver waits a minute for more than a trickle.
_FEW, _SHARE = 10_000, 0.1
# Reading so many takes longer than the start of a replay.
_LONG = 10_000_000


def preflight(
    pipeline: Pipeline, log: LogFacts, cost: Cost, serving: Birth | None
) -> Iterator[Finding]:
    """Yields what blocks a replay, or should be known before it.

    `serving` is the build that serves the pipeline now.
    """
    gaps = []
    archived = {mark.topic for mark in log.archived if _keeps_up(mark, log)}
    for topic in pipeline.topics:
        there = log.partitions.get(topic.name)
        if there is None:
            yield Finding(
                f"topic {topic.name} of pipeline {pipeline.name} is not on the broker",
                f"kappa topics create {topic.name}",
            )
            continue
        yield from _partitions(topic, there, serving)
        if topic.kind is TopicKind.RETAINED:
            lost = [
                f"partition {partition} begins at offset {offset}"
                for _, partition, offset in log.beginning.only({topic.name}).items()
                if offset > 0
            ]
            gaps += [f"{topic.name} {', '.join(lost)}"] if lost else []
        config = log.configs.get(topic.name)
        yield from replication(topic.name, log.brokers, log.replicas.get(topic.name, 0), config)
        if config is not None:
            if pipeline.needs_brokers_time(topic):
                yield from _brokers_time(topic, config.get(TIMESTAMP_TYPE, ""))
            yield from _policy(
                topic, config.get("cleanup.policy", ""), _number(config.get("retention.ms"))
            )
            if topic.archive is not Archive.NONE and topic.name in archived:
                # Else the log has lost its beginning: the archive has what a retention takes.
                continue
            if topic.kind is TopicKind.RETAINED and _number(config.get("retention.bytes")) not in {
                None,
                _FOR_EVER,
            }:
                kept = (
                    f"topic {topic.name} keeps {size(int(config['retention.bytes']))} a "
                    "partition (retention.bytes): a replay, now or later, may miss what came "
                    "before"
                )
                yield Finding(kept, refuses=False)
            yield from _retention(
                topic,
                config.get("cleanup.policy", ""),
                _number(config.get("retention.ms")),
                _number(config.get("delete.retention.ms")),
                cost.seconds,
            )
    if gaps:
        hint = (
            "restore the topic; retention.ms=-1 keeps a history, as kappa topics create sets "
            "it, and so does archive=True, from then on"
        )
        yield Finding(f"{'; '.join(gaps)}: a replay would miss what came before", hint, GAP)
    yield from _cores(pipeline, cost)
    yield from _pace(cost)
    yield from _disk(cost)


def _keeps_up(mark: ArchiveMark, log: LogFacts) -> bool:
    """Returns whether an archive has nearly all of each partition.

    Then it has what a retention takes away next.
    """
    parts = (
        (end, log.beginning.at(topic, partition), mark.end.get(partition, 0))
        for topic, partition, end in log.end.only({mark.topic}).items()
    )
    return all(
        end - max(beginning, reached) <= max(_FEW, _SHARE * (end - beginning))
        for end, beginning, reached in parts
    )


def _partitions(topic: Topic, there: int, serving: Birth | None) -> Iterator[Finding]:
    if there != topic.partitions:
        yield Finding(
            f"topic {topic.name} has {there} partitions, and {topic.source} declares "
            f"{topic.partitions}",
            f"declare partitions={there}",
        )
        return
    before = (
        None
        if serving is None
        else next((each.partitions for each in serving.topics if each.name == topic.name), None)
    )
    if before is not None and before != there:
        assert serving is not None, "it was looked into"
        yield Finding(
            f"topic {topic.name} has {there} partitions, and had {before} when build "
            f"{serving.build} was born: keys may lie elsewhere now",
            refuses=False,
        )


def _brokers_time(topic: Topic, found: str) -> Iterator[Finding]:
    if found not in {"", BROKERS_TIME}:
        declared = " and ".join(
            ["lateness"] * (topic.lateness_ms is not None) + ["identity"] * bool(topic.identity)
        )
        yield Finding(
            f"topic {topic.name} has {TIMESTAMP_TYPE}={found} on the broker, and "
            f"{topic.source} declares {declared} for it, which goes by the broker's time: "
            "what is late or a duplicate would be the producers' word"
            if declared
            else f"topic {topic.name} has {TIMESTAMP_TYPE}={found} on the broker, and rows that "
            "expire go by the broker's time: one record from the future would end them all",
            SET_BROKERS_TIME.format(topic.name),
        )


def _policy(topic: Topic, policy: str, retention_ms: int | None) -> Iterator[Finding]:
    compacts, deletes = "compact" in policy, "delete" in policy
    name = f"policy:{topic.name}"
    if topic.kind is TopicKind.RETAINED and compacts:
        yield Finding(
            f"topic {topic.name} is declared as retained and has cleanup.policy={policy} "
            "on the broker: Kafka drops all but the latest record of each key, and no "
            "replay finds the others",
            "declare kind='compacted', or give the topic cleanup.policy=delete",
            name,
        )
    elif topic.kind is TopicKind.COMPACTED and deletes and retention_ms not in {None, _FOR_EVER}:
        message = (
            f"topic {topic.name} is declared as compacted and has cleanup.policy={policy} on "
            f"the broker: keys older than {_lasting(retention_ms)} are deleted"
        )
        yield Finding(message, "give the topic cleanup.policy=compact", name, refuses=not compacts)
    elif topic.kind is TopicKind.COMPACTED and not compacts and policy:
        yield Finding(
            f"topic {topic.name} is declared as compacted and has cleanup.policy={policy} "
            "on the broker: it is never compacted, and grows for ever",
            refuses=False,
        )


def _retention(
    topic: Topic,
    policy: str,
    retention_ms: int | None,
    tombstone_ms: int | None,
    seconds: float | None,
) -> Iterator[Finding]:
    if topic.kind is TopicKind.COMPACTED:
        what, lasts = "tombstones", tombstone_ms if "compact" in policy else None
        after = "a replay that is slower may miss that a key was deleted"
    else:
        what, lasts = "records", retention_ms if "delete" in policy else None
        after = "a replay, now or later, may miss what came before"
    if lasts is None or lasts == _FOR_EVER:
        return
    setting = "delete.retention.ms" if topic.kind is TopicKind.COMPACTED else "retention.ms"
    kept = f"topic {topic.name} keeps {what} for {_lasting(lasts)} ({setting}={lasts})"
    if seconds is not None and lasts / 1000 < seconds:
        yield Finding(
            f"{kept}, and the replay takes about {duration(seconds)}: {after}",
            f"set {setting} of the topic higher",
            f"retention:{topic.name}",
        )
    elif seconds is not None and lasts / 1000 < _CLOSE * seconds:
        yield Finding(
            f"{kept}, and the replay takes about {duration(seconds)}: that is close", refuses=False
        )
    elif topic.kind is TopicKind.RETAINED:
        yield Finding(f"{kept}: {after}", refuses=False)


def _cores(pipeline: Pipeline, cost: Cost) -> Iterator[Finding]:
    # Other topics are divided among all cores (kappa/records/decode/shares.py).
    for topic in (each for each in pipeline.topics if each.identity):
        read = [each.records for each in cost.partitions if each.topic == topic.name]
        records, parts = sum(read), sum(1 for each in read if each)
        if records >= _LONG and 0 < parts < cost.cores:
            yield Finding(
                f"{records:,} records of topic {topic.name} are in {parts} "
                f"partition{'' if parts == 1 else 's'}, and each is decoded by one core, since the "
                f"topic declares an identity: {cost.cores - parts} of {cost.cores} wait meanwhile",
                refuses=False,
            )


def _pace(cost: Cost) -> Iterator[Finding]:
    if cost.rate is not None and cost.ingest is not None and cost.rate <= cost.ingest:
        message = (
            f"the last replay folded {cost.rate:,.0f} records/s, and {cost.ingest:,.0f}/s came "
            "in during the last hour: it will never catch up"
        )
        yield Finding(
            message,
            "give the replay more (engine.cores, engine.memory, engine.slice_records), or "
            "wait until less comes in",
            "rate",
        )


def _disk(cost: Cost) -> Iterator[Finding]:
    if (
        cost.disk_needed is not None
        and cost.disk_free is not None
        and cost.disk_needed > cost.disk_free
    ):
        message = (
            f"the new build takes about {size(cost.disk_needed)}, and {size(cost.disk_free)} "
            "are free: a full disk stops the build that serves, too"
        )
        yield Finding(message, "make room, or set root in kappa.toml to a larger disk", "disk")


def _lasting(milliseconds: int | None) -> str:
    return "ever" if milliseconds is None else duration(milliseconds / 1000)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
