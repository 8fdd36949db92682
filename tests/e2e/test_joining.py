"""Topics of a pattern, end to end: nothing is read before a topic has joined, and all after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from testbed import Testbed, platform

from kappa.declare.topic import Topic
from kappa.kafka.producer import ProducedRecord

# Six minutes of a worker; tests/declare/test_topic_patterns.py has its rules.
pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.timeout(1500)]

PATTERN = r"logs\..*"
PIPELINE = r"""
from kappa import Sink, Table, Topic, count, latest, pipeline, sum_

LOGS = Topic(pattern="logs\\..*", event="id string not null, n bigint, unused string")

@pipeline(
    reads={"logs": LOGS},
    writes=[
        Table("by_topic", keys=("topic",), fold={"events": count(), "total": sum_("n")}),
        Table("by_id", keys=("id",), fold={"events": count(), "n": latest("n")}),
        Sink("logs.out", of="by_topic"),
    ],
)
def web(logs):
    return {"by_topic": logs.withColumnRenamed("_topic", "topic"), "by_id": logs}
"""
SOME = "select topic, events::int as events, total::int as total from by_topic order by topic"


def produce(bed: Testbed, topic: str, *numbers: int) -> None:
    records = (
        ProducedRecord(json.dumps({"id": f"{topic}-{n % 3}", "n": n}).encode()) for n in numbers
    )
    bed.log.produce(records, topic)


def total(topic: str, *numbers: int) -> dict[str, object]:
    return {"topic": topic, "events": len(numbers), "total": sum(numbers)}


def test_a_topic_that_is_new_is_reported_and_joins_by_a_deploy(tmp_path: Path) -> None:
    # A slice of more than five offsets is Spark's, and a smaller one the job's own.
    with platform(tmp_path / "web", "[engine]\ndriver_rows = 5\n") as bed:
        for name, partitions in (("logs.a", 2), ("logs.b", 1), ("_logs.x", 1), ("other", 1)):
            bed.log.create(Topic(name, event="id string", partitions=partitions))
        bed.declare("web", PIPELINE)
        refused = bed.kappa("plan")
        assert refused.code == 2
        assert f"hint: kappa topics join '{PATTERN}'" in refused.err

        joined = bed.must("topics", "join", "-o", "json").json()
        assert [(each["topic"], each["partitions"]) for each in joined] == [
            ("logs.a", 2),
            ("logs.b", 1),
        ]
        produce(bed, "logs.a", *range(40))
        produce(bed, "logs.b", *range(7))
        bed.must("deploy", "--yes")
        assert bed.rows(SOME) == [total("logs.a", *range(40)), total("logs.b", *range(7))]
        produce(bed, "logs.b", 100)
        bed.wait_until_folded("web", bed.log.end(["logs.a", "logs.b"]))
        # Of a later slice of Spark's, the column that is not used is left out, of each topic.
        produce(bed, "logs.a", *range(200, 230))
        bed.wait_until_folded("web", bed.log.end(["logs.a", "logs.b"]))
        served = [
            total("logs.a", *range(40), *range(200, 230)),
            total("logs.b", *range(7), 100),
        ]
        assert bed.rows(SOME) == served
        bed.wait(lambda: "logs.out" in bed.log.topics(), "the sink's topic")

        # A topic that is new matches, and is not read before it joins.
        first = bed.live("web")
        bed.log.create(Topic("logs.c", event="id string"))
        produce(bed, "logs.c", 1, 2, 3)
        status = bed.must("status", "-o", "json").json()
        assert status["unread_topics"] == [
            {"pipeline": "web", "pattern": PATTERN, "topic": "logs.c"}
        ]
        assert "WARNING: topic logs.c matches the pattern" in bed.must("status").out
        assert f"is not read: kappa topics join '{PATTERN}'" in bed.must("doctor").err
        planned = bed.must("plan").out
        assert "topic logs.c matches the pattern" in planned
        assert "logs.out matches" not in planned
        bed.must("deploy", "--yes")
        assert bed.live("web") == first

        bed.must("topics", "join", PATTERN)
        planned = bed.must("plan").out
        assert "topic logs.c is new" in planned
        assert "matches the pattern" not in planned
        bed.must("deploy", "--yes")
        assert bed.live("web") != first
        assert bed.rows(SOME) == [*served, total("logs.c", 1, 2, 3)]
        assert bed.must("status", "-o", "json").json()["unread_topics"] == []

        # What was served before reads what it read, and a proof folds its own topics.
        bed.must("undo", "web", "--yes")
        assert bed.rows(SOME) == served
        assert bed.must("prove", "web").code == 0
