"""Finds facts that refuse a step, or that the operator should know before the step. Pure.

The findings concern topics and retention, the cluster's replicas, the disk, the time, readers,
code, samples of the log, sinks, circles of pipelines through sinks, and other rollouts. An unknown
fact refuses nothing. A refusal has a hint that explains what to do. If the operator may allow the
finding, the refusal has a name. kappa/declare/pipeline.py refuses pipelines that fold a compacted
topic, so this module need not find them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kappa.base.units import duration, size
from kappa.code.fingerprint import SEMANTICS, changed_parts
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.declare.sink import Sink
from kappa.declare.topic import Topic
from kappa.declare.topic_options import (
    BROKERS_TIME,
    SET_BROKERS_TIME,
    TIMESTAMP_TYPE,
    Archive,
    TopicKind,
)
from kappa.replay.rollout.plan.branch import branch_refusals
from kappa.replay.rollout.plan.cost import Cost
from kappa.replay.rollout.plan.facts import Declared, LogFacts, Observed
from kappa.replay.rollout.plan.finding import BREAKING, GAP, Allowances, Finding, allowing_flag
from kappa.replay.rollout.plan.log_sample import unreadable_findings
from kappa.replay.rollout.plan.plan import PlanStep, Refusal
from kappa.state.build import Birth
from kappa.state.offsets import Offsets
from kappa.tables.archive import ArchiveMark

_FOR_EVER = -1
# A retention shorter than this many times the replay's estimated time is close.
_CLOSE = 2.0
# The archiver waits up to a minute for a few records.
_FEW, _SHARE = 10_000, 0.1
# Reading this many records takes longer than the start of a replay.
_LONG = 10_000_000
_IN_SYNC = "min.insync.replicas"


def judge_step(step: PlanStep, found: tuple[Finding, ...], accepting: Allowances) -> PlanStep:
    """Returns the step, with warnings and with the findings that the operator has accepted.

    A finding that does not refuse the step becomes a warning. A refusing finding is accepted if
    `accepting` allows it; otherwise the step does not contain the finding.
    """
    warnings = tuple(finding.message for finding in found if not finding.refuses)
    accepted = tuple(
        let
        for finding in found
        if finding.refuses and (let := accepting.lets_through(finding)) is not None
    )
    return replace(step, warnings=warnings, accepted=(*step.accepted, *accepted))


def refusals_of(
    step: PlanStep, found: tuple[Finding, ...], accepting: Allowances, *, again: bool
) -> Iterator[Refusal]:
    """Yields a refusal for each refusing finding that `accepting` does not allow.

    `again` is True if the operator requested a replay. In this case, the hint names `kappa replay`
    instead of `kappa deploy`.
    """
    command = (
        f"kappa {'branch' if step.branch is not None else 'replay' if again else 'deploy'} "
        f"{step.pipeline}"
    )
    if step.branch is not None:
        command += f" --from {','.join(str(Offsets.parse(step.branch.base.offsets)).split())}"
    for finding in found:
        if finding.refuses and accepting.lets_through(finding) is None:
            allow = f"allow it: {command} {allowing_flag(finding)}" if finding.name else ""
            yield Refusal(
                step.pipeline,
                finding.message,
                "; or ".join(filter(None, (finding.hint, allow))),
                name=finding.name,
            )


def findings_of(observed: Observed, step: PlanStep, *, again: bool) -> Iterator[Finding]:
    """Yields all findings that refuse a step, or that the operator should know before the step.

    `again` is True if the operator requested a replay.
    """
    declared = observed.declared[step.pipeline]
    if not again:
        yield from _made_anew(observed, step, declared.pipeline)
    if step.replays and step.cost is not None:
        serving = None if step.serving is None else observed.births[step.serving]
        if step.branch is not None and serving is not None:
            yield from branch_refusals(serving, declared, step.branch, observed.log)
        # Records that the log has lost before the branch begins are in the base.
        yield from (
            each
            for each in preflight_findings(declared.pipeline, observed.log, step.cost, serving)
            if step.branch is None or each.name != GAP
        )
        for sample in step.samples:
            yield from unreadable_findings(
                sample,
                most=observed.max_unreadable,
                is_read_as_before=serving is not None
                and not _is_redeclared(sample.topic, serving, declared),
            )
        yield from declared.doubtful
    if step.acts:
        yield from _sink_findings(declared.pipeline, observed.log)
    breaking = [change.text for change in step.readers if change.breaking]
    if step.acts and breaking:
        yield Finding(
            f"what reads the tables of {step.pipeline} may break: {'; '.join(breaking)}",
            name=BREAKING,
        )


def _is_redeclared(topic: str, born: Birth, declared: Declared) -> bool:
    """Returns True if the rules for rejecting a topic's records have changed since a build began.

    `born` is the build's birth certificate. The rules change if the topic's declaration or Kappa's
    own rules change. Then a replay may reject records that the build has accepted, or accept
    records that the build has rejected.
    """
    return (
        f"topic {topic}" in changed_parts(born.parts, declared.parts) or born.semantics != SEMANTICS
    )


def _made_anew(observed: Observed, step: PlanStep, pipeline: Pipeline) -> Iterator[Finding]:
    for build in dict.fromkeys(build for build in (step.serving, step.build) if build is not None):
        for topic in pipeline.topics:
            before, there = (
                observed.births[build].topic_ids.get(topic.name),
                observed.log.ids.get(topic.name),
            )
            if before is not None and there is not None and before != there:
                message = (
                    f"topic {topic.name} was deleted and created again since build {build} was "
                    f"born: what it held then is in build {build} alone"
                )
                yield Finding(
                    message, f"build from the topic that is there now: kappa replay {step.pipeline}"
                )
                return


def conflicts_of(observed: Observed, step: PlanStep) -> Iterator[Refusal]:
    """Yields the refusals that other rollouts, pauses, or table names of other pipelines cause."""
    if not step.acts:
        return
    name, state, declared = step.pipeline, observed.state, observed.declared[step.pipeline]
    if step.rollout is not None:
        yield Refusal(
            name,
            f"rollout {step.rollout.number} of pipeline {name} is on its way: build "
            f"{step.rollout.build}, begun by {step.rollout.by}",
            f"wait for it: kappa status -w; or end it: kappa abandon {name}",
            conflict=True,
        )
    if name in state.paused:
        yield Refusal(
            name,
            f"pipeline {name} is {state.paused[name].text}",
            f"resume it first: kappa resume {name}",
        )
    written = (
        {table.name for table in declared.tables} | {view.name for view in declared.pipeline.views}
    ) - {REJECTS}
    others = {
        **state.serving,
        **{rollout.pipeline: rollout.build for rollout in state.active_rollouts},
    }
    topics = {sink.name for sink in declared.pipeline.sinks}
    for other, build in sorted(others.items()):
        sent = sorted(topics & {sink.topic for sink in observed.births[build].sinks})
        if other != name and sent:
            yield Refusal(
                name,
                f"sink {sent[0]} is of pipeline {other} (build {build})",
                f"give it another topic in pipeline {name}, or deploy {other} without it first",
            )
        shared = sorted(written & set(observed.births[build].public_names))
        if other != name and shared:
            yield Refusal(
                name,
                f"{shared[0]} is served by pipeline {other} (build {build})",
                f"give it another name in pipeline {name}, or deploy {other} without it first",
            )


def preflight_findings(
    pipeline: Pipeline, log: LogFacts, cost: Cost, serving: Birth | None
) -> Iterator[Finding]:
    """Yields the findings about topics, cores, rates and the disk that concern a replay.

    `serving` is the birth certificate of the build that serves the pipeline now, or None.
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
        yield from _partition_findings(topic, there, serving)
        if topic.kind is TopicKind.RETAINED:
            lost = [
                f"partition {partition} begins at offset {offset}"
                for _, partition, offset in log.beginning.only({topic.name}).items()
                if offset > 0
            ]
            gaps += [f"{topic.name} {', '.join(lost)}"] if lost else []
        config = log.configs.get(topic.name)
        yield from replication_findings(
            topic.name, log.brokers, log.replicas.get(topic.name, 0), config
        )
        if config is not None:
            if pipeline.needs_brokers_time(topic):
                yield from _broker_time_findings(topic, config.get(TIMESTAMP_TYPE, ""))
            yield from _policy_findings(
                topic, config.get("cleanup.policy", ""), _parsed_number(config.get("retention.ms"))
            )
            if topic.archive is not Archive.NONE and topic.name in archived:
                # The archive has the records that a retention deletes.
                continue
            if topic.kind is TopicKind.RETAINED and _parsed_number(
                config.get("retention.bytes")
            ) not in {
                None,
                _FOR_EVER,
            }:
                kept = (
                    f"topic {topic.name} keeps {size(int(config['retention.bytes']))} a "
                    "partition (retention.bytes): a replay, now or later, may miss what came "
                    "before"
                )
                yield Finding(kept, refuses=False)
            yield from _retention_findings(
                topic,
                config.get("cleanup.policy", ""),
                _parsed_number(config.get("retention.ms")),
                _parsed_number(config.get("delete.retention.ms")),
                cost.seconds,
            )
    if gaps:
        hint = (
            "restore the topic; retention.ms=-1 keeps a history, as kappa topics create sets "
            "it, and so does archive=True, from then on"
        )
        yield Finding(f"{'; '.join(gaps)}: a replay would miss what came before", hint, GAP)
    yield from _core_findings(pipeline, cost)
    yield from _pace_findings(cost)
    yield from _disk_findings(cost)


