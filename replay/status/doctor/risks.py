"""Risks: what would be lost with one broker of the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.preflight import least_brokers, replication

if TYPE_CHECKING:
    from kappa.declare.pipeline import Pipeline
    from kappa.kafka.client import Log


def risks(log: Log, pipelines: Iterable[Pipeline]) -> tuple[Finding, ...]:
    """Returns what the loss of one broker would take of the topics of pipelines and sinks."""
    there = log.topics()
    brokers = least_brokers(log.brokers(), (each.replicas for each in there.values()))
    names = {
        name
        for pipeline in pipelines
        for name in (
            *(topic.name for topic in pipeline.topics),
            *(sink.name for sink in pipeline.sinks),
        )
    }
    found = list[Finding]()
    for name in sorted(names):
        if name in there:
            try:
                config = log.config(name)
            except KappaError:
                # A client that may read a topic need not be allowed to read its settings.
                config = None
            found += replication(name, brokers, there[name].replicas, config)
    return tuple(found)
