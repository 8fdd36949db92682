"""Creates a plan by comparing the declared pipelines with the serving builds. Pure.

observe.py gathers the facts, and preflight.py finds reasons to refuse a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from kappa.base.errors import UsageError, near_or_all
from kappa.base.units import count_of
from kappa.code.fingerprint import declaration_lines, version_differences
from kappa.declare.topic import Topic
from kappa.replay.rollout.libraries import changed_libraries
from kappa.replay.rollout.plan.branch import Branching, branch_of
from kappa.replay.rollout.plan.code_diff import CodeSide, PartDiff, part_diffs
from kappa.replay.rollout.plan.cost import Cost, cost_of
from kappa.replay.rollout.plan.facts import Declared, LogFacts, Observed, has_its_rows
from kappa.replay.rollout.plan.finding import GAP, Allowances
from kappa.replay.rollout.plan.plan import Change, Plan, PlanStep, Refusal
from kappa.replay.rollout.plan.preflight import (
    circle_refusals,
    conflicts_of,
    findings_of,
    judge_step,
    refusals_of,
    topic_uses,
)
from kappa.replay.rollout.plan.schema_changes import ReaderChange, event_changes, reader_changes
from kappa.replay.rollout.rollout import Rollout
from kappa.state.build import Birth, TopicBirth
from kappa.state.offsets import Offsets


def make_plan(
    observed: Observed,
    *,
    only: Sequence[str] = (),
    again: bool = False,
    accepting: Allowances | None = None,
    branching: Branching | None = None,
) -> Plan:
    """Returns the plan for all pipelines, or for the pipelines in `only`.

    With `again`, the plan creates a new build even if the version has not changed (`kappa replay
    PIPELINE`). With `branching`, the plan creates a new build from the state of the serving build
    (`kappa branch PIPELINE`). `accepting` are the operator's allowances. Raises UsageError if a
    name in `only` is not a pipeline of the project, or if the branch cannot be made.
    """
    refuse_unknown(only, observed.names)
    accepting = accepting or Allowances()
    wanted = [
        name
        for name in tuple(dict.fromkeys(only)) or sorted(observed.declared)
        if name not in observed.refused
    ]
    refusals = [
        Refusal(name, mistake.message, mistake.hint, in_files=True)
        for name, error in sorted(observed.refused.items())
        for mistake in error.each
    ]
    steps, named = [], set()
    for name in wanted:
        step = (
            _plan_step(observed, observed.declared[name], again=again)
            if branching is None
            else _branched_step(observed, observed.declared[name], branching)
        )
        found = tuple(findings_of(observed, step, again=again))
        named |= {finding.name for finding in found}
        steps.append(_with_outlet_notes(observed, judge_step(step, found, accepting)))
        refusals += [
            *conflicts_of(observed, step),
            *circle_refusals(observed, step),
            *refusals_of(step, found, accepting, again=again),
        ]
    gone = [] if only else sorted(observed.state.serving.keys() - observed.names)
    # A file that cannot be loaded may declare the pipeline.
    unknown = gone if observed.refused.keys() - observed.names else []
    steps += [_gone_step(observed, name) for name in gone if name not in unknown]
    notes = (
        *(
            f"{path} cannot be loaded, and its pipelines are not looked at: {error.message}"
            for path, error in (observed.unloadable.items() if only else ())
        ),
        *_subject_notes(observed),
        *_joining_notes(observed),
        *(
            f"pipeline {name} continues to serve: whether it is declared is not known, since not "
            "all files can be loaded"
            for name in unknown
        ),
        *(
            f"nothing named {name} blocks the plan: --allow lets nothing through"
            for name in sorted(accepting.allowed.keys() - named)
        ),
    )
    if not observed.names and not observed.refused:
        notes = (*notes, "no pipeline is declared: each is a file in pipelines/, beside kappa.toml")
    return Plan(
        tuple(steps), tuple(refusals), observed.state.last, observed.state.generation, notes
    )


def refuse_unknown(only: Iterable[str], names: Collection[str]) -> None:
    """Raises UsageError if a name in `only` is not in `names`, the project's pipelines.

    The hint suggests the most similar name.
    """
    for name in only:
        if name in names:
            continue
        raise UsageError(
            f"there is no pipeline {name} in this project",
            hint=near_or_all(name, sorted(names), none="there are none in pipelines/"),
        )


def _plan_step(observed: Observed, declared: Declared, *, again: bool) -> PlanStep:
    name, state = declared.pipeline.name, observed.state
    serving, idle, rollout = state.serving.get(name), state.idle.get(name), state.active(name)
    born = None if serving is None else observed.births[serving]
    kept = None if idle is None else observed.births[idle]
    is_kept = kept is not None and kept.version == declared.version
    if kept is not None and is_kept and born is None and not again:
        # The pipeline was retired, and the build still exists: nothing is replayed.
        notes = _kept_notes(observed, kept)
        return PlanStep(
            name, Change.KEPT, declared.version, None, idle, rollout=rollout, notes=notes
        )
    if again or born is None:
        return _replayed_step(observed, declared, born, rollout, again=again)
    if born.version == declared.version:
        return PlanStep(
            name,
            Change.SAME,
            declared.version,
            serving,
            serving,
            rollout=rollout,
            notes=_kept_notes(observed, born),
        )
    if kept is not None and is_kept:
        return _unreplayed_step(observed, declared, born, kept, Change.KEPT)
    if has_its_rows(declared, born):
        step = _unreplayed_step(observed, declared, born, born, Change.OVERLAY)
        return replace(step, declared=declared, live=born)
    return _replayed_step(observed, declared, born, rollout, again=again)


def _unreplayed_step(
    observed: Observed, declared: Declared, born: Birth, after: Birth, change: Change
) -> PlanStep:
    """Returns a step after which existing tables serve without a replay.

    The tables are those of the build `after`. Either this build will serve, or an overlay will
    serve its tables.
    """
    return PlanStep(
        born.pipeline,
        change,
        declared.version,
        born.build,
        after.build,
        version_differences(born.parts, declared.parts),
        _changes_for_readers(born, declared),
        rollout=observed.state.active(born.pipeline),
        diffs=_code_diffs(observed, born, declared),
        notes=_kept_notes(observed, after),
    )


def _branched_step(observed: Observed, declared: Declared, branching: Branching) -> PlanStep:
    name, state, log = declared.pipeline.name, observed.state, observed.log
    if name not in state.serving:
        raise UsageError(
            f"no build of pipeline {name} serves: there is nothing to branch from",
            hint=f"kappa deploy {name}",
        )
    born = observed.births[state.serving[name]]
    branch = branch_of(born, observed.shown[born.build], branching)
    step = _replayed_step(observed, declared, born, state.active(name), again=True)
    there = {topic.name for topic in step.topics}
    before = Offsets.parse(branch.base.offsets).distance(branch.start)
    notes = [
        (
            f"the rows before {Offsets.parse(branch.base.offsets)} stay as build "
            f"{born.build} has folded it, rejects too"
        ),
        *(
            [
                (
                    f"folded once more before that, by the code of build {born.build}: "
                    f"{count_of(before, 'offset')}"
                )
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
        cost=_replay_cost(observed, name, there, branch.start, step.serving),
        notes=(*_view_notes(declared), *_archive_notes(log, step.topics, branch.start), *notes),
        # Rows before the branch lack the lost records for ever.
        accepted=tuple(each for each in born.accepted if each.startswith(f"{GAP}: ")),
        branch=branch,
    )


def _replay_cost(
    observed: Observed, name: str, topics: set[str], origin: Offsets, serving: str | None
) -> Cost:
    return cost_of(
        topics,
        origin,
        observed.log,
        serving=serving,
        disk=observed.disk,
        replayed=observed.replays.get(name),
        cores=observed.cores,
        law_seconds=observed.law_seconds,
    )


def _replayed_step(
    observed: Observed,
    declared: Declared,
    born: Birth | None,
    rollout: Rollout | None,
    *,
    again: bool,
) -> PlanStep:
    name, topics, log = declared.pipeline.name, declared.pipeline.topics, observed.log
    there = {topic.name for topic in topics if topic.name in log.ids}
    origin = log.beginning.only(there)
    reasons = () if born is None else version_differences(born.parts, declared.parts)
    change = (
        Change.NEW if born is None else Change.AGAIN if again and not reasons else Change.CHANGED
    )
    serving = None if born is None else born.build
    return PlanStep(
        pipeline=name,
        change=change,
        version=declared.version,
        serving=serving,
        build=serving,
        reasons=("a replay was asked for",) if change is Change.AGAIN else reasons,
        readers=() if born is None else _changes_for_readers(born, declared),
        events=() if born is None else _changes_of_events(born, declared),
        records=log.end.only(there).distance(origin),
        rollout=rollout,
        declared=declared,
        topics=tuple(
            TopicBirth(of, log.ids[of], topic.kind, log.partitions[of], topic.of_pattern)
            for topic in topics
            if (of := topic.name) in there
        ),
        origin=origin,
        diffs=() if born is None else _code_diffs(observed, born, declared),
        samples=tuple(
            observed.samples[topic.name] for topic in topics if topic.name in observed.samples
        ),
        cost=_replay_cost(observed, name, there, origin, serving),
        notes=(
            *_view_notes(declared),
            *_archive_notes(log, topics, origin),
            *(
                ()
                if born is None
                else (*_reject_notes(observed, born), *_library_notes(observed, born))
            ),
        ),
    )


def _gone_step(observed: Observed, name: str) -> PlanStep:
    build = observed.state.serving[name]
    return PlanStep(
        name,
        Change.GONE,
        observed.births[build].version,
        build,
        build,
        rollout=observed.state.active(name),
    )


def _changes_for_readers(born: Birth, declared: Declared) -> tuple[ReaderChange, ...]:
    return reader_changes(born, declared.tables, declared.pipeline.view_queries)


def _changes_of_events(born: Birth, declared: Declared) -> tuple[str, ...]:
    # A new topic, and a birth without declarations, have no lines to compare.
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


def _code_diffs(observed: Observed, born: Birth, declared: Declared) -> tuple[PartDiff, ...]:
    old = CodeSide(born.parts, observed.snapshots.get(born.build, {}), born.declarations)
    return part_diffs(
        old, CodeSide(declared.parts, declared.files, declaration_lines(declared.pipeline))
    )


def _reject_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns a note about the records that the serving build has rejected, if there are any."""
    rejected = observed.rejected.get(born.build, 0)
    if not rejected:
        return ()
    note = (
        f"build {born.build} has rejected {count_of(rejected, 'record')}: a replay reads all "
        "rejects again, and takes in what can be read now"
    )
    return (note,)


