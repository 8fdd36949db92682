"""The making of a topic whose records survive the loss of one broker."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported, but not by name

from kappa.kafka.acl import topic as acl
from kappa.kafka.answers import Answers, code_of

# With three replicas, of which two have every acknowledged record, one broker may be away or lost.
# A broker that is away counts as one of the cluster, so only the cluster knows how many replicas
# there may be.
_REPLICATED = (3, 2)
_IN_SYNC = {"min.insync.replicas": "2"}
# A single broker has its own default.
_ALONE = (-1,)


def brokers(answers: Answers, admin: AdminClient) -> int:
    """Counts the brokers of a cluster that are up."""
    found = answers.of(admin.describe_cluster(), "the brokers could not be counted")
    return len(found.nodes)


def ensure_topic(
    answers: Answers,
    admin: AdminClient,
    name: str,
    partitions: int,
    config: Mapping[str, str],
) -> None:
    """Makes a topic that does not exist yet.

    In a cluster, the topic gets replicas on three brokers, or else on two. `config` may declare
    another `min.insync.replicas`.
    """
    factors = _REPLICATED if brokers(answers, admin) > 1 else _ALONE
    for factor in factors:
        new = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=factor,
            config={**(_IN_SYNC if factor > 1 else {}), **config},
        )
        try:
            asked = admin.create_topics([new], request_timeout=answers.patience_seconds)
            answers.waited(asked[name])
        except KafkaException as error:
            code = code_of(error)
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if code == KafkaError.INVALID_REPLICATION_FACTOR and factor != factors[-1]:
                continue
            answers.refuse(error, f"topic {name} could not be created", acl(name, "Create"))
        return
