"""Laws of the collector as a child: it runs if topics are named, and again after a kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from collecting import until, write_project

from kappa.base.settings import load_settings
from kappa.kafka.client import Log
from kappa.replay.platform.at_broker import CollectorProcess
from kappa.serving.collect.collector import LOCK
from kappa.state.lock import holder
from kappa.state.store import Store

pytestmark = [pytest.mark.jvm, pytest.mark.fault]


def test_it_runs_while_topics_are_named_and_again_after_a_kill(log: Log, tmp_path: Path) -> None:
    settings = load_settings(write_project(tmp_path, "visits"))
    store, said = Store(settings.root_url), list[str]()
    collector = CollectorProcess(store, settings, say=said.append)

    def listens(times: int) -> bool:
        collector.ensure_running(log.bootstrap_servers)
        path = store.path("logs/collector.log")
        return path.exists() and path.read_text().count("events are taken at") == times

    try:
        until(lambda: listens(1), "the collector to listen")
        held = holder(store.path(LOCK))
        assert held is not None
        os.kill(held.pid, signal.SIGKILL)
        until(lambda: listens(2), "another collector to listen")
        (line,) = said
        assert line.startswith("the collector ended with -9, see ")
    finally:
        collector.end()
    assert holder(store.path(LOCK)) is None


def test_without_topics_there_is_none(log: Log, tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    store = Store(settings.root_url)
    collector = CollectorProcess(store, settings, say=lambda _: None)

    collector.ensure_running(log.bootstrap_servers)

    assert not store.path("logs/collector.log").exists()
