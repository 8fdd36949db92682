"""The topics of sinks: which of them would lose rows, and who else has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kappa.declare.pipeline import Pipeline
from kappa.declare.sink import Sink
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.observed import LogFacts


def sink_findings(pipeline: Pipeline, log: LogFacts) -> Iterator[Finding]:
    """Yields what is wrong with the topics that a pipeline's sinks go to, of those that exist."""
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
                finding_name(sink),
            )
        if sink.name in log.others:
            yield Finding(
                f"topic {sink.name} has records that no sink has sent: the sink of {sink.source} "
                "deletes the keys that its table lacks",
                "give the sink a topic of its own",
                finding_name(sink),
            )
        if there != sink.partitions:
            yield Finding(
                f"topic {sink.name} has {there} partitions, and {sink.source} declares "
                f"{sink.partitions}",
                f"declare partitions={there}",
            )


def finding_name(sink: Sink) -> str:
    """Returns the name by which a sink's topic is let through."""
    return f"sink:{sink.name}"
