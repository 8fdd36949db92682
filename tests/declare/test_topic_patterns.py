"""Patterns of topics: which topics join, by a recorded step, and which patterns are refused."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from kappa.base.errors import DeclarationError, UsageError
from kappa.code.code_snapshot import snapshot_files
from kappa.code.fingerprint import compute_fingerprint, version_differences
from kappa.code.project import LoadedProject, load_project
from kappa.declare.topic_patterns import (
    JoinedTopic,
    JoinedTopics,
    NothingJoined,
    before_joining,
    joined_path,
    matching_topics,
    put_joined,
)
from kappa.kafka.client import TopicFacts
from kappa.replay.status.status import Unread, unread_topics
from kappa.replay.status.topics.join import Joining, join_topics
from kappa.state.build import Birth, TopicBirth

PATTERN = r"logs\..*"
HEAD = "from kappa import Sink, Table, Topic, count, pipeline\n"
PIPELINE = r"""
LOGS = Topic(pattern="logs\\..*", event="id string, n int")
NAMED = Topic("named", event="id string")

@pipeline(reads={"logs": LOGS, "named": NAMED},
          writes=[Table("seen", keys=("id",), fold={"n": count()}), SINKS])
def web(logs, named):
    return {"seen": logs.select("id").union(named.select("id"))}
"""

ADS = """
ADS = Topic("ads", event="id string")

@pipeline(reads={"ads": ADS},
          writes=[Table("ad", keys=("id",), fold={"n": count()}), Sink("logs.out", of="ad")])
def ads(ads):
    return {"ad": ads}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines").mkdir()
    return tmp_path


def declare(project: Path, text: str = PIPELINE, sinks: str = "") -> None:
    text = HEAD + textwrap.dedent(text).replace(", SINKS", sinks)
    (project / "pipelines" / "web.py").write_text(text)


def record(project: Path, *names: str, pattern: str = PATTERN) -> None:
    put_joined(project, JoinedTopics(pattern, tuple(JoinedTopic(name, 2) for name in names)))


def refused(project: Path) -> DeclarationError:
    with pytest.raises(DeclarationError) as error:
        load_project(project)
    return error.value


def version(project: LoadedProject) -> tuple[str, dict[str, str]]:
    found = compute_fingerprint(
        project.pipelines["web"], *_place(project), find=project.sources.find
    )
    return found.version, dict(found.parts)


def _place(project: LoadedProject) -> tuple[str, str]:
    place = project.places["web"]
    return place.module, place.attribute


def test_a_pattern_is_read_as_the_topics_that_have_joined_it(project: Path) -> None:
    declare(project)
    record(project, "logs.a", "logs.b")

    loaded = load_project(project)
    web = loaded.pipelines["web"]

    assert [topic.name for topic in web.topics] == ["logs.a", "logs.b", "named"]
    assert [topic.partitions for topic in web.topics] == [2, 2, 1]
    assert [topic.of_pattern for topic in web.topics] == [PATTERN, PATTERN, None]
    assert [topic.name for topic in web.inputs["logs"]] == ["logs.a", "logs.b"]
    assert web.parameters_of(web.topics[1]) == ["logs"]
    # A build runs from its snapshot, so the list is in it.
    assert joined_path(PATTERN) in snapshot_files("pipelines.web", loaded.sources.find)


def test_a_topic_that_joins_is_a_change_with_its_reason(project: Path) -> None:
    declare(project)
    record(project, "logs.a")
    before, old = version(load_project(project))
    record(project, "logs.a")
    assert version(load_project(project))[0] == before

    record(project, "logs.a", "logs.b")
    after, new = version(load_project(project))
    assert after != before
    assert version_differences(old, new) == ("topic logs.b is new",)


def test_a_pattern_that_nothing_has_joined_is_refused_but_by_the_command(project: Path) -> None:
    declare(project)
    found = refused(project)
    assert found.message.endswith(f"web.py:3: no topic has joined the pattern {PATTERN}")
    assert found.hint.startswith(f"kappa topics join '{PATTERN}', once a topic of such a name is")
    with before_joining():
        loaded = load_project(project)
    assert [each.name for each in loaded.pipelines["web"].patterns] == [PATTERN]

    record(project, "other")
    assert "has topic other, and the pattern is" in refused(project).message
    with before_joining(NothingJoined), pytest.raises(DeclarationError, match="has topic other"):
        load_project(project)
    (project / joined_path(PATTERN)).write_text('{"topics": 1}')
    assert "lists no topics" in refused(project).message


