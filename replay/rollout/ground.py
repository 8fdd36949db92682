"""The ground of a plan: the code, journal and topics that it was made on. Pure.

A plan is stale if its ground has moved. A log that has only grown has not moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.code.fingerprint import differences
from kappa.replay.rollout.plan.observed import Observed
from kappa.replay.rollout.plan.plan import Plan, PlanStep
from kappa.state.offsets import Offsets


@dataclass(frozen=True, slots=True)
class PipelineGround:
    """The ground of a planned step: the code, and the journal's records of the pipeline."""

    change: str
    version: str
    parts: Mapping[str, str]
    serving: str | None
    idle: str | None
    rollout: int | None
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicGround:
    """A topic's id, and where each partition began and ended (plain offsets)."""

    id: str
    partitions: int
    beginning: Mapping[str, int]
    end: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Ground:
    """All that a plan was made on, with the journal's last number."""

    journal: int
    generation: int
    pipelines: Mapping[str, PipelineGround]
    topics: Mapping[str, TopicGround]


def ground_of(plan: Plan, observed: Observed) -> Ground:
    """Returns the ground of a plan."""
    log = observed.log
    topics = {
        name: TopicGround(
            topic_id, log.partitions[name], _plain(log.beginning, name), _plain(log.end, name)
        )
        for name, topic_id in log.ids.items()
        if any(
            topic.name == name
            for step in plan.steps
            if step.pipeline in observed.declared
            for topic in observed.declared[step.pipeline].pipeline.topics
        )
    }
    return Ground(
        plan.looked_at,
        plan.generation,
        {step.pipeline: _pipeline_ground(step, observed) for step in plan.steps},
        topics,
    )


def moved(then: Ground, now_: Ground) -> Iterator[str]:
    """Yields a sentence for each thing that moved between two grounds.

    There is none if a plan that was made on the one is right on the other.
    """
    for name in sorted({*then.pipelines, *now_.pipelines}):
        yield from _pipeline_moved(
            name,
            then.pipelines.get(name),
            now_.pipelines.get(name),
            journal=(then.journal, now_.journal),
        )
    for name in sorted({*then.topics, *now_.topics}):
        yield from _topic_moved(name, then.topics.get(name), now_.topics.get(name))


def _pipeline_ground(step: PlanStep, observed: Observed) -> PipelineGround:
    declared = observed.declared.get(step.pipeline)
    return PipelineGround(
        change=str(step.change),
        version=step.version,
        parts={} if declared is None else declared.parts,
        serving=step.serving,
        idle=observed.state.idle.get(step.pipeline),
        rollout=None if step.rollout is None else step.rollout.number,
        accepted=step.accepted,
    )


def _pipeline_moved(
    name: str, then: PipelineGround | None, now_: PipelineGround | None, *, journal: tuple[int, int]
) -> Iterator[str]:
    if then is None or now_ is None:
        yield f"code: pipeline {name} was {'declared' if then is None else 'taken away'} since"
        return
    if then.version != now_.version:
        why = ", ".join(differences(then.parts, now_.parts))
        yield (
            f"code: pipeline {name} is version {now_.version} now, and was "
            f"{then.version}{f' ({why})' if why else ''}"
        )
    records = f"record {journal[0]} then, {journal[1]} now"
    if then.serving != now_.serving:
        yield (
            f"journal: pipeline {name} is served by {_build(now_.serving)} now, and was by "
            f"{_build(then.serving)} ({records})"
        )
    elif then.idle != now_.idle:
        yield (
            f"journal: {_build(now_.idle)} is kept for pipeline {name} now, and was "
            f"{_build(then.idle)} ({records})"
        )
    if then.rollout != now_.rollout:
        yield (
            f"journal: rollout {now_.rollout} of pipeline {name} is on its way ({records})"
            if now_.rollout
            else f"journal: rollout {then.rollout} of pipeline {name} has ended ({records})"
        )
    if then.accepted != now_.accepted:
        other = [
            *(f"now {each}" for each in now_.accepted if each not in then.accepted),
            *(f"no longer {each}" for each in then.accepted if each not in now_.accepted),
        ]
        yield f"what is let through for pipeline {name}: {', '.join(other)}"


def _topic_moved(name: str, then: TopicGround | None, now_: TopicGround | None) -> Iterator[str]:
    if then is None or now_ is None:
        yield f"topics: {name} was {'made' if then is None else 'deleted'} since"
    elif then.id != now_.id:
        yield f"topics: {name} was deleted and made anew"
    elif then.partitions != now_.partitions:
        yield f"topics: {name} has {now_.partitions} partitions, and had {then.partitions}"
    else:
        for partition, offset in then.beginning.items():
            if now_.beginning.get(partition, offset) != offset:
                yield (
                    f"topics: {name} partition {partition} begins at offset "
                    f"{now_.beginning[partition]} now, and began at {offset}"
                )
        for partition, offset in then.end.items():
            if now_.end.get(partition, offset) < offset:
                yield (
                    f"topics: {name} partition {partition} ends at offset "
                    f"{now_.end[partition]} now, and ended at {offset}"
                )


def _build(build: str | None) -> str:
    return "no build" if build is None else f"build {build}"


def _plain(offsets: Offsets, topic: str) -> Mapping[str, int]:
    return offsets.plain().get(topic, {})
