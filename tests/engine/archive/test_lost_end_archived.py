"""An archive whose topic lost its end stops, reports that, and is not read by jobs any more."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from losing import Restarted

from kappa import Topic
from kappa.base.settings import load_settings
from kappa.engine.archive.archiver import Archiver
from kappa.engine.read.archive_reader import Archives
from kappa.engine.read.source import KafkaAccess, LogSource
from kappa.kafka.client import Log
from kappa.replay.status.archive import ArchiveState, archive_status, verify_archives
from kappa.state.offsets import Offsets
from kappa.state.store import Store
from kappa.state.witness import NO_EPOCH

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault]


class Archiving:
    """An archiver's process with its messages."""

    def __init__(self, store: Store, log: Log, topic: Topic) -> None:
        self.topic = topic
        self.said: list[str] = []
        self.source = LogSource(KafkaAccess(log.bootstrap_servers, {}), log)
        self.work = Archiver(
            store, log, self.source, [topic], every_seconds=0.0, say=self.said.append
        )

    def on(self) -> list[str]:
        """Archives everything that is there; returns the messages."""
        while self.work.step(self.topic, threading.Event()):
            pass
        return self.said


@pytest.mark.parametrize(
    ("after", "same_process"),
    [
        pytest.param(0, True, id="shorter", marks=pytest.mark.sweep),
        pytest.param(0, False, id="shorter-away"),
        pytest.param(3, True, id="longer"),
        pytest.param(3, False, id="longer-away", marks=pytest.mark.sweep),
    ],
)
def test_it_stops_says_what_it_has_and_serves_no_slice(
    kafka: Restarted, tmp_path: Path, topic_name: str, after: int, *, same_process: bool
) -> None:
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    store = Store(settings.root_url)
    topic = Topic(topic_name, event="n int", archive=True)
    facts = kafka.log.create(topic)
    kafka.produce(topic_name, *(f'{{"n": {n}}}' for n in range(5)))
    first = Archiving(store, kafka.log, topic)
    assert first.on() == []
    archives = Archives(store, [topic], {topic_name: facts.id}, kafka.log)
    (mark,) = archives.marks()
    assert (mark.end, mark.witnesses[0].offset) == ({0: 5}, 4)
    assert mark.witnesses[0].epoch > NO_EPOCH
    into = tmp_path / "into"
    into.mkdir()
    assert archives.take(topic, {0: (0, 5)}, {}, into).keys() == {0}

    kafka.lose(topic_name)
    kafka.produce(topic_name, *(f'{{"n": {n}}}' for n in range(10, 10 + after)))
    second = first if same_process else Archiving(store, kafka.log, topic)

    lost = f"{topic_name} partition 0 was cut at offset 4 and has lost offset 4"
    why = f"the log has lost its end, which the archive has: {lost}"
    for _ in range(2):
        assert second.on() == [f"topic {topic_name} is not archived any further: {why}"]
    assert archives.marks() == (mark,)
    assert archives.take(topic, {0: (0, 5)}, {}, into) == {}
    (status,) = archive_status(settings, store, {topic_name: topic}, kafka.log)
    assert (status.state, status.note.partition(";")[0]) == (ArchiveState.STOPPED, why)
    (checked,) = verify_archives(settings, store, {topic_name: topic}, kafka.log, None)
    assert checked.found.compared == 4
    assert checked.found.wrong == f"the topic has lost its end, and the archive has it: {lost}"
    for each in {id(one): one for one in (first, second)}.values():
        each.source.close()


def test_a_broker_that_loses_nothing_stops_no_archive(
    kafka: Restarted, tmp_path: Path, topic_name: str
) -> None:
    (tmp_path / "kappa.toml").touch()
    store = Store(load_settings(tmp_path).root_url)
    topic = Topic(topic_name, event="n int", archive=True)
    facts = kafka.log.create(topic)
    kafka.produce(topic_name, '{"n": 1}')
    archiving = Archiving(store, kafka.log, topic)
    assert archiving.on() == []

    kafka.lose(topic_name, batches=0)
    kafka.produce(topic_name, '{"n": 2}', '{"n": 3}')

    assert archiving.on() == []
    archives = Archives(store, [topic], {topic_name: facts.id}, kafka.log)
    assert archives.end() == Offsets({topic_name: {0: 3}})
    archiving.source.close()
