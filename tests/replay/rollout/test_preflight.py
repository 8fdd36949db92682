"""Laws of preflight: lost records of the log are found; an unknown fact refuses nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs
from plans import ORDERS, birth, declared, log

from kappa import Table, Topic
from kappa.replay.rollout.plan.cost import Cost, cost_of
from kappa.replay.rollout.plan.facts import LogFacts
from kappa.replay.rollout.plan.finding import Finding
from kappa.replay.rollout.plan.preflight import preflight_findings
from kappa.state.build import Birth
from kappa.state.offsets import Offsets
from kappa.tables.archive import ArchiveMark

DAY_MS = 86_400_000
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
COMPACT = {"cleanup.policy": "compact", "retention.ms": "-1", "delete.retention.ms": str(DAY_MS)}
PAID = Topic("orders", event="id string, n int", partitions=2, identity="id")
LATEST = Topic("orders", event="id string, n int", partitions=2, kind="compacted", key="id")


def found(
    facts: LogFacts | None = None,
    *,
    topic: Topic = ORDERS,
    serving: Birth | None = None,
    **cost: object,
) -> list[Finding]:
    facts = facts or log()
    pipeline = declared(topic=topic).pipeline
    known = cost_of({topic.name}, facts.beginning, facts, serving=None, disk=None, replayed=None)
    return list(preflight_findings(pipeline, facts, replace(known, **cost), serving))


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize("seconds", [None, 0.1, 1e9])
def test_a_topic_that_keeps_everything_has_nothing_in_the_way(seconds: float | None) -> None:
    assert found(log(config=KEPT), seconds=seconds) == []


def test_what_is_not_known_refuses_nothing() -> None:
    assert found() == []
    assert found(log(config={})) == []
    assert found(log(config={"cleanup.policy": "delete", "retention.ms": "long"})) == []


def test_a_lost_beginning_has_a_name_and_every_partition() -> None:
    finding = only(found(log(beginning=41)))

    assert (finding.name, finding.refuses) == ("gap", True)
    partitions = "orders partition 0 begins at offset 41, partition 1 begins at offset 41:"
    assert finding.message.startswith(partitions)


@pytest.mark.parametrize(
    ("retention_s", "seconds", "refuses"),
    [(3600, 3601.0, True), (3600, 1801.0, False), (3600, 10.0, False), (3600, None, False)],
)
def test_short_retention_is_refused(retention_s: int, seconds: float | None, refuses: bool) -> None:
    """A finite retention that is long enough is only reported."""
    facts = log(config={**KEPT, "retention.ms": str(retention_s * 1000)})
    finding = only(found(facts, seconds=seconds))

    assert finding.refuses is refuses
    kept = "topic orders keeps records for 60 min (retention.ms=3600000)"
    assert finding.message.startswith(kept)
    assert finding.name == ("retention:orders" if refuses else "")


def test_a_retention_takes_nothing_away_that_is_archived() -> None:
    archived = Topic("orders", event="id string, n int", partitions=2, key="id", archive=True)
    short = log(end=1_000_000, config={**KEPT, "retention.ms": "60000"})
    mark = ArchiveMark("orders", "id-of-orders", "f", {0: 0, 1: 0}, {0: 1_000_000, 1: 900_000})
    # `archived` is the topic as declared, or as it was before.
    taken = {"topic": archived, "seconds": 3_600.0}

    def behind(ends: dict[int, int], **facts: Offsets) -> LogFacts:
        return replace(short, archived=(structs.replace(mark, end=ends),), **facts)

    assert found(replace(short, archived=(mark,)), **taken) == []
    # An archive far behind may miss records before the topic loses them.
    for ends in ({0: 1_000_000, 1: 400_000}, {0: 1_000_000}):
        assert only(found(behind(ends), **taken)).refuses
    # A partition that is empty, or has few records yet, misses nothing.
    for end in (0, 9_000):
        young = behind({0: 1_000_000}, end=Offsets({"orders": {0: 1_000_000, 1: end}}))
        assert found(young, **taken) == []
    # An archive that is no longer declared is not continued.
    assert only(found(replace(short, archived=(mark,)), seconds=3_600.0)).refuses
    assert only(found(short, **taken)).refuses


def test_a_retention_by_size_is_told() -> None:
    finding = only(found(log(config={**KEPT, "retention.bytes": "1000000"})))

    assert not finding.refuses
    assert "keeps 1.0 MB a partition" in finding.message


@pytest.mark.parametrize(("hours", "refuses"), [(25, True), (13, False)])
def test_tombstones_that_go_before_the_replay_ends_refuse_it(hours: int, refuses: bool) -> None:
    finding = only(found(log(config=COMPACT), topic=LATEST, seconds=hours * 3600.0))

    assert finding.refuses is refuses
    assert "keeps tombstones for 24 h 0 min (delete.retention.ms=86400000)" in finding.message


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_tombstones_that_last_long_enough_are_not_talked_of(seconds: float | None) -> None:
    assert found(log(config=COMPACT), topic=LATEST, seconds=seconds) == []


RETAINED = "declared as retained and has cleanup.policy="
OLDER = "keys older than 24 h 0 min are deleted"


@pytest.mark.parametrize(
    ("topic", "policy", "retention", "refuses", "says"),
    [
        (ORDERS, "compact", None, True, f"{RETAINED}compact"),
        (ORDERS, "compact,delete", None, True, f"{RETAINED}compact,delete"),
        (LATEST, "delete", DAY_MS, True, OLDER),
        (LATEST, "compact,delete", DAY_MS, False, OLDER),
        (LATEST, "delete", -1, False, "it is never compacted"),
    ],
)
def test_a_policy_that_contradicts_the_kind_is_said(
    topic: Topic, policy: str, retention: int | None, refuses: bool, says: str
) -> None:
    kept = {} if retention is None else {"retention.ms": str(retention)}
    finding = only(found(log(config={"cleanup.policy": policy, **kept}), topic=topic))

    assert finding.refuses == refuses
    assert finding.name == ("policy:orders" if refuses or "keys older" in says else "")
    assert says in finding.message


PAYMENTS = {"event_time": "at", "lateness": "1 hour", "identity": "id"}


@pytest.mark.parametrize(
    ("declares", "found_type", "says"),
    [
        ({"identity": "id"}, "CreateTime", "declares identity for it"),
        (PAYMENTS, "CreateTime", "declares lateness and identity for it"),
        ({"identity": "id"}, "LogAppendTime", ""),
        ({}, "CreateTime", ""),
    ],
)
def test_log_time_needs_brokers_time(declares: dict[str, str], found_type: str, says: str) -> None:
    """A topic without the broker's timestamps is refused, and nothing can allow it."""
    # The types of `declares` are those of the parameters above.
    topic = Topic("orders", event="id string, n int, at timestamp", partitions=2, **declares)  # type: ignore[arg-type]
    findings = found(log(config={**KEPT, "message.timestamp.type": found_type}), topic=topic)

    assert [(finding.refuses, finding.name) for finding in findings] == [(True, "")] * bool(says)
    for finding in findings:
        assert says in finding.message
        assert "--set message.timestamp.type=LogAppendTime" in finding.hint


