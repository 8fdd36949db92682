"""The judgement of a step: what blocks it, and what was let through. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kappa.code.fingerprint import SEMANTICS, changed_parts
from kappa.declare.options import REJECTS
from kappa.declare.pipeline import Pipeline
from kappa.replay.rollout.plan.branch import unlike
from kappa.replay.rollout.plan.finding import BREAKING, GAP, Accepting, Finding, flag
from kappa.replay.rollout.plan.observed import Declared, Observed
from kappa.replay.rollout.plan.plan import PlanStep, Refusal
from kappa.replay.rollout.plan.preflight import preflight
from kappa.replay.rollout.plan.readable import readable
from kappa.replay.rollout.plan.sinks import sink_findings
from kappa.state.build import Birth
from kappa.state.offsets import Offsets


def judged(step: PlanStep, found: tuple[Finding, ...], accepting: Accepting) -> PlanStep:
    """Returns the step with its warnings, and with what was let through."""
    warnings = tuple(finding.message for finding in found if not finding.refuses)
    accepted = tuple(
        let
        for finding in found
        if finding.refuses and (let := accepting.lets_through(finding)) is not None
    )
    return replace(step, warnings=warnings, accepted=(*step.accepted, *accepted))


def refusals_of(
    step: PlanStep, found: tuple[Finding, ...], accepting: Accepting, *, again: bool
) -> Iterator[Refusal]:
    """Yields a refusal for each finding that refuses and was not let through."""
    command = (
        f"kappa {'branch' if step.branch is not None else 'replay' if again else 'deploy'} "
        f"{step.pipeline}"
    )
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


def findings_of(observed: Observed, step: PlanStep, *, again: bool) -> Iterator[Finding]:
    """Yields all that blocks a step, or should be known before it."""
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
    if step.acts:
        yield from sink_findings(declared.pipeline, observed.log)
    breaking = [change.text for change in step.readers if change.breaking]
    if step.acts and breaking:
        yield Finding(
            f"what reads the tables of {step.pipeline} may break: {'; '.join(breaking)}",
            name=BREAKING,
        )


def _is_redeclared(topic: str, born: Birth, declared: Declared) -> bool:
    """Returns whether other records of a topic may be valid now than for a build."""
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
                    f"topic {topic.name} was deleted and made anew since build {build} was "
                    f"born: what it held then is in build {build} alone"
                )
                yield Finding(
                    message, f"build from the topic that is there now: kappa replay {step.pipeline}"
                )
                return


def conflicts_of(observed: Observed, step: PlanStep) -> Iterator[Refusal]:
    """Yields conflicts: a rollout or a pause of the pipeline, or another that serves its names."""
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
