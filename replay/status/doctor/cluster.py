"""Lists what a project needs from the Kafka cluster: access rules (ACLs) and replicas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.base.errors import KappaError
from kappa.declare.pipeline import Pipeline
from kappa.kafka.acl import READERS_GROUP, Acl, AclKind, sink_id, topic, writer_id
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.preflight import least_brokers, replication_findings

if TYPE_CHECKING:
    from kappa.kafka.client import Log


@dataclass(frozen=True, slots=True)
class NeededAcl:
    """An access rule, and all uses of topics for which the rule is needed."""

    acl: Acl
    uses: tuple[str, ...]


def needed_acls(pipelines: Iterable[Pipeline], writer: str = "") -> list[NeededAcl]:
    """Lists the access rules that these pipelines, and commands on their topics, need. Pure.

    `writer` is the name under which the sinks of an adopted root write. The rules allow this name
    and the name that the original root uses. In Kafka, Read and Write include Describe, and Write
    includes all requests of an exactly-once producer. So no rule on the cluster itself is needed.
    """
    of_sinks = ("Create", "DescribeConfigs", "Read", "Write")
    found: dict[Acl, dict[str, None]] = {}

    def need(use: str, *acls: Acl) -> None:
        for acl in acls:
            found.setdefault(acl, {})[use] = None

    for pipeline in pipelines:
        use = f"pipeline {pipeline.name}"
        need(use, READERS_GROUP)
        for each in pipeline.topics:
            need(use, topic(each.name, "Read"), topic(each.name, "DescribeConfigs"))
            need("kappa topics create", topic(each.name, "Create"))
            need("kappa produce, kappa rejects redrive", topic(each.name, "Write"))
        for sink in pipeline.sinks:
            need(
                f"sink {sink.name}",
                *(topic(sink.name, operation) for operation in of_sinks),
                Acl(AclKind.GROUP, sink_id(sink.name), "Read"),
                *(
                    Acl(AclKind.TRANSACTIONAL_ID, writer_id(sink.name, each), "Write")
                    for each in sorted({"", writer})
                ),
            )
    return [NeededAcl(acl, tuple(found[acl])) for acl in sorted(found)]


def broker_loss_risks(log: Log, pipelines: Iterable[Pipeline]) -> tuple[Finding, ...]:
    """Returns findings about records that would be lost or refused after the loss of one broker.

    The topics of the pipelines and the topics of their sinks are examined.
    """
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
                # A client that may read a topic need not be allowed to read the topic's settings.
                config = None
            found += replication_findings(name, brokers, there[name].replicas, config)
    return tuple(found)