@pytest.mark.parametrize(("found_type", "refusals"), [("CreateTime", 1), ("LogAppendTime", 0)])
def test_rows_that_expire_need_the_brokers_time(found_type: str, refusals: int) -> None:
    facts = log(config={**KEPT, "message.timestamp.type": found_type})
    made = declared(topic=ORDERS).pipeline
    pipeline = replace(made, tables=(Table("t", expire="at", after="1 hour"),))
    cost = cost_of({"orders"}, facts.beginning, facts, serving=None, disk=None, replayed=None)

    findings = list(preflight_findings(pipeline, facts, cost, None))

    assert [(finding.refuses, finding.name) for finding in findings] == [(True, "")] * refusals
    assert all("rows that expire go by the broker's time" in each.message for each in findings)


def cluster(brokers: int, replicas: int, in_sync: str | None) -> LogFacts:
    config = KEPT if in_sync is None else {**KEPT, "min.insync.replicas": in_sync}
    return replace(log(config=config), brokers=brokers, replicas={"orders": replicas})


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (cluster(3, 1, "1"), "has one replica of each partition in a cluster of 3 brokers"),
        (cluster(2, 1, None), "has one replica of each partition in a cluster of 2 brokers"),
        (cluster(3, 3, "1"), "has min.insync.replicas=1 in a cluster of 3 brokers"),
    ],
)
def test_a_log_that_one_broker_can_take_along_refuses_by_name(facts: LogFacts, says: str) -> None:
    finding = only(found(facts))

    assert (finding.name, finding.refuses) == ("replication:orders", True)
    assert says in finding.message
    assert finding.hint