def _keeps_up(mark: ArchiveMark, log: LogFacts) -> bool:
    """Returns True if nearly all records of each partition are in the archive.

    Then the archiver is fast enough to archive each record before the topic's retention deletes it.
    """
    parts = (
        (end, log.beginning.at(topic, partition), mark.end.get(partition, 0))
        for topic, partition, end in log.end.only({mark.topic}).items()
    )
    return all(
        end - max(beginning, reached) <= max(_FEW, _SHARE * (end - beginning))
        for end, beginning, reached in parts
    )


def _partition_findings(topic: Topic, there: int, serving: Birth | None) -> Iterator[Finding]:
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


def _broker_time_findings(topic: Topic, found: str) -> Iterator[Finding]:
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


def _policy_findings(topic: Topic, policy: str, retention_ms: int | None) -> Iterator[Finding]:
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
            f"the broker: keys older than {_lasting_text(retention_ms)} are deleted"
        )
        yield Finding(message, "give the topic cleanup.policy=compact", name, refuses=not compacts)
    elif topic.kind is TopicKind.COMPACTED and not compacts and policy:
        yield Finding(
            f"topic {topic.name} is declared as compacted and has cleanup.policy={policy} "
            "on the broker: it is never compacted, and grows for ever",
            refuses=False,
        )


