"""Fixtures for tests of commands: a project, and a function that runs commands in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_in import Kappa, typist


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Returns a project without pipelines.

    Test files that need another project define a fixture with this name.
    """
    (tmp_path / "kappa.toml").touch()
    (tmp_path / "pipelines").mkdir()
    return tmp_path


@pytest.fixture
def kappa(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kappa:
    """Returns a function that runs a command in the project's folder."""
    monkeypatch.chdir(project)
    return typist(capsys, monkeypatch)
