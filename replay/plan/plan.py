"""The plan: what the declared pipelines are beside what serves, what has to be replayed, and what stands in the way. Pure.

observe.py gathers what it looks at; `kappa plan` prints the steps, and stage.py walks the same ones. What is looked into
has files of its own: code_diff.py, readers.py, cost.py, preflight.py, determinism.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kappa.base.errors import Conflict, KappaError, UsageError
from kappa.code.declaration import declarations
from kappa.code.fingerprint import changed_parts, differences
from kappa.code.semantics import SEMANTICS
from kappa.declare.pipeline import Pipeline
from kappa.declare.table import REJECTS
from kappa.declare.topic import Topic
from kappa.state.build import Birth, TopicBirth
from kappa.state.offsets import Offsets
from replay.plan.branch import Branch, Branching, branch_of, unlike
from replay.preflight.code_diff import PartDiff, Side, part_diffs
from replay.preflight.cost import Cost, cost_of
from replay.preflight.event_changes import event_changes
from replay.preflight.finding import BREAKING, GAP, Accepting, Finding, flag
from replay.preflight.observed import Declared, LogFacts, Observed
from replay.preflight.preflight import preflight
from replay.preflight.readable import Sample, readable
from replay.preflight.readers import ReaderChange, reader_changes
from replay.rollout.libraries import changed_libraries
from replay.rollout.rollout import Rollout


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
class Refusal:
    """Why a step cannot be walked. `conflict`: another rollout is in the way, and it will not be for ever.

    `name` is what lets it through (finding.py); empty where nothing does.
    """

    pipeline: str
    message: str
    hint: str
    conflict: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What a deploy does with one pipeline.

    `build` is the one concerned: of a kept version the build that will serve again, else the one that serves now.
    `declared`, `topics` and `origin` are what a new build is made of, and `branch` what it stands on where it is one. `diffs` says what changed in the code and
    declarations, `readers` what changes for who reads, `events` what becomes of the fields of old events, `cost` what the replay costs, `samples` what was
    seen of its topics; `warnings` and `notes` should be known
    before it, `accepted` is what stood in the way and was let through.
    """

    pipeline: str
    change: Change
    version: str
    serving: str | None
    build: str | None
    reasons: tuple[str, ...] = ()
    readers: tuple[ReaderChange, ...] = ()
    events: tuple[str, ...] = ()
    records: int = 0
    rollout: Rollout | None = None
    declared: Declared | None = None
    topics: tuple[TopicBirth, ...] = ()
    origin: Offsets = field(default_factory=Offsets)
    diffs: tuple[PartDiff, ...] = ()
    cost: Cost | None = None
    samples: tuple[Sample, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()
    branch: Branch | None = None

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
        underway = (
            f"; rollout {self.rollout.number} of build {self.rollout.build} is {self.rollout.phase}"
            if self.rollout
            else ""
        )
        return f"{self.pipeline}: {self._change()}{underway}"

    def _change(self) -> str:
        because = ", ".join(self.reasons)
        replayed = (
            f"{self.records:,} records to replay"
            if self.branch is None
            else f"{self.branch.base}, {self.records:,} records to fold"
        )
        match self.change:
            case Change.NEW:
                return f"new (version {self.version}), {replayed}"
            case Change.CHANGED:
                return f"changed to version {self.version} ({because}), {replayed}"
            case Change.AGAIN:
                return f"once more (version {self.version}, {because}), {replayed}"
            case Change.KEPT:
                return f"changed to version {self.version}, which build {self.build} still holds: it will serve again, without a replay"
            case Change.SAME:
                return f"unchanged (version {self.version}, build {self.build})"
            case Change.GONE:
                return f"no longer declared; build {self.build} goes on serving"


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of a deploy, and what refuses it. It holds for the journal as it was at record `looked_at`.

    `notes` are about the plan as a whole.
    """

    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    looked_at: int
    generation: int
    notes: tuple[str, ...] = ()

    @property
    def has_changes(self) -> bool:
        """True where a deploy would do something."""
        return any(step.acts for step in self.steps)

    def ensure_possible(self) -> None:
        """Raises for the first refusal: Conflict where another rollout is in the way, else KappaError."""
        for refusal in self.refusals:
            raise (Conflict if refusal.conflict else KappaError)(refusal.message, hint=refusal.hint)


def make_plan(
    observed: Observed,
    *,
    only: str | None = None,
    again: bool = False,
    accepting: Accepting | None = None,
    branching: Branching | None = None,
) -> Plan:
    """The plan for all pipelines, or `only` one.

    `again` makes a new build whatever the version (`kappa replay PIPELINE`); `branching`, one on the state of the build that serves
    (`kappa branch PIPELINE`). `accepting` is what the user lets through. Raises UsageError where `only` names no pipeline of the project, or no such branch can be.
    """
    if only is not None and only not in observed.names:
        near = difflib.get_close_matches(only, observed.names, n=1)
        known = (
            f"there are {', '.join(sorted(observed.names))}"
            if observed.names
            else "there are none in pipelines/"
        )
        raise UsageError(
            f"there is no pipeline {only} in this project",
            hint=f"did you mean {near[0]}?" if near else known,
        )
    accepting = accepting or Accepting()
    wanted = sorted(observed.declared) if only is None else [only]
    steps, refusals, named = [], [], set()
    for name in wanted:
        step = (
            _step(observed, observed.declared[name], again=again)
            if branching is None
            else _branched(observed, observed.declared[name], branching)
        )
        found = tuple(_findings(observed, step, again=again))
        named |= {finding.name for finding in found}
        steps.append(_judged(step, found, accepting))
        refusals += [
            *_others_in_the_way(observed, step),
            *_refused(step, found, accepting, again=again),
        ]
    if only is None:
        steps += [
            _gone(observed, name) for name in sorted(observed.state.serving.keys() - observed.names)
        ]
    notes = tuple(
        f"nothing named {name} stands in the way: --allow lets nothing through"
        for name in sorted(accepting.allowed.keys() - named)
    )
    if not observed.names:
        notes = (*notes, "no pipeline is declared: each is a file in pipelines/, beside kappa.toml")
    return Plan(
        tuple(steps), tuple(refusals), observed.state.last, observed.state.generation, notes
    )


def _step(observed: Observed, declared: Declared, *, again: bool) -> Step:
    name, state = declared.pipeline.name, observed.state
    serving, idle, rollout = state.serving.get(name), state.idle.get(name), state.active(name)
    born = None if serving is None else observed.births[serving]
    if again or born is None or born.version != declared.version:
        if (
            not again
            and born is not None
            and idle is not None
            and observed.births[idle].version == declared.version
        ):
            reasons = differences(born.parts, declared.parts)
            diffs, notes = (
                _diffs(observed, born, declared),
                _kept_notes(observed, observed.births[idle]),
            )
            return Step(
                name,
                Change.KEPT,
                declared.version,
                serving,
                idle,
                reasons,
                _readers(born, declared),
                rollout=rollout,
                diffs=diffs,
                notes=notes,
            )
        return _replayed(observed, declared, born, rollout, again=again)
    return Step(
        name,
        Change.SAME,
        declared.version,
        serving,
        serving,
        rollout=rollout,
        notes=_kept_notes(observed, born),
    )


def _branched(observed: Observed, declared: Declared, branching: Branching) -> Step:
    name, state, log = declared.pipeline.name, observed.state, observed.log
    if name not in state.serving:
        raise UsageError(
            f"no build of pipeline {name} serves: there is no state to branch from",
            hint=f"kappa deploy {name}",
        )
    born = observed.births[state.serving[name]]
    branch = branch_of(born, observed.shown[born.build], branching)
    step = _replayed(observed, declared, born, state.active(name), again=True)
    there = {topic.name for topic in step.topics}
    before = Offsets.parse(branch.base.offsets).distance(branch.start)
    notes = [
        f"what lies before {Offsets.parse(branch.base.offsets)} stays as build {born.build} has folded it, rejects too",
        *(
            [
                f"{before:,} offsets before that are folded once more, by the code of build {born.build}"
            ]
            if before
            else []
        ),
        *_library_notes(observed, born),
    ]
    return replace(
        step,
        reasons=("a branch was asked for",) if step.change is Change.AGAIN else step.reasons,
        records=log.end.only(there).distance(branch.start),
        origin=born.origin_offsets,
        cost=cost_of(
            there,
            branch.start,
            log,
            serving=step.serving,
            disk=observed.disk,
            replayed=observed.replays.get(name),
        ),
        notes=(*_archive_notes(log, step.topics, branch.start), *notes),
        # What the rows before it lack, they lack for ever.
        accepted=tuple(each for each in born.accepted if each.startswith(f"{GAP}: ")),
        branch=branch,
    )


def _replayed(
    observed: Observed,
    declared: Declared,
    born: Birth | None,
    rollout: Rollout | None,
    *,
    again: bool,
) -> Step:
    name, topics, log = declared.pipeline.name, declared.pipeline.topics, observed.log
    there = {topic.name for topic in topics if topic.name in log.ids}
    origin = log.beginning.only(there)
    reasons = () if born is None else differences(born.parts, declared.parts)
    change = (
        Change.NEW if born is None else Change.AGAIN if again and not reasons else Change.CHANGED
    )
    serving = None if born is None else born.build
    return Step(
        pipeline=name,
        change=change,
        version=declared.version,
        serving=serving,
        build=serving,
        reasons=("a replay was asked for",) if change is Change.AGAIN else reasons,
        readers=() if born is None else _readers(born, declared),
        events=() if born is None else _events(born, declared),
        records=log.end.only(there).distance(origin),
        rollout=rollout,
        declared=declared,
        topics=tuple(
            TopicBirth(topic.name, log.ids[topic.name], topic.kind, log.partitions[topic.name])
            for topic in topics
            if topic.name in there
        ),
        origin=origin,
        diffs=() if born is None else _diffs(observed, born, declared),
        samples=tuple(
            observed.samples[topic.name] for topic in topics if topic.name in observed.samples
        ),
        cost=cost_of(
            there,
            origin,
            log,
            serving=serving,
            disk=observed.disk,
            replayed=observed.replays.get(name),
        ),
        notes=(
            *_archive_notes(log, topics, origin),
            *(
                ()
                if born is None
                else (*_reject_notes(observed, born), *_library_notes(observed, born))
            ),
        ),
    )


def _gone(observed: Observed, name: str) -> Step:
    build = observed.state.serving[name]
    return Step(
        name,
        Change.GONE,
        observed.births[build].version,
        build,
        build,
        rollout=observed.state.active(name),
    )


def _readers(born: Birth, declared: Declared) -> tuple[ReaderChange, ...]:
    return reader_changes(
        born, declared.tables, {view.name: view.sql for view in declared.pipeline.views}
    )


def _events(born: Birth, declared: Declared) -> tuple[str, ...]:
    # Those of topics that are new, or whose birth keeps no declarations, cannot be told.
    before = {
        topic.name: born.declarations.get(f"topic {topic.name}")
        for topic in declared.pipeline.topics
    }
    return tuple(
        change
        for topic in declared.pipeline.topics
        if (lines := before[topic.name]) is not None
        for change in event_changes(topic, lines)
    )


def _diffs(observed: Observed, born: Birth, declared: Declared) -> tuple[PartDiff, ...]:
    old = Side(born.parts, observed.snapshots.get(born.build, {}), born.declarations)
    return part_diffs(old, Side(declared.parts, declared.files, declarations(declared.pipeline)))


def _reject_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    rejected = observed.rejected.get(born.build, 0)
    return (
        (
            f"build {born.build} has rejected {rejected:,} records: a replay reads them again, and takes in what can be read now",
        )
        if rejected
        else ()
    )


def _archive_notes(
    log: LogFacts, topics: Iterable[Topic | TopicBirth], origin: Offsets
) -> Iterator[str]:
    """Which offsets come from where: an archive and its topic are read as one log."""
    names = {topic.name for topic in topics}
    for mark in log.archived:
        parts = {
            part: (max(mark.start[part], origin.at(mark.topic, part)), end)
            for part, end in sorted(mark.end.items())
        }
        told = [
            f"{start} to {end - 1} of partition {part}"
            for part, (start, end) in parts.items()
            if end > start
        ]
        if mark.topic in names and told:
            lost = [
                f"{first} in partition {part}"
                for _, part, first in log.topics_beginning.only({mark.topic}).items()
                if first > origin.at(mark.topic, part)
            ]
            alone = f"; the topic itself begins at {', '.join(lost)}" if lost else ""
            yield f"topic {mark.topic}: offsets {', '.join(told)} come from its archive, all that follows from the topic{alone}"


def _library_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    changed = changed_libraries(born.libraries, observed.libraries)
    return (
        (
            f"other libraries are installed than when build {born.build} was born: {', '.join(changed)}; that alone replays nothing",
        )
        if changed
        else ()
    )


def _kept_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """What should be known of a build that serves, or will again, without a replay."""
    return (
        *([] if born.base is None else [f"build {born.build} is {born.base}"]),
        *_library_notes(observed, born),
    )


def _judged(step: Step, found: tuple[Finding, ...], accepting: Accepting) -> Step:
    warnings = tuple(finding.message for finding in found if not finding.refuses)
    accepted = tuple(
        let
        for finding in found
        if finding.refuses and (let := accepting.lets_through(finding)) is not None
    )
    return replace(step, warnings=warnings, accepted=(*step.accepted, *accepted))


def _refused(
    step: Step, found: tuple[Finding, ...], accepting: Accepting, *, again: bool
) -> Iterator[Refusal]:
    command = f"kappa {'branch' if step.branch is not None else 'replay' if again else 'deploy'} {step.pipeline}"
    if step.branch is not None:
        command += f" --from {','.join(str(Offsets.parse(step.branch.base.offsets)).split())}"
    for finding in found:
        if finding.refuses and accepting.lets_through(finding) is None:
            allow = f"let it through: {command} {flag(finding)}" if finding.name else ""
            yield Refusal(
                step.pipeline,
                finding.message,
                "; or ".join(filter(None, (finding.hint, allow))),
                name=finding.name,
            )


def _findings(observed: Observed, step: Step, *, again: bool) -> Iterator[Finding]:
    declared = observed.declared[step.pipeline]
    if not again:
        yield from _made_anew(observed, step, declared.pipeline)
    if step.replays and step.cost is not None:
        serving = None if step.serving is None else observed.births[step.serving]
        if step.branch is not None and serving is not None:
            yield from unlike(serving, declared, step.branch, observed.log)
        # What the log has lost before a branch begins is in its base.
        yield from (
            each
            for each in preflight(declared.pipeline, observed.log, step.cost, serving)
            if step.branch is None or each.name != GAP
        )
        for sample in step.samples:
            yield from readable(
                sample,
                most=observed.max_unreadable,
                is_read_as_before=serving is not None
                and not _is_redeclared(sample.topic, serving, declared),
            )
        yield from declared.doubtful
    breaking = [change.text for change in step.readers if change.breaking]
    if step.acts and breaking:
        yield Finding(
            f"what reads the tables of {step.pipeline} may break: {'; '.join(breaking)}",
            name=BREAKING,
        )


def _is_redeclared(topic: str, born: Birth, declared: Declared) -> bool:
    """True where what is valid in a topic may be another thing than for a build."""
    return (
        f"topic {topic}" in changed_parts(born.parts, declared.parts) or born.semantics != SEMANTICS
    )


def _made_anew(observed: Observed, step: Step, pipeline: Pipeline) -> Iterator[Finding]:
    for build in dict.fromkeys(build for build in (step.serving, step.build) if build is not None):
        for topic in pipeline.topics:
            before, there = (
                observed.births[build].topic_ids.get(topic.name),
                observed.log.ids.get(topic.name),
            )
            if before is not None and there is not None and before != there:
                message = f"topic {topic.name} was deleted and made anew since build {build} was born: what it held then is in build {build} alone"
                yield Finding(
                    message, f"build from the topic that is there now: kappa replay {step.pipeline}"
                )
                return


def _others_in_the_way(observed: Observed, step: Step) -> Iterator[Refusal]:
    """Another rollout of the pipeline, and other pipelines that serve what it writes."""
    if not step.acts:
        return
    name, state, declared = step.pipeline, observed.state, observed.declared[step.pipeline]
    if step.rollout is not None:
        yield Refusal(
            name,
            f"rollout {step.rollout.number} of pipeline {name} is on its way: build {step.rollout.build}, begun by {step.rollout.by}",
            f"wait for it: kappa status -w; or end it: kappa abandon {name}",
            conflict=True,
        )
    written = (
        {table.name for table in declared.tables} | {view.name for view in declared.pipeline.views}
    ) - {REJECTS}
    others = {
        **state.serving,
        **{rollout.pipeline: rollout.build for rollout in state.active_rollouts},
    }
    for other, build in sorted(others.items()):
        birth = observed.births[build]
        shared = sorted(written & ({table.name for table in birth.tables} | set(birth.views)))
        if other != name and shared:
            yield Refusal(
                name,
                f"{shared[0]} is served by pipeline {other} (build {build})",
                f"give it another name in pipeline {name}, or deploy {other} without it first",
            )
