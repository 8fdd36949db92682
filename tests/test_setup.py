"""The setup of a machine: it names each step, and needs no project."""

from __future__ import annotations

import subprocess
import sys

import pytest
from house import HOUSE

from kappa.base.errors import SettingsError
from kappa.base.settings import load_settings, load_settings_anywhere


@pytest.mark.jvm
def test_the_setup_runs_outside_a_project(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "kappa.setup"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[-2].startswith("compiling the loops")
    assert lines[-1].startswith("ready: Java ")
    assert [*tmp_path.iterdir()] == []


def test_settings_without_a_project_are_the_environments(tmp_path, monkeypatch):
    monkeypatch.setenv("KAPPA__JARS__REPOSITORY", "https://repository.example/")

    found = load_settings_anywhere(tmp_path)

    assert (found.jars.repository, found.project) == ("https://repository.example/", tmp_path)
    with pytest.raises(SettingsError, match=r"there is no kappa\.toml"):
        load_settings(tmp_path)


def test_settings_of_a_project_are_found_from_below(tmp_path):
    (tmp_path / "kappa.toml").write_text('[jars]\ncache = "/jars"\n', encoding="utf-8")
    (tmp_path / "pipelines").mkdir()

    assert str(load_settings_anywhere(tmp_path / "pipelines").jars.cache) == "/jars"
    assert load_settings_anywhere(HOUSE / "tests") == load_settings(HOUSE)
