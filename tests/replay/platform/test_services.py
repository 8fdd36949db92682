"""Laws of the services that run next to the jobs: when each runs, and what a full disk ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from collecting import until, write_project

from kappa.base.settings import load_settings
from kappa.kafka.client import Log
from kappa.replay.platform import services as services_module
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.services import ClassArchiveService, CollectorService, Services
from kappa.serving.collect.collector import LOCK
from kappa.state.lock import current_holder
from kappa.state.store import Store


@pytest.mark.jvm
@pytest.mark.fault
def test_collector_runs_while_topics_are_named(log: Log, tmp_path: Path) -> None:
    """The collector runs while topics are named, and is started again after a kill."""
    settings = load_settings(write_project(tmp_path, "visits"))
    store, said = Store(settings.root_url), list[str]()
    collector = CollectorService(store, settings, say=said.append)

    def listens(times: int) -> bool:
        collector.ensure_running(log.bootstrap_servers)
        path = store.path("logs/collector.log")
        return path.exists() and path.read_text().count("events are taken at") == times

    try:
        until(lambda: listens(1), "the collector to listen")
        held = current_holder(store.path(LOCK))
        os.kill(held.pid, signal.SIGKILL)
        until(lambda: listens(2), "another collector to listen")
        (line,) = said
        assert line.startswith("the collector ended with -9, see ")
    finally:
        collector.end()
    assert current_holder(store.path(LOCK)) is None


def test_without_topics_there_is_no_collector(tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    store = Store(settings.root_url)
    collector = CollectorService(store, settings, say=lambda _: None)

    collector.ensure_running("127.0.0.1:9")

    assert not store.path("logs/collector.log").exists()


def test_full_disk_ends_all_but_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk, the archiver and the courier end; the collector stays."""
    folder = write_project(tmp_path, "visits")
    (folder / "pipelines").mkdir(exist_ok=True)
    (folder / "pipelines" / "p.py").write_text("# archive\n", encoding="utf-8")
    settings, did = load_settings(folder), list[str]()
    monkeypatch.setattr(services_module, "served_outlets", lambda _store: {"sink": None})
    monkeypatch.setattr(
        ChildProcess, "ensure_started", lambda self, *_: did.append(f"{self.what} starts")
    )
    monkeypatch.setattr(ChildProcess, "end", lambda self: did.append(f"{self.what} ends"))
    services = Services(Store(settings.root_url), settings, say=print)
    services.ensure_running("127.0.0.1:9", (), has_space=True, is_calm=False)
    assert {line for line in did if "starts" in line} == {
        *("the archiver starts", "the courier starts", "the collector starts")
    }
    did.clear()

    services.ensure_running("127.0.0.1:9", (), has_space=False, is_calm=False)

    assert did == ["the archiver ends", "the courier ends", "the collector starts"]


def test_class_archives_wait_for_calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Class archives are made once, by a child that starts when nobody waits for a JVM."""
    (tmp_path / "kappa.toml").touch()
    settings, begun = load_settings(tmp_path), list[str]()
    monkeypatch.setattr(services_module, "fetch_jars", lambda _settings: None)
    monkeypatch.setattr(services_module, "archives_to_make", lambda _jars: ["spark"])
    monkeypatch.setattr(ChildProcess, "start", lambda _self, module, *_: begun.append(module))
    said = list[str]()
    archives = ClassArchiveService(Store(settings.root_url), settings, say=said.append)

    archives.ensure_made(is_calm=False)
    assert (begun, said) == ([], [])
    archives.ensure_made(is_calm=True)
    archives.ensure_made(is_calm=True)

    assert begun == ["kappa.engine.spark.cds"]
    assert len(said) == 1