@pytest.mark.parametrize(
    "facts",
    [
        *(cluster(3, 3, in_sync) for in_sync in ("2", None, "many")),
        *(cluster(1, 1, "1"), replace(cluster(3, 1, "1"), replicas={})),
    ],
)
def test_a_log_that_survives_a_broker_or_has_one_alone_is_not_talked_of(facts: LogFacts) -> None:
    assert found(facts) == []


@pytest.mark.parametrize(("replicas", "in_sync"), [(2, "2"), (3, "3")])
def test_topic_without_spare_brokers_is_told(replicas: int, in_sync: str) -> None:
    """The finding says that such a topic accepts no records while a broker is away."""
    finding = only(found(cluster(3, replicas, in_sync)))

    assert not finding.refuses
    assert "nothing can be produced to it" in finding.message


@pytest.mark.parametrize(
    ("topic", "end", "cores", "says"),
    [
        (PAID, 5_000_000, 3, "10,000,000 records of topic orders are in 2 partitions, and each is"),
        (PAID, 5_000_000, 2, ""),
        (PAID, 5_000_000, 0, ""),
        (PAID, 4_000_000, 8, ""),
        (ORDERS, 5_000_000, 3, ""),
    ],
)
def test_identity_leaves_cores_waiting(topic: Topic, end: int, cores: int, says: str) -> None:
    """A long replay of a topic with an identity reports that cores will wait."""
    facts = log(end=end)
    unknown = {"serving": None, "disk": None, "replayed": None}
    cost = cost_of({"orders"}, facts.beginning, facts, cores=cores, **unknown)

    findings = list(preflight_findings(declared(topic=topic).pipeline, facts, cost, None))

    assert [finding.refuses for finding in findings] == [False] * bool(says)
    assert all(says in finding.message for finding in findings)


def test_a_replay_that_is_slower_than_what_comes_in_never_catches_up() -> None:
    finding = only(found(rate=900.0, ingest=1_000.0))

    assert (finding.name, finding.refuses) == ("rate", True)
    assert "it will never catch up" in finding.message
    assert found(rate=1_001.0, ingest=1_000.0) == []
    assert found(rate=None, ingest=1_000.0) == []
    assert found(rate=900.0, ingest=None) == []


def test_a_disk_that_would_be_full_refuses() -> None:
    full = only(found(disk_needed=2_000_000, disk_free=1_000_000)).message
    assert full.startswith("the new build takes about 2.0 MB, and 1.0 MB are free")
    assert found(disk_needed=None, disk_free=0) == []
    assert found(disk_needed=1, disk_free=1) == []


def test_another_number_of_partitions_than_at_birth_is_told() -> None:
    topic = Topic("orders", event="id string, n int", partitions=1, key="id")
    finding = only(found(serving=birth("a", declared(topic=topic))))

    partitions = "topic orders has 2 partitions, and had 1 when build a was born"
    assert finding.message == f"{partitions}: keys may lie elsewhere now"
    assert not finding.refuses


def test_another_number_of_partitions_than_declared_refuses_whatever_is_allowed() -> None:
    finding = only(found(log(partitions=3)))

    assert (finding.refuses, finding.name) == (True, "")
    assert finding.hint == "declare partitions=3"


def test_a_topic_that_is_not_there_is_one_finding() -> None:
    finding = only(found(log(ids={}), seconds=None))

    assert finding.message == "topic orders of pipeline flights is not on the broker"


def test_a_cost_of_nothing_is_no_reason() -> None:
    assert list(preflight_findings(declared().pipeline, log(), Cost(()), None)) == []
