"""An archiver notices topics that the project's files name newly, without a changed Python file."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_archive import an_archiver, visit, wait_until

from kappa.declare.topic import Topic
from kappa.declare.topic_patterns import JoinedTopic, JoinedTopics, put_joined
from kappa.engine.read.archive_reader import Archives
from kappa.kafka.client import Log
from kappa.state.offsets import Offsets
from kappa.state.store import Store

pytestmark = pytest.mark.jvm

_RECORDS = 20
EVENT = "visitor string not null, n int"
PIPELINE = f"""
from kappa import Table, Topic, pipeline
VISITS = Topic(pattern={{pattern!r}}, event={EVENT!r}, archive=True)
@pipeline(reads={{{{"visits": VISITS}}}}, writes=[Table("all_visits")])
def p(visits):
    return {{{{"all_visits": visits}}}}
"""


def test_a_topic_that_joins_a_pattern_is_archived_from_then_on(
    log: Log, topic_name: str, tmp_path: Path
) -> None:
    pattern, names = rf"{topic_name}\..*", [f"{topic_name}.{each}" for each in "ab"]
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "kappa.toml").write_text("[archive]\nevery_seconds = 0.5\n")
    (tmp_path / "pipelines" / "p.py").write_text(PIPELINE.format(pattern=pattern))
    topics = [Topic(name, event=EVENT, archive=True) for name in names]
    ids = {topic.name: log.create(topic).id for topic in topics}
    for name in names:
        log.produce(map(visit, range(_RECORDS)), name)

    def join(*joined: str) -> None:
        put_joined(tmp_path, JoinedTopics(pattern, tuple(JoinedTopic(each, 1) for each in joined)))

    def is_archived(*wanted: Topic, records: int = _RECORDS) -> bool:
        archives = Archives(Store(tmp_path / ".kappa"), wanted, ids)
        return archives.end() == Offsets({each.name: {0: records} for each in wanted})

    join(names[0])
    archiver = an_archiver(tmp_path, log)
    try:
        wait_until(lambda: is_archived(topics[0]), archiver)
        assert Archives(Store(tmp_path / ".kappa"), topics[1:], ids).end().next == {}

        # An editor has written half of it: what was declared before is archived on.
        next((tmp_path / "topics" / "joined").glob("*.json")).write_text("{")
        log.produce(map(visit, range(_RECORDS)), names[0])
        wait_until(lambda: is_archived(topics[0], records=2 * _RECORDS), archiver)
        assert archiver.poll() is None

        join(*names)
        log.produce(map(visit, range(_RECORDS)), names[1])
        wait_until(lambda: is_archived(*topics, records=2 * _RECORDS), archiver)
    finally:
        archiver.terminate()
        archiver.wait(60)
        for name in names:
            log.delete(name)