def _retention_findings(
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
    kept = f"topic {topic.name} keeps {what} for {_lasting_text(lasts)} ({setting}={lasts})"
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


def _core_findings(pipeline: Pipeline, cost: Cost) -> Iterator[Finding]:
    # Other topics are divided among all cores (kappa/records/decode/parquet_decoder.py).
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


def _pace_findings(cost: Cost) -> Iterator[Finding]:
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


def _disk_findings(cost: Cost) -> Iterator[Finding]:
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


def _lasting_text(milliseconds: int | None) -> str:
    return "ever" if milliseconds is None else duration(milliseconds / 1000)


def _parsed_number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _sink_findings(pipeline: Pipeline, log: LogFacts) -> Iterator[Finding]:
    """Yields findings about the existing topics of a pipeline's sinks."""
    for sink in pipeline.sinks:
        there = log.partitions.get(sink.name)
        if there is None:
            continue
        policy = log.configs.get(sink.name, {}).get("cleanup.policy", "compact")
        if policy != "compact":
            yield Finding(
                f"topic {sink.name} has cleanup.policy={policy} on the broker, and "
                f"{sink.source} declares it as a sink: rows would be deleted by their age",
                "give the topic cleanup.policy=compact, or the sink another topic",
                _sink_finding_name(sink),
            )
        if sink.name in log.others:
            yield Finding(
                f"topic {sink.name} has records that no sink has sent: the sink of {sink.source} "
                "deletes the keys that its table lacks",
                "give the sink a topic of its own",
                _sink_finding_name(sink),
            )
        if there != sink.partitions:
            yield Finding(
                f"topic {sink.name} has {there} partitions, and {sink.source} declares "
                f"{sink.partitions}",
                f"declare partitions={there}",
            )


def _sink_finding_name(sink: Sink) -> str:
    """Returns the name by which the operator can allow a finding about a sink's topic."""
    return f"sink:{sink.name}"


def least_brokers(up: int, replicas: Iterable[int]) -> int:
    """Returns a lower bound for the number of brokers in a cluster.

    `up` is the number of brokers that are up. `replicas` contains the number of replicas of each
    topic. Each replica of a partition is on a different broker, so a cluster has at least that many
    brokers, including brokers that are down.
    """
    return max(up, *replicas, 0)


def replication_findings(
    topic: str, brokers: int, replicas: int, config: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Yields findings about a topic whose records could be lost or refused if one broker fails.

    `brokers` is the number of brokers in the cluster, `replicas` is the number of replicas of each
    partition (0 if unknown), and `config` contains the topic's settings. There is no finding if
    facts are unknown, or if the cluster has a single broker.
    """
    if brokers < 2 or not replicas:
        return
    name, on = f"replication:{topic}", f"in a cluster of {brokers} brokers"
    in_sync = (config or {}).get(_IN_SYNC, "")
    if replicas < 2:
        yield Finding(
            f"topic {topic} has one replica of each partition {on}: if a broker loses its disk, "
            "that part of the log is gone, and no replay finds it",
            "give it more by Kafka's kafka-reassign-partitions.sh: docs/howto/runbook.md",
            name,
        )
    elif in_sync == "1":
        yield Finding(
            f"topic {topic} has {_IN_SYNC}=1 {on}: a record that one broker alone has is "
            "acknowledged, and if that one is lost, so is the record",
            f"kappa topics alter {topic} --set {_IN_SYNC}=2",
            name,
        )
    elif in_sync.isdecimal() and int(in_sync) >= replicas:
        yield Finding(
            f"topic {topic} has {replicas} replicas and {_IN_SYNC}={in_sync}: while any of its "
            "brokers is away, nothing can be produced to it",
            refuses=False,
        )


@dataclass(frozen=True, slots=True)
class TopicUse:
    """The topics of a pipeline: the topics that it reads, and the topics of its sinks."""

    reads: frozenset[str] = frozenset()
    sends: frozenset[str] = frozenset()


def topic_uses(observed: Observed) -> Mapping[str, TopicUse]:
    """Returns the topics that each pipeline reads, and the topics to which its sinks send.

    For a pipeline that the project no longer declares, these are the topics of its builds that
    serve or are in a rollout.
    """
    state = observed.state
    found = dict[str, TopicUse]()
    for build in (*state.serving.values(), *(each.build for each in state.active_rollouts)):
        birth = observed.births[build]
        before = found.get(birth.pipeline, TopicUse())
        found[birth.pipeline] = TopicUse(
            before.reads | {topic.name for topic in birth.topics},
            before.sends | {sink.topic for sink in birth.sinks},
        )
    return {**found, **declared_uses(observed.declared)}


def declared_uses(declared: Mapping[str, Declared]) -> Mapping[str, TopicUse]:
    """Returns the topics that each declared pipeline reads, and the topics of its sinks."""
    return {
        name: TopicUse(
            frozenset(topic.name for topic in each.pipeline.topics),
            frozenset(sink.name for sink in each.pipeline.sinks),
        )
        for name, each in declared.items()
    }


def circle_refusals(observed: Observed, step: PlanStep) -> Iterator[Refusal]:
    """Yields a refusal if the pipeline of a step would read changes that its own sinks send.

    The changes may pass through other pipelines.
    """
    if step.acts:
        hint = "; what serves counts until a deploy of {}"
        yield from refused_circle(step.pipeline, topic_uses(observed), hint)


def refused_circle(
    pipeline: str, uses: Mapping[str, TopicUse], more: str = ""
) -> Iterator[Refusal]:
    """Yields a refusal if a pipeline would read changes that its own sinks send.

    The changes may pass through other pipelines; these pipelines and their topics form a circle.
    `uses` maps each pipeline to the topics that it reads and sends to. `more` is appended to the
    hint of the refusal; `{}` in `more` is replaced with the last pipeline of the circle.
    """
    found = circle_through(pipeline, uses)
    if not found:
        return
    way = "; ".join(
        f"{name} sends {topic}, which {reader} reads"
        for (name, topic), (reader, _) in zip(found, (*found[1:], found[0]), strict=True)
    )
    first, last = found[0], found[-1]
    yield Refusal(
        pipeline,
        f"pipeline {pipeline} reads what it changes itself: {way}. Each change would cause "
        "another, without end",
        f"let {first[0]} not read {last[1]}, or give the sink of {last[0]} another topic"
        f"{more.format(last[0])}",
    )


def circle_through(pipeline: str, uses: Mapping[str, TopicUse]) -> tuple[tuple[str, str], ...]:
    """Returns the shortest circle of pipelines that begins and ends at `pipeline`.

    Each element is (pipeline, topic): this pipeline sends to the topic, and the pipeline of the
    next element reads the topic. Returns () if there is no circle.
    """
    nothing = TopicUse()
    ways: deque[tuple[str, tuple[tuple[str, str], ...]]] = deque([(pipeline, ())])
    known = set[str]()
    while ways:
        at, way = ways.popleft()
        for topic in sorted(uses.get(at, nothing).sends):
            for reader in sorted(name for name, use in uses.items() if topic in use.reads):
                if reader == pipeline:
                    return (*way, (at, topic))
                if reader not in known:
                    known.add(reader)
                    ways.append((reader, (*way, (at, topic))))
    return ()
