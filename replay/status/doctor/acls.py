"""The least rules (ACLs) that a project needs of its cluster, and their uses. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kappa.declare.pipeline import Pipeline
from kappa.kafka.acl import READERS_GROUP, Acl, AclKind, sink_id, topic, writer_id


@dataclass(frozen=True, slots=True)
class NeededAcl:
    """A rule, and all that needs it."""

    acl: Acl
    uses: tuple[str, ...]


def needed_acls(pipelines: Iterable[Pipeline], writer: str = "") -> list[NeededAcl]:
    """Lists the rules for all that these pipelines and the commands on their topics do.

    `writer` is the name by which the sinks of an adopted root write; it ends the first root's.
    In Kafka, Read and Write allow Describe too, and Write all that an exact producer asks for. So
    no rule is for the cluster itself.
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