def _view_notes(declared: Declared) -> Iterator[str]:
    """Yields a note for each maintained view: the way in which Kappa updates the view, and why."""
    for view, way in declared.ways.items():
        yield f"view {view} is kept {way}"


def _archive_notes(
    log: LogFacts, topics: Iterable[Topic | TopicBirth], origin: Offsets
) -> Iterator[str]:
    """Yields a note for each archive, with the offsets that a replay reads from the archive.

    The other offsets of the log are read from the topic.
    """
    names = {topic.name for topic in topics}
    for mark in log.archived:
        parts = {
            part: (max(mark.start[part], origin.at(mark.topic, part)), end)
            for part, end in sorted(mark.end.items())
        }
        ranges = [
            f"{start} to {end - 1} of partition {part}"
            for part, (start, end) in parts.items()
            if end > start
        ]
        if mark.topic in names and ranges:
            lost = [
                f"{first} in partition {part}"
                for _, part, first in log.topics_beginning.only({mark.topic}).items()
                if first > origin.at(mark.topic, part)
            ]
            alone = f"; the topic itself begins at {', '.join(lost)}" if lost else ""
            yield (
                f"topic {mark.topic}: offsets {', '.join(ranges)} come from its archive, all "
                f"that follows from the topic{alone}"
            )


