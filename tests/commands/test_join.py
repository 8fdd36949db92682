"""`kappa topics join` as it is typed, with a broker's list of topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from births import make_birth
from typing_in import Kappa

from kappa.declare.sink import SinkBirth
from kappa.declare.topic import Topic
from kappa.kafka.client import Log, TopicFacts
from kappa.replay.status.context import ProjectContext
from kappa.state.build import TopicBirth, put_birth
from kappa.state.journal.events import Staged
from kappa.state.journal.journal import Journal
from kappa.state.store import Store

PIPELINE = r"""
from kappa import Sink, Table, Topic, count, pipeline

LOGS = Topic(pattern="logs\\..*", event="id string")

@pipeline(reads={"logs": LOGS},
          writes=[Table("seen", keys=("id",), fold={"n": count()}), Sink("logs.out", of="seen")])
def web(logs):
    return {"seen": logs}
"""


class Topics:
    """A broker's client that lists topics."""

    def __init__(self) -> None:
        self.partitions = {"logs.a": 2, "logs.out": 1, "other": 1, "_logs.x": 1}

    def wait_until_ready(self, _patience_seconds: float) -> bool:
        return True

    def topics(self) -> dict[str, TopicFacts]:
        return {
            name: TopicFacts(name, "id", count, replicas=1)
            for name, count in self.partitions.items()
        }

    def create(self, topic: Topic, *, brokers_time: bool) -> TopicFacts:
        assert not brokers_time
        return TopicFacts(topic.name, "id", topic.partitions)

    def brokers(self) -> int:
        return 2

    def config(self, _name: str) -> dict[str, str]:
        return {}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Topics:
    there = Topics()
    monkeypatch.setattr(ProjectContext, "log", lambda _: there)
    return there


@pytest.fixture
def project(project: Path) -> Path:
    (project / "pipelines" / "web.py").write_text(PIPELINE)
    return project


def test_topics_join_stay_and_leave_by_the_command_alone(
    kappa: Kappa, broker: Topics, tmp_path: Path
) -> None:
    kappa("validate").has(2, out=r"  kappa topics join 'logs\..*'")

    joined = kappa("topics", "join", "-o", "json").json()
    assert [tuple(each.values()) for each in joined] == [("logs\\..*", "logs.a", 2, "joins")]
    listed = json.loads((tmp_path / "topics" / "joined" / "logs%5C..%2A.json").read_text())
    assert listed["topics"] == [{"name": "logs.a", "partitions": 2}]

    broker.partitions |= {"logs.b": 3}
    del broker.partitions["logs.a"]
    joined = kappa("topics", "join", r"logs\..*", "-o", "json").json()
    assert [(each["topic"], each["state"]) for each in joined] == [
        ("logs.a", "stays, and is not on the broker"),
        ("logs.b", "joins"),
    ]
    left = kappa("topics", "join", "--leave", "logs.a", "-o", "json").json()
    assert [(each["topic"], each["state"]) for each in left] == [
        ("logs.a", "leaves"),
        ("logs.b", "stays"),
    ]


def test_commands_on_other_topics_go_on_before_any_has_joined(
    kappa: Kappa, broker: Topics, tmp_path: Path
) -> None:
    text = PIPELINE.replace("@pipeline", 'ADS = Topic("ads", event="id string")\n\n@pipeline')
    (tmp_path / "pipelines" / "web.py").write_text(
        text.replace('"logs": LOGS}', '"logs": LOGS, "ads": ADS}').replace("(logs)", "(logs, ads)")
    )
    made = kappa("topics", "create", "-o", "json").json()
    assert [(each["topic"], each["state"]) for each in made] == [("ads", "made")]
    broker.partitions["ads"] = 1
    again = kappa("topics", "create", "-o", "json").json()
    assert [(each["topic"], each["state"]) for each in again] == [("ads", "was there")]


def test_validation_refuses_topics_that_cannot_be_collected(kappa: Kappa, tmp_path: Path) -> None:
    # Without a pipeline, no function of one is tried at Spark.
    (tmp_path / "pipelines" / "web.py").unlink()
    kappa("validate").has(0)
    (tmp_path / "kappa.toml").write_text('[collect]\ntopics = ["log"]\n')
    kappa("validate").has(2, "collect.topics names log, and the project declares no such topic")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("logs.*",), r"the project declares no topics by the pattern logs.*"),
        (("--leave", "nope"), r"topic nope does not match the pattern logs\..*"),
        (("--leave", "logs.a"), r"the pattern logs\..* matches no topic of the broker"),
    ],
)
def test_what_cannot_join_is_refused(
    kappa: Kappa, broker: Topics, arguments: tuple[str, ...], sentence: str
) -> None:
    kappa("topics", "join", *arguments).has(2, f"error: {sentence}")


def test_without_a_pattern_nothing_can_join(kappa: Kappa, broker: Topics, tmp_path: Path) -> None:
    text = PIPELINE.replace(r'pattern="logs\\..*"', '"logs"')
    (tmp_path / "pipelines" / "web.py").write_text(text)
    kappa("topics", "join").has(2, "declares no topics by a pattern")


def test_the_doctor_names_topics_that_are_not_read(
    kappa: Kappa, broker: Topics, tmp_path: Path
) -> None:
    store = Store(tmp_path / ".kappa")
    read = TopicBirth("logs.a", "id", "retained", 2, r"logs\..*")
    sink = SinkBirth("logs.out", "seen")
    put_birth(store, make_birth("b", topics=(read,), pipeline="web", sinks=(sink,)))
    Journal(store).append(1, Staged("web", "b", "v", ("new",)))
    assert "is not read" not in kappa("doctor").err

    broker.partitions["logs.b"] = 1
    kappa("doctor").has(
        0,
        r"topic logs.b matches the pattern logs\..* of pipeline web, and is not read: "
        r"kappa topics join 'logs\..*'",
        "nothing is damaged",
    )


def test_the_doctor_names_sinks_topics_that_one_broker_could_take_along(
    kappa: Kappa, broker: Topics, tmp_path: Path
) -> None:
    (tmp_path / "kappa.toml").write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    text = PIPELINE.replace(r'pattern="logs\\..*"', '"logs.a"')
    (tmp_path / "pipelines" / "web.py").write_text(text)

    ended = kappa("doctor")

    assert "at risk: topic logs.a has one replica" in ended.err
    assert "at risk: topic logs.out has one replica" in ended.err
    assert "topic other" not in ended.err


@pytest.mark.slow
def test_the_doctor_asks_a_lost_cluster_once(
    kappa: Kappa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kappa.toml").write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n')
    monkeypatch.setattr(Log, "topics", lambda _: pytest.fail("it was asked"))
    monkeypatch.setattr(Log, "brokers", lambda _: pytest.fail("it was asked"))

    ended = kappa("doctor")

    assert ended.err.count("no Kafka broker answers at 127.0.0.1:1") == 1
    assert "nothing is damaged" in ended.err
