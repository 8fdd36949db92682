"""Circles of pipelines through sinks: a pipeline reads the changes of its own sinks. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kappa.replay.rollout.plan.facts import Declared, Observed
from kappa.replay.rollout.plan.plan import PlanStep, Refusal


@dataclass(frozen=True, slots=True)
class TopicUse:
    """The topics that a pipeline reads, and the topics that its sinks send."""

    reads: frozenset[str] = frozenset()
    sends: frozenset[str] = frozenset()


def topic_uses(observed: Observed) -> Mapping[str, TopicUse]:
    """Returns the topics of each pipeline, as declared; else as the pipeline's builds were born."""
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
    """Returns the topics of each pipeline, as declared."""
    return {
        name: TopicUse(
            frozenset(topic.name for topic in each.pipeline.topics),
            frozenset(sink.name for sink in each.pipeline.sinks),
        )
        for name, each in declared.items()
    }


def circle_refusals(observed: Observed, step: PlanStep) -> Iterator[Refusal]:
    """Yields a refusal if changes that a pipeline sends come back to the pipeline."""
    if step.acts:
        hint = "; what serves counts until a deploy of {}"
        yield from refused_circle(step.pipeline, topic_uses(observed), hint)


def refused_circle(
    pipeline: str, uses: Mapping[str, TopicUse], more: str = ""
) -> Iterator[Refusal]:
    """Yields a refusal if changes that a pipeline sends come back to the pipeline.

    `more` ends the hint of the refusal, with the last pipeline of the circle in place of {}.
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
    """Returns the shortest circle from a pipeline back to itself, or () if there is no circle.

    Each step has a pipeline, and the topic that the pipeline sends to the next pipeline.
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