def _subject_notes(observed: Observed) -> Iterator[str]:
    """Yields a note for each pinned subject that has a newer version in the schema registry.

    There is also a note if the newest version is unknown.
    """
    for subject, (pinned, newest) in sorted(observed.subjects.items()):
        if newest is None:
            yield f"subject {subject} is pinned at version {pinned}, and its newest one is unknown"
        elif newest != pinned:
            yield (
                f"subject {subject} is at version {newest}, and version {pinned} is pinned: "
                f"kappa schemas pin {subject}"
            )


def _joining_notes(observed: Observed) -> Iterator[str]:
    """Yields a note for each topic that matches a pattern but has not joined the pattern.

    Such a topic is not read.
    """
    for pattern, names in sorted(observed.log.waiting.items()):
        for name in names:
            yield (
                f"topic {name} matches the pattern {pattern} and has not joined it, so it is not "
                f"read: kappa topics join '{pattern}'"
            )


def _library_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns at most one note, about the libraries that changed since a build was created."""
    changed = changed_libraries(born.libraries, observed.libraries)
    if not changed:
        return ()
    note = (
        f"other libraries are installed than when build {born.build} was born: "
        f"{', '.join(changed)}; that alone replays nothing"
    )
    return (note,)


def _kept_notes(observed: Observed, born: Birth) -> tuple[str, ...]:
    """Returns notes about a build that will serve without a replay."""
    return (
        *([] if born.base is None else [f"build {born.build} is {born.base}"]),
        *_library_notes(observed, born),
    )


def _with_outlet_notes(observed: Observed, step: PlanStep) -> PlanStep:
    """Returns the step with notes about its sinks and alerts, if a deploy changes the pipeline."""
    if not step.acts:
        return step
    born = None if step.serving is None else observed.births[step.serving]
    declared = observed.declared[step.pipeline]
    found = (
        *_sink_notes(observed, step, declared, born),
        *_alert_notes(declared, born),
        *_sink_reader_notes(observed, declared),
    )
    return replace(step, notes=(*step.notes, *found))


def _sink_notes(
    observed: Observed, step: PlanStep, declared: Declared, born: Birth | None
) -> Iterator[str]:
    sinks = {} if born is None else {sink.topic: sink for sink in born.sinks}
    for sink in declared.pipeline.sinks:
        before = sinks.pop(sink.name, None)
        if before is None:
            rows = observed.rows.get(sink.name)
            counted = "" if rows is None else f", {count_of(rows, 'row')} now,"
            yield f"sink {sink.name} is new: the snapshot of {sink.of}{counted} is sent"
        elif before != sink.outlet_birth:
            yield f"sink {sink.name} is another: what differs from its topic is sent"
        elif step.replays or step.change is Change.KEPT:
            yield f"sink {sink.name}: what differs in {sink.of} is sent when it serves"
    for topic in sinks:
        yield f"sink {topic} ends: its topic keeps what it has"


def _alert_notes(declared: Declared, born: Birth | None) -> Iterator[str]:
    before = set() if born is None else {alert.name for alert in born.alerts}
    after = {alert.name for alert in declared.pipeline.alerts}
    for name in sorted(after - before):
        yield f"alert {name} is new: it begins with the first change after the switch"
    for name in sorted(before - after):
        yield f"alert {name} ends"


def _sink_reader_notes(observed: Observed, declared: Declared) -> Iterator[str]:
    """Yields a note for each sink whose topic other pipelines read."""
    uses = topic_uses(observed)
    for sink in declared.pipeline.sinks:
        readers = sorted(name for name, use in uses.items() if sink.name in use.reads)
        if readers:
            yield (
                f"pipeline{'' if len(readers) == 1 else 's'} {', '.join(readers)} read"
                f"{'s' if len(readers) == 1 else ''} sink {sink.name}: what is sent changes"
                f" {'its' if len(readers) == 1 else 'their'} tables too"
            )