@pytest.mark.parametrize(
    ("topic", "sentence"),
    [
        ('Topic(pattern="logs[", event="id string")', "is not a regular expression"),
        ('Topic(pattern="", event="id string")', "a topic has the pattern"),
        ('Topic("logs", pattern="l.*", event="id string")', "has the pattern l.*, too"),
        ('Topic(pattern="l.*", event="id string", kind="compacted", key="id")', "compacted"),
        ('Topic(pattern="l.*", event="id string", partitions=3)', "has partitions=3"),
        ('Topic(event="id string")', "is not a valid name of a Kafka topic"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(
    project: Path, topic: str, sentence: str
) -> None:
    record(project, "logs", pattern="l.*")
    declare(project, f"LOGS = {topic}\n")
    found = refused(project)
    assert "web.py:2: " in found.message
    assert sentence in found.message


def test_a_topic_is_declared_by_its_name_or_by_one_pattern(project: Path) -> None:
    record(project, "logs.a", "logs.b")
    declare(project, PIPELINE.replace('"named", event', '"logs.new", event'))
    assert "matches topic logs.new, which is declared by its name at" in refused(project).message

    record(project, "logs.b", pattern=r".*\.b")
    declare(project, PIPELINE.replace('Topic("named"', r'Topic(pattern=".*\\.b"'))
    assert "reads topic logs.b twice" in refused(project).message


def test_a_sink_of_the_project_never_joins(project: Path) -> None:
    record(project, "logs.a", "logs.out")
    declare(project, sinks=', Sink("logs.out", of="seen")')
    assert "goes to a topic that its own pipeline reads" in refused(project).message
    declare(project)
    (project / "pipelines" / "ads.py").write_text(HEAD + ADS)
    found = refused(project)
    assert "topic logs.out has joined the pattern" in found.message
    assert "--leave logs.out" in found.hint
    with before_joining():
        assert load_project(project).pipelines.keys() == {"ads", "web"}


def test_the_latest_of_a_pattern_has_no_meaning(project: Path) -> None:
    record(project, "logs.a")
    text = PIPELINE.replace('event="id string, n int"', 'event="id string, n int", key="id"')
    declare(project, text, sinks=', Table("last", latest=LOGS)')
    assert "is the latest of the pattern" in refused(project).message


def test_internal_topics_and_those_of_sinks_never_match() -> None:
    names = ("logs.b", "logs.a", "_logs.c", "__consumer_offsets", "logs.out", "my.logs.a")
    assert matching_topics(PATTERN, names, {"logs.out"}) == ("logs.a", "logs.b")
    assert matching_topics(".*", names, {"logs.out"}) == ("logs.a", "logs.b", "my.logs.a")


def test_what_becomes_of_each_topic_is_said(project: Path) -> None:
    declare(project)
    record(project, "logs.a", "logs.b", "logs.gone", "logs.old")
    pattern = load_project(project).pipelines["web"].patterns[0]
    there = {
        name: TopicFacts(name, "id", partitions)
        for name, partitions in (("logs.a", 2), ("logs.b", 3), ("logs.new", 1), ("logs.old", 2))
    }

    found = join_topics(pattern, there, frozenset(), ["logs.old"])

    assert found.became == {
        "logs.a": Joining.STAYS,
        "logs.b": Joining.PARTITIONS,
        "logs.gone": Joining.MISSING,
        "logs.new": Joining.JOINS,
        "logs.old": Joining.LEAVES,
    }
    assert found.topics.topics == (
        JoinedTopic("logs.a", 2),
        JoinedTopic("logs.b", 3),
        JoinedTopic("logs.gone", 2),
        JoinedTopic("logs.new", 1),
    )
    with pytest.raises(UsageError, match="topic nope does not match the pattern"):
        join_topics(pattern, there, frozenset(), ["nope"])


def test_a_pattern_that_matches_nothing_is_refused(project: Path) -> None:
    declare(project)
    with before_joining():
        pattern = load_project(project).pipelines["web"].patterns[0]
    with pytest.raises(UsageError, match="matches no topic of the broker"):
        join_topics(pattern, {"other": TopicFacts("other", "id", 1)}, frozenset())


class Broker:
    """The names of a broker's topics, and whether the broker was asked."""

    def __init__(self, *, is_asked: bool = True) -> None:
        self._is_asked = is_asked

    def topics(self) -> dict[str, object]:
        assert self._is_asked, "no pattern is read"
        return dict.fromkeys(("logs.a", "logs.b", "other"))


def test_what_is_not_read_is_reported_until_a_build_of_the_pipeline_reads_it() -> None:
    def born(pipeline: str, *topics: str, pattern: str | None = PATTERN) -> Birth:
        return Birth(
            *(f"{pipeline}-1", pipeline, "v1", {}, 1, {}, "m"),
            tuple(TopicBirth(name, "id", "retained", 1, pattern) for name in topics),
            *((), {}, {}, {}, "", ""),
        )

    broker = Broker()
    live, other = born("web", "logs.a"), born("ads", "ad", pattern=None)
    assert unread_topics([other], Broker(is_asked=False)) == ()
    assert unread_topics([live, other], broker) == (Unread("web", PATTERN, "logs.b"),)
    assert unread_topics([live, born("web", "logs.a", "logs.b")], broker) == ()
