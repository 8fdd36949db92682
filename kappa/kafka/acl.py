"""Rules (ACLs) of a cluster: the rules that a client needs, and the error for a missing rule.

Kafka's documentation lists the rules:
https://kafka.apache.org/documentation/#operations_resources_and_protocols. Pure.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from kappa.base.errors import AclMissing

# The group of every consumer. Nothing is committed under it, but a broker is asked for the group's
# place.
READERS = "kappa-reads"


class AclKind(StrEnum):
    """The kind of resource that a rule is about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"


# Kafka's codes of refusals.
_KINDS = {
    29: AclKind.TOPIC,
    30: AclKind.GROUP,
    # An exact producer may not begin: the cluster does not let it write to any topic.
    31: AclKind.TOPIC,
    53: AclKind.TRANSACTIONAL_ID,
}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """A rule (ACL) that allows an operation on a resource. All values are Kafka's names."""

    kind: AclKind
    name: str
    operation: str

    def typed(self, servers: str, principal: str) -> str:
        """Returns the shell command that allows `principal` the operation.

        `servers` are the addresses of the cluster's brokers.
        """
        return shlex.join(
            (
                *("kafka-acls.sh", "--bootstrap-server", servers, "--add"),
                *("--allow-principal", principal or "User:NAME"),
                *("--operation", self.operation, f"--{self.kind}", self.name),
            )
        )


def topic(name: str, operation: str) -> Acl:
    """Returns the rule that allows an operation on the topic `name`."""
    return Acl(AclKind.TOPIC, name, operation)


def sink_id(of: str) -> str:
    """Returns the name of the consumer group for the sink's topic `of`.

    The consumer group commits the position of the sink, in the same transaction as the records.
    """
    return f"kappa-sink-{of}"


def writer_id(of: str, writer: str) -> str:
    """Returns the transactional id for the writer of the sink's topic `of`.

    `writer` is the id of the root if `kappa root adopt` has made the root from a copy, and "" for
    all other roots.
    """
    return f"{sink_id(of)}-{writer}" if writer else sink_id(of)


READERS_GROUP = Acl(AclKind.GROUP, READERS, "Describe")


def missing_of(code: int, *needed: Acl) -> Acl | None:
    """Returns the rule whose absence explains a broker's error code, or None.

    `needed` contains the rules that the failed action needs.
    """
    kind = _KINDS.get(code)
    return next((each for each in (*needed, READERS_GROUP) if each.kind is kind), None)


def acl_missing(acl: Acl, servers: str, principal: str) -> AclMissing:
    """Returns the error for a missing rule. `principal` is "" if the client's name is unknown."""
    return AclMissing(
        f"the cluster at {servers} does not allow {principal or 'this client'} the operation "
        f"{acl.operation} on {acl.kind} {acl.name}",
        # The error of a worker is read again from its text, where the hint has no brackets.
        hint=f"{acl.typed(servers, principal)}; kappa doctor --acls lists all that is needed",
    )
