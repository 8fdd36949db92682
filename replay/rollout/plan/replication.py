"""The brokers that may be lost before records are: what a cluster keeps of a topic. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kappa.replay.rollout.plan.finding import Finding

_IN_SYNC = "min.insync.replicas"


def least_brokers(up: int, replicas: Iterable[int]) -> int:
    """Returns how many brokers a cluster has, at least, by those up and the topics' replicas.

    A broker that is away is one of the cluster, too.
    """
    return max(up, *replicas, 0)


def replication(
    topic: str, brokers: int, replicas: int, config: Mapping[str, str] | None
) -> Iterator[Finding]:
    """Yields what is lost of a topic, or not taken any more, if one of several brokers is lost.

    Facts that are not known find nothing. One broker alone has one replica of everything.
    """
    if brokers < 2 or not replicas:
        return
    name, on = f"replication:{topic}", f"in a cluster of {brokers} brokers"
    in_sync = (config or {}).get(_IN_SYNC, "")
    if replicas < 2:
        yield Finding(
            f"topic {topic} has one replica of each partition {on}: if a broker loses its disk, "
            "that part of the log is gone, and no replay finds it",
            "give it more by Kafka's kafka-reassign-partitions.sh: docs/howto/runbook.md",
            name,
        )
    elif in_sync == "1":
        yield Finding(
            f"topic {topic} has {_IN_SYNC}=1 {on}: a record that one broker alone has is "
            "acknowledged, and if that one is lost, so is the record",
            f"kappa topics alter {topic} --set {_IN_SYNC}=2",
            name,
        )
    elif in_sync.isdecimal() and int(in_sync) >= replicas:
        yield Finding(
            f"topic {topic} has {replicas} replicas and {_IN_SYNC}={in_sync}: while any of its "
            "brokers is away, nothing can be produced to it",
            refuses=False,
        )
