"""A sink of a root in a bucket, whose control host is lost: another host continues.

The position is in the topic, and the files that the position needs are in the bucket. Neither is in
the host's own folder.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from changing import ChangingWorld
from object_store import ObjectStore, bucket_settings
from sinking import (
    courier,
    cursor_of,
    ensure_has_all,
    ensure_sent_once,
    records_of,
    running_outlet,
    served_records,
    wait_for,
)

from kappa.base.settings import load_settings
from kappa.declare.sink import SinkBirth
from kappa.kafka.broker.broker import Broker
from kappa.kafka.client import Log
from kappa.serving.outlets.changes.change_set import ChangeKind
from kappa.serving.outlets.sinks import sink_outlet
from kappa.serving.outlets.sinks.sink_outlet import SinkContext, SinkOutlet
from kappa.serving.outlets.sinks.sink_status import read_sink_state
from kappa.state.store import open_store

pytestmark = [pytest.mark.long, pytest.mark.jvm, pytest.mark.fault]


class Host:
    """A control host of a root, whose disk has only the project."""

    def __init__(self, folder: Path, settings: str, bootstrap_servers: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "kappa.toml").write_text(settings)
        self._settings = load_settings(folder)
        self._bootstrap_servers = bootstrap_servers
        self.store = open_store(self._settings)

    def courier(self, fail: str = "") -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Runs a courier within the block; its log is next to the host's folder."""
        root, log = self._settings.root, self.folder.with_suffix(".log")
        return courier(self.folder, root, self._bootstrap_servers, fail=fail, log=log)

    def outlet(self, log: Log, topic: str) -> AbstractContextManager[SinkOutlet]:
        return running_outlet(SinkOutlet(SinkContext(self.store, log, 3600.0), topic))

    def last_sent(self, topic: str) -> ChangeKind | None:
        """Returns the kind of the last change set that was sent, or None."""
        found = read_sink_state(self.store, topic)
        return None if found is None or found.last is None else ChangeKind(found.last.kind)

    def shown(self, topic: str) -> tuple[str, str]:
        """Returns the state and the error of a sink, as this host knows them."""
        found = read_sink_state(self.store, topic)
        return ("", "") if found is None else (found.state, found.error)

    def lose(self) -> None:
        """Deletes everything on this host."""
        shutil.rmtree(self.folder)


@pytest.fixture
def new_host(object_store: ObjectStore, broker: Broker, tmp_path: Path) -> Callable[[str], Host]:
    settings = bucket_settings(
        object_store.new_root(), object_store.storage, broker.bootstrap_servers
    )
    return lambda name: Host(tmp_path / name, settings, broker.bootstrap_servers)


@pytest.fixture
def old(new_host: Callable[[str], Host]) -> Host:
    host = new_host("old")
    host.store.control.take(over=False)
    return host


@pytest.fixture
def sink(topic_name: str) -> SinkBirth:
    return SinkBirth(topic_name, "totals")


@pytest.fixture
def world(old: Host, sink: SinkBirth) -> Iterator[ChangingWorld]:
    made = ChangingWorld(old.store, 7, (sink,), now=time.time())
    made.fold()
    yield made
    made.close()


def fold_changes(world: ChangingWorld, sink: SinkBirth, slices: int = 1) -> None:
    """Folds slices, and continues until a served row has changed."""
    before = served_records(world.store, sink.of)
    for _ in range(slices):
        world.fold()
    while served_records(world.store, sink.of) == before:
        world.fold()


@pytest.mark.parametrize(
    "died",
    [
        "",
        pytest.param("sink.before_commit", marks=pytest.mark.sweep),
        pytest.param("sink.after_commit", marks=pytest.mark.sweep),
    ],
)
def test_a_sink_goes_on_at_its_position_when_its_host_is_lost(
    log: Log,
    old: Host,
    new_host: Callable[[str], Host],
    world: ChangingWorld,
    sink: SinkBirth,
    died: str,
) -> None:
    """The courier is killed while it is idle, or while it sends.

    Slices are folded before the next courier runs.
    """
    with old.courier():
        for _ in range(3):
            fold_changes(world, sink)
            ensure_has_all(log, world.store, sink)
    if died:
        with old.courier(f"{died}:kill") as dying:
            fold_changes(world, sink)
            assert dying.wait(60) == -9
    world.close()
    old.lose()
    sent = records_of(log, sink.topic)

    new = new_host("new")
    new.store.control.take(over=True)
    world.move(new.store)
    fold_changes(world, sink, 3)
    with new.courier():
        ensure_has_all(log, world.store, sink)
        wait_for(lambda: new.last_sent(sink.topic) is not None, "the state of the sink")
        first = new.last_sent(sink.topic)
        fold_changes(world, sink)
        ensure_has_all(log, world.store, sink)
        world.serve(1 - world.builds.index(world.live), asked=False)
        ensure_has_all(log, world.store, sink)

    ensure_sent_once(log, sink.topic)
    there = records_of(log, sink.topic)
    assert there[: len(sent)] == sent
    assert len({cursor_of(each).split(".")[0] for each in there}) == 2
    # It is sent from the position on: the topic is not compared with all of the table.
    assert first is ChangeKind.SLICE


def test_a_host_that_does_not_know_that_it_has_lost_the_root_sends_nothing_more(
    log: Log,
    old: Host,
    new_host: Callable[[str], Host],
    world: ChangingWorld,
    sink: SinkBirth,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sink_outlet, "_FENCED_SECONDS", 0.2)
    with old.outlet(log, sink.topic):
        ensure_has_all(log, world.store, sink)
        world.close()
        new = new_host("new")
        new.store.control.take(over=True)
        world.move(new.store)
        with new.outlet(log, sink.topic):

            def is_superseded() -> bool:
                world.fold()
                return "is claimed by host" in old.shown(sink.topic)[1]

            wait_for(is_superseded, "the old host to be refused")
            fold_changes(world, sink, 3)
            ensure_has_all(log, world.store, sink)
            wait_for(lambda: new.shown(sink.topic) == ("follows", ""), "the new host")
            assert old.shown(sink.topic)[0] == "retries"
    ensure_sent_once(log, sink.topic)
