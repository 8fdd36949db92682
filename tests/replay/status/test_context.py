"""The project and root of a command: files that may change during the command are read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.replay.status.context import ProjectContext
from kappa.replay.status.run_records import Running


def test_ended_supervisor_has_no_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the supervisor ends between two readings, the broker is its broker or none."""
    (tmp_path / "kappa.toml").touch()
    found: list[Running | None] = [Running(1, "born", "localhost:9092", "then"), None]
    monkeypatch.setattr("kappa.replay.status.run_records.running", lambda _settings: found.pop(0))
    here = ProjectContext(tmp_path, None)

    assert [here.bootstrap_servers, here.bootstrap_servers] == ["localhost:9092", None]
