"""The plan: what the declared pipelines are beside what serves, what has to be replayed, and what stands in the way.

`make_plan` is pure; `observe` gathers what it looks at and changes nothing. `kappa plan` prints the steps, and stage.py
walks the same ones.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kappa.artifact import snapshot_files
from kappa.build import Birth, TableBirth, TopicBirth, read_birth
from kappa.errors import Conflict, KappaError, UsageError
from kappa.fingerprint import differences, fingerprint
from kappa.journal import Journal
from kappa.offsets import Offsets
from kappa.outputs import Described, learn_outputs
from kappa.pipeline import Pipeline
from kappa.project import load_project
from kappa.settings import Settings
from kappa.shape import table_births
from kappa.store import Store
from kappa.table import REJECTS
from kappa.topic import Topic, TopicKind
from replay.rollout import Rollout, State, fold

if TYPE_CHECKING:
    from kappa.log.client import Log


class Change(StrEnum):
    """What a pipeline of the project is, beside what serves."""

    NEW = "new"
    CHANGED = "changed"
    AGAIN = "again"
    KEPT = "kept"
    SAME = "same"
    GONE = "gone"


_REPLAYED = frozenset({Change.NEW, Change.CHANGED, Change.AGAIN})


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline as the project declares it now: its version, the tables a build of it would have, and the files it needs."""

    pipeline: Pipeline
    module: str
    version: str
    parts: Mapping[str, str]
    tables: tuple[TableBirth, ...]
    files: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the broker knows of the topics that are declared and there."""

    ids: Mapping[str, str]
    partitions: Mapping[str, int]
    beginning: Offsets
    end: Offsets


@dataclass(frozen=True, slots=True)
class Observed:
    """What a plan is made of. `names` are all declared pipelines, `declared` those that are looked at."""

    names: frozenset[str]
    declared: Mapping[str, Declared]
    state: State
    births: Mapping[str, Birth]
    log: LogFacts


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a step cannot be walked. `conflict`: another rollout is in the way, and it will not be for ever."""

    pipeline: str
    message: str
    hint: str
    conflict: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """What a deploy does with one pipeline.

    `build` is the one concerned: of a kept version the build that will serve again, else the one that serves now.
    `declared`, `topics` and `origin` are what a new build is made of; `readers` says what those of its tables will miss.
    """

    pipeline: str
    change: Change
    version: str
    serving: str | None
    build: str | None
    reasons: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    records: int = 0
    rollout: Rollout | None = None
    declared: Declared | None = None
    topics: tuple[TopicBirth, ...] = ()
    origin: Offsets = field(default_factory=Offsets)

    @property
    def acts(self) -> bool:
        """True where a deploy does something."""
        return self.change in _REPLAYED or self.change is Change.KEPT

    @property
    def replays(self) -> bool:
        """True where a deploy makes a new build, from the log's beginning."""
        return self.change in _REPLAYED

    @property
    def text(self) -> str:
        """The step in one line."""
        underway = f"; rollout {self.rollout.number} of build {self.rollout.build} is {self.rollout.phase}" if self.rollout else ""
        return f"{self.pipeline}: {self._change()}{underway}"

    def _change(self) -> str:
        because = ", ".join(self.reasons)
        match self.change:
            case Change.NEW:
                return f"new (version {self.version}), {self.records:,} records to replay"
            case Change.CHANGED:
                return f"changed to version {self.version} ({because}), {self.records:,} records to replay"
            case Change.AGAIN:
                return f"once more (version {self.version}, {because}), {self.records:,} records to replay"
            case Change.KEPT:
                return f"changed to version {self.version}, which build {self.build} still holds: it will serve again, without a replay"
            case Change.SAME:
                return f"unchanged (version {self.version}, build {self.build})"
            case Change.GONE:
                return f"no longer declared; build {self.build} goes on serving"


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a deploy, and what refuses it. It holds for the journal as it was at record `looked_at`."""

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    looked_at: int
    generation: int

    @property
    def has_changes(self) -> bool:
        """True where a deploy would do something."""
        return any(step.acts for step in self.steps)

    def ensure_possible(self) -> None:
        """Raises for the first refusal: Conflict where another rollout is in the way, else KappaError."""
        for refusal in self.refusals:
            raise (Conflict if refusal.conflict else KappaError)(refusal.message, hint=refusal.hint)


def make_plan(observed: Observed, *, only: str | None = None, again: bool = False) -> Plan:
    """The plan for all pipelines, or `only` one. `again` makes a new build whatever the version (`kappa replay PIPELINE`).

    Raises UsageError where `only` names no pipeline of the project.
    """
    if only is not None and only not in observed.names:
        near = difflib.get_close_matches(only, observed.names, n=1)
        known = f"there are {', '.join(sorted(observed.names))}" if observed.names else "there are none in pipelines/"
        raise UsageError(f"there is no pipeline {only} in this project", hint=f"did you mean {near[0]}?" if near else known)
    wanted = sorted(observed.declared) if only is None else [only]
    steps = [_step(observed, observed.declared[name], again=again) for name in wanted]
    refusals = [refusal for step in steps for refusal in _refusals(observed, step, again=again)]
    if only is None:
        gone = sorted(observed.state.serving.keys() - observed.names)
        steps += [_gone(observed, name) for name in gone]
    return Plan(tuple(steps), tuple(refusals), observed.state.last, observed.state.generation)


def observe(settings: Settings, store: Store, log: Log, *, only: str | None = None) -> Observed:
    """Looks at the project, the journal and the log, and changes nothing but the cache of described pipelines.

    `only` leaves the other pipelines undescribed. Raises DeclarationError for what is wrong in the user's files.
    """
    state = fold(Journal(store).after(0))
    project = load_project(settings.project)
    find = functools.cache(project.sources.find)
    wanted = {name: pipeline for name, pipeline in project.pipelines.items() if only in {None, name}}
    prints = {name: fingerprint(pipeline, project.places[name].module, project.places[name].attribute, find) for name, pipeline in wanted.items()}
    described = {name: Described(pipeline, project.places[name].module, prints[name].version) for name, pipeline in wanted.items()}
    outputs = learn_outputs(settings, store, project.sources.folder, described)
    declared = {
        name: Declared(
            pipeline=pipeline,
            module=project.places[name].module,
            version=prints[name].version,
            parts=prints[name].parts,
            tables=table_births(pipeline, outputs[name]),
            files=snapshot_files(project.places[name].module, find),
        )
        for name, pipeline in wanted.items()
    }
    births = {build: read_birth(store, build) for build in state.wanted_builds()}
    return Observed(frozenset(project.pipelines), declared, state, births, _log_facts(log, wanted))


def _log_facts(log: Log, wanted: Mapping[str, Pipeline]) -> LogFacts:
    there = log.topics() if wanted else {}
    names = sorted({topic.name for pipeline in wanted.values() for topic in pipeline.topics if topic.name in there})
    facts = [there[name] for name in names]
    return LogFacts({each.name: each.id for each in facts}, {each.name: each.partitions for each in facts}, log.beginning(names), log.end(names))


def _step(observed: Observed, declared: Declared, *, again: bool) -> Step:
    name, state = declared.pipeline.name, observed.state
    serving, idle, rollout = state.serving.get(name), state.idle.get(name), state.active(name)
    born = None if serving is None else observed.births[serving]
    if again or born is None or born.version != declared.version:
        if not again and born is not None and idle is not None and observed.births[idle].version == declared.version:
            reasons = differences(born.parts, declared.parts)
            return Step(name, Change.KEPT, declared.version, serving, idle, reasons, _missed(born, declared), rollout=rollout)
        return _replayed(observed, declared, born, rollout, again=again)
    return Step(name, Change.SAME, declared.version, serving, serving, rollout=rollout)


def _replayed(observed: Observed, declared: Declared, born: Birth | None, rollout: Rollout | None, *, again: bool) -> Step:
    topics, log = declared.pipeline.topics, observed.log
    there = {topic.name for topic in topics if topic.name in log.ids}
    origin = log.beginning.only(there)
    reasons = () if born is None else differences(born.parts, declared.parts)
    change = Change.NEW if born is None else Change.AGAIN if again and not reasons else Change.CHANGED
    return Step(
        pipeline=declared.pipeline.name,
        change=change,
        version=declared.version,
        serving=None if born is None else born.build,
        build=None if born is None else born.build,
        reasons=("a replay was asked for",) if change is Change.AGAIN else reasons,
        readers=() if born is None else _missed(born, declared),
        records=log.end.only(there).distance(origin),
        rollout=rollout,
        declared=declared,
        topics=tuple(TopicBirth(topic.name, log.ids[topic.name], topic.kind, log.partitions[topic.name]) for topic in topics if topic.name in there),
        origin=origin,
    )


def _gone(observed: Observed, name: str) -> Step:
    build = observed.state.serving[name]
    return Step(name, Change.GONE, observed.births[build].version, build, build, rollout=observed.state.active(name))


def _missed(born: Birth, declared: Declared) -> tuple[str, ...]:
    """What readers of the build that serves will not find any more, or find changed."""
    after = {table.name: table for table in declared.tables}
    said = []
    for table in born.tables:
        if table.name not in after:
            said.append(f"table {table.name} goes")
            continue
        types = dict(after[table.name].served)
        for column, kind in table.served:
            if column not in types:
                said.append(f"column {column} of table {table.name} goes")
            elif types[column] != kind:
                said.append(f"column {column} of table {table.name} becomes {types[column]}, from {kind}")
    views = {view.name for view in declared.pipeline.views}
    said.extend(f"view {view} goes" for view in born.views if view not in views)
    return tuple(said)


def _refusals(observed: Observed, step: Step, *, again: bool) -> Iterator[Refusal]:
    name = step.pipeline
    declared = observed.declared[name]
    if step.acts and step.rollout is not None:
        yield Refusal(
            name,
            f"rollout {step.rollout.number} of pipeline {name} is on its way: build {step.rollout.build}, begun by {step.rollout.by}",
            f"wait for it: kappa status -w; or end it: kappa abandon {name}",
            conflict=True,
        )
    if not again:
        yield from _made_anew(observed, step, declared.pipeline)
    if step.replays:
        for topic in declared.pipeline.topics:
            yield from _topic_refusals(name, topic, observed.log)
    if step.acts:
        yield from _table_refusals(observed, declared)


def _made_anew(observed: Observed, step: Step, pipeline: Pipeline) -> Iterator[Refusal]:
    for build in dict.fromkeys(build for build in (step.serving, step.build) if build is not None):
        for topic in pipeline.topics:
            before, there = observed.births[build].topic_ids.get(topic.name), observed.log.ids.get(topic.name)
            if before is not None and there is not None and before != there:
                message = f"topic {topic.name} was deleted and made anew since build {build} was born: what it held then is in build {build} alone"
                yield Refusal(step.pipeline, message, f"build from the topic that is there now: kappa replay {step.pipeline}")
                return


def _topic_refusals(name: str, topic: Topic, log: LogFacts) -> Iterator[Refusal]:
    there = log.partitions.get(topic.name)
    if there is None:
        yield Refusal(name, f"topic {topic.name} of pipeline {name} is not on the broker", f"kappa topics create {topic.name}")
        return
    if there != topic.partitions:
        message = f"topic {topic.name} has {there} partitions, and {topic.source} declares {topic.partitions}"
        yield Refusal(name, message, f"declare partitions={there}")
    if topic.kind is TopicKind.RETAINED:
        for _, partition, offset in log.beginning.only({topic.name}).items():
            if offset > 0:
                message = f"{topic.name} partition {partition} begins at offset {offset}: a replay would miss what came before."
                yield Refusal(name, message, f"restore the topic; retention.ms=-1 keeps a history, as kappa topics create {topic.name} sets it")
                return


def _table_refusals(observed: Observed, declared: Declared) -> Iterator[Refusal]:
    name = declared.pipeline.name
    written = ({table.name for table in declared.tables} | {view.name for view in declared.pipeline.views}) - {REJECTS}
    state = observed.state
    others = {**state.serving, **{rollout.pipeline: rollout.build for rollout in state.active_rollouts}}
    for other, build in sorted(others.items()):
        birth = observed.births[build]
        shared = sorted(written & ({table.name for table in birth.tables} | set(birth.views)))
        if other != name and shared:
            yield Refusal(name, f"{shared[0]} is served by pipeline {other} (build {build})", f"give it another name in pipeline {name}, or deploy {other} without it first")
