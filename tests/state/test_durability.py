"""Laws of `durability`: an answer waits until all that it says is on the disk, or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kappa.base.settings import load_settings
from kappa.kafka.broker.properties import server_properties
from kappa.state.journal.events import Abandoned
from kappa.state.journal.journal import Journal
from kappa.state.store import open_store

FLUSHED = "log.flush.interval.messages=1\n"


@pytest.mark.parametrize(
    ("setting", "lasts"),
    [("", True), ('durability = "disk"', True), ('durability = "process"', False)],
)
def test_a_record_is_synced_and_then_its_name_unless_processes_alone_may_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, lasts: bool
) -> None:
    (tmp_path / "kappa.toml").write_text(setting, encoding="utf-8")
    settings = load_settings(tmp_path)
    store = open_store(settings)
    synced: list[str] = []
    sync = os.fsync

    def noted(handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append("folder" if path.is_dir() else "file")
        sync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for number in (1, 2):
        assert Journal(store).append(number, Abandoned(1, "no"))
        store.sync([store.path(f"journal/{number:020d}.json")])

    assert (synced[:2] == ["file", "folder"]) == lasts
    assert bool(synced) == lasts
    properties = server_properties(tmp_path, 1, 2, syncs=settings.syncs)
    assert (FLUSHED in properties) == lasts
