"""Gathers a plan's facts from project, journal, log and disk.

Only caches are changed. If a fact cannot be obtained, the field for this fact is left empty. But an
unreachable broker is an error, because no plan can be made without the log.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from kappa.base.errors import DeclarationError, KappaError, Unreachable
from kappa.base.process import cores_here
from kappa.base.sections import RegistrySettings
from kappa.base.settings import Settings
from kappa.base.sql import quoted
from kappa.code.code_snapshot import read_snapshot
from kappa.declare.formats.topic_formats import pin_of
from kappa.declare.pipeline import Pipeline
from kappa.declare.reject_limit import rejected_of
from kappa.declare.sink import Sink
from kappa.declare.topic import Topic
from kappa.declare.topic_patterns import matching_topics
from kappa.engine.spark.cluster import cluster_of
from kappa.kafka.broker.broker import partition_bytes
from kappa.kafka.client import TopicFacts
from kappa.replay.rollout.fold import fold_records
from kappa.replay.rollout.libraries import installed_libraries
from kappa.replay.rollout.plan.cost import last_replays
from kappa.replay.rollout.plan.declared_pipelines import describe_declared_pipelines
from kappa.replay.rollout.plan.facts import Declared, DiskFacts, LogFacts, Observed, has_its_rows
from kappa.replay.rollout.plan.log_sample import read_samples
from kappa.replay.rollout.plan.preflight import least_brokers
from kappa.replay.rollout.state import State
from kappa.serving.outlets.sinks.sink_status import read_sink_state
from kappa.state.build import Birth, read_birth, tables_folder
from kappa.state.disk_space import free_bytes
from kappa.state.files.address import entries_at
from kappa.state.frontier import Frontiers
from kappa.state.journal.journal import JournalView
from kappa.state.kept_frontiers import shown_frontiers
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.tables.archive import ArchiveMark, archived_topics, one_log

if TYPE_CHECKING:
    from kappa.kafka.client import Log

_HOUR_MS = 3_600_000
# A plan waits no longer for one answer, since the newest version may be unknown.
_MOST_SECONDS = 2.0


def gather_facts(
    settings: Settings,
    store: Store,
    log: Log,
    *,
    only: Collection[str] = (),
    show: Callable[[str], None] = lambda _step: None,
) -> Observed:
    """Returns the facts of the project, the journal, the log and the disk.

    `only` names the pipelines to describe; if it is empty, all pipelines are described. `show` is
    called at the beginning of each slow step, with a description of the step. Raises the errors of
    `describe_declared_pipelines`, and Unreachable if the broker does not answer.
    """
    records = JournalView(store).records()
    state = fold_records(records)
    births = {build: read_birth(store, build) for build in state.wanted_builds()}
    names, found, unloadable = describe_declared_pipelines(settings, store, only, show=show)
    declared = {name: each for name, each in found.items() if isinstance(each, Declared)}
    serving = {name: build for name, build in state.serving.items() if name in declared}
    show("reads topics")
    facts = _log_facts(
        settings,
        store,
        log,
        {name: each.pipeline for name, each in declared.items()},
        frozenset(sink.topic for birth in births.values() for sink in birth.sinks),
    )
    replayed = {
        topic.name: topic
        for name, each in declared.items()
        if _is_new(each, name, state, births)
        for topic in each.pipeline.topics
    }
    show("reads a sample of the topics, and sizes")
    return Observed(
        names=names,
        declared=declared,
        state=state,
        births=births,
        log=facts,
        refused={name: each for name, each in found.items() if isinstance(each, DeclarationError)},
        snapshots={build: read_snapshot(store, births[build]) for build in serving.values()},
        replays=last_replays(records, functools.partial(_build_origin, store)),
        disk=_disk_facts(store, state, births),
        libraries=installed_libraries(),
        samples=read_samples(
            log,
            replayed.values(),
            facts.topics_beginning,
            facts.end,
            at_each_place=settings.plan.sample_records,
        )
        if settings.plan.sample_records
        else {},
        max_unreadable=settings.plan.max_unreadable,
        rejected={
            build: rejected_of(frontier.tally)[0]
            for build in serving.values()
            if (frontier := Frontiers(store, build).newest()) is not None
        },
        shown={build: shown_frontiers(store, build) for build in serving.values()},
        rows={
            sink.name: count
            for name, build in serving.items()
            for sink in declared[name].pipeline.sinks
            if sink.name not in {each.topic for each in births[build].sinks}
            and (count := _sink_rows(store, sink)) is not None
        },
        subjects=pinned_subjects(settings.registry, (each.pipeline for each in declared.values())),
        cores=_replay_cores(settings),
        unloadable=unloadable,
        law_seconds=settings.verify.law_seconds if settings.verify.law_records else 0.0,
    )


def _replay_cores(settings: Settings) -> int:
    """Returns the number of cores that a replay may use, or 0 if unknown."""
    cluster = cluster_of(settings)
    return cluster.cores if cluster is not None else settings.engine.cores or cores_here()


def _is_new(declared: Declared, name: str, state: State, births: Mapping[str, Birth]) -> bool:
    """Returns True if a deploy would replay a pipeline.

    No replay is needed if a serving or idle build has the declared version, or if the serving build
    has the same rows.
    """
    serving, idle = (
        None if build is None else births[build]
        for build in (state.serving.get(name), state.idle.get(name))
    )
    versions = {born.version for born in (serving, idle) if born is not None}
    return declared.version not in versions and not (
        serving is not None and has_its_rows(declared, serving)
    )


def _log_facts(
    settings: Settings,
    store: Store,
    log: Log,
    wanted: Mapping[str, Pipeline],
    served_sinks: frozenset[str],
) -> LogFacts:
    there = log.topics() if wanted else {}
    names = sorted(
        {
            topic.name
            for pipeline in wanted.values()
            for topic in pipeline.topics
            if topic.name in there
        }
    )
    _ensure_seen(log, wanted, there)
    sinks = {sink.name for pipeline in wanted.values() for sink in pipeline.sinks} & there.keys()
    known = sorted({*names, *sinks})
    facts = [there[name] for name in names]
    beginning = log.beginning(names)
    archived = _archive_marks(store, wanted, {each.name: each.id for each in facts})
    return LogFacts(
        ids={each.name: each.id for each in facts},
        partitions={name: there[name].partitions for name in known},
        beginning=one_log(beginning, archived),
        end=log.end(names),
        hour_ago=_hour_ago(log, names),
        configs={
            name: config for name in known if (config := _topic_config(log, name)) is not None
        },
        # No client library knows what a partition takes on disk; of our own broker the disk is
        # ours to look at.
        bytes=partition_bytes(store.local.folder, names) if settings.runs_broker else {},
        archived=archived,
        topics_beginning=beginning,
        others=frozenset(name for name in sinks if _has_others(store, log, name)),
        waiting={
            each.name: left
            for pipeline in wanted.values()
            for each in pipeline.patterns
            if (left := _waiting_topics(each, there, sinks | served_sinks))
        },
        brokers=(
            least_brokers(log.brokers(), (each.replicas for each in there.values())) if facts else 1
        ),
        replicas={each.name: each.replicas for each in facts},
    )


def _waiting_topics(
    pattern: Topic, there: Iterable[str], sinks: Collection[str]
) -> tuple[str, ...]:
    known = {each.name for each in pattern.joined}
    return tuple(name for name in matching_topics(pattern.name, there, sinks) if name not in known)


def _ensure_seen(log: Log, wanted: Mapping[str, Pipeline], there: Mapping[str, TopicFacts]) -> None:
    """Raises AclMissing if this client may not see a declared topic.

    `there` are the topics that the broker lists for this client.
    """
    for pipeline in wanted.values():
        for topic in pipeline.topics:
            if topic.name not in there:
                log.facts(topic.name)


def _archive_marks(
    store: Store, wanted: Mapping[str, Pipeline], topic_ids: Mapping[str, str]
) -> tuple[ArchiveMark, ...]:
    if not archived_topics(store):
        return ()
    from kappa.engine.read.archive_reader import Archives  # noqa: PLC0415  # it takes Arrow, which most plans do without

    topics = {topic.name: topic for pipeline in wanted.values() for topic in pipeline.topics}
    return Archives(store, topics.values(), topic_ids).marks()


def _hour_ago(log: Log, names: list[str]) -> Offsets | None:
    try:
        return log.at_time(names, int(time.time() * 1000) - _HOUR_MS)
    except Unreachable:
        raise
    except KappaError:
        return None


def _topic_config(log: Log, name: str) -> Mapping[str, str] | None:
    try:
        return log.config(name)
    except Unreachable:
        raise
    except KappaError:
        # A client that may read a topic may still not be allowed to read the topic's settings.
        return None


def _disk_facts(store: Store, state: State, births: Mapping[str, Birth]) -> DiskFacts:
    builds = {}
    for build in state.serving.values():
        frontier = Frontiers(store, build).newest()
        if frontier is not None:
            builds[build] = (
                _bytes_of(store, build),
                frontier.offsets.distance(births[build].origin_offsets),
            )
    return DiskFacts(free_bytes(store) if store.is_on_disk else None, builds)


def _bytes_of(store: Store, build: str) -> int:
    tables = entries_at(store.address(f"{tables_folder(store, build)}/tables"))
    return sum(each.size for each in tables)


def _has_others(store: Store, log: Log, topic: str) -> bool:
    """Returns True if a topic contains records, although no sink of this root has ever sent one."""
    known = read_sink_state(store, topic)
    return (known is None or not known.written) and log.end([topic]) != log.beginning([topic])


def _sink_rows(store: Store, sink: Sink) -> int | None:
    from kappa.serving.query.query import answer_query  # noqa: PLC0415  # it takes DuckDB, which most plans do without

    condition = "" if sink.where is None else f" where (\n{sink.where}\n)"
    try:
        found = answer_query(store, f"select count(*) from {quoted(sink.of)}{condition}")
    except KappaError:
        # The table is as new as the sink.
        return None
    return int(found.rows[0][0])


def _build_origin(store: Store, build: str) -> Offsets | None:
    try:
        return read_birth(store, build).begins
    except KappaError:
        return None


def pinned_subjects(
    settings: RegistrySettings, pipelines: Iterable[Pipeline]
) -> Mapping[str, tuple[int, int | None]]:
    """Returns the pinned and the newest version of each subject that the pipelines use.

    The newest version is None if the registry does not answer. Returns an empty mapping if the
    project has no registry.
    """
    pins = {
        pin.subject: pin.version
        for pipeline in pipelines
        for topic in pipeline.topics
        for form in topic.record_formats
        if (pin := pin_of(form)) is not None
    }
    if not pins or settings.url is None:
        return {}
    from kappa.kafka.registry import RegistryClient  # noqa: PLC0415  # most plans do without

    quick = structs.replace(settings, timeout_seconds=min(settings.timeout_seconds, _MOST_SECONDS))
    found: dict[str, tuple[int, int | None]] = {
        subject: (pinned, None) for subject, pinned in pins.items()
    }
    try:
        client = RegistryClient(quick)
        for subject, pinned in pins.items():
            found[subject] = (pinned, client.newest(subject))
    except KappaError:
        # A registry that is away is waited for once.
        return found
    return found
