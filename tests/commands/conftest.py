"""Fixtures of the tests of commands: a project, and whoever types in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_in import Kappa, typist


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without pipelines; files that need another one have a fixture of this name."""
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines").mkdir()
    return tmp_path


@pytest.fixture
def kappa(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kappa:
    """Types a command in the project's folder."""
    monkeypatch.chdir(project)
    return typist(capsys, monkeypatch)
