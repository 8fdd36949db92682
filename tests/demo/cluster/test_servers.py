"""Laws of a cluster's settings: they are valid settings of a project, and name its root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from demo.cluster.object_store import KEY, SECRET, RunningStore
from demo.cluster.servers import BUCKET, at_store, credentials, in_folder, settings_on
from demo.judgement.reckoning import replayed_there
from demo.project import Project
from kappa.base.settings import Settings, load_settings
from kappa.state.files import address
from kappa.state.store import open_store

BROKERS, MASTER = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "spark://127.0.0.1:4"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "rün 🛫"
    folder.mkdir()
    return folder


def written(run: Path, settings: str) -> Settings:
    project = Project(run)
    project.write(settings)
    return load_settings(project.folder)


def test_a_project_on_a_cluster_has_its_servers_and_the_demos_own_settings(run: Path) -> None:
    settings = written(run, settings_on(in_folder(run / "kappa"), BROKERS, MASTER))

    assert open_store(settings).folder == run / "kappa"
    assert settings.kafka.bootstrap_servers == BROKERS
    assert not settings.runs_broker
    assert (settings.engine.master, settings.engine.driver_host) == (MASTER, "127.0.0.1")
    assert settings.engine.conf["spark.cores.max"] == "2"
    assert settings.engine.tail_records < settings.engine.slice_records
    assert settings.engine.rest_after == 0


def test_a_root_in_a_bucket_is_beside_a_folder_of_this_host(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What this process has opened is opened by each DuckDB after it, too, and no server is there.
    monkeypatch.setattr(address, "_OPENED", {})
    store = RunningStore(Path("versitygw"), run / "s3", BUCKET, {**os.environ, **credentials()})

    settings = written(run, settings_on(at_store(run / "kappa", store), BROKERS, MASTER))

    opened = open_store(settings)
    assert opened.url == f"s3://{BUCKET}/root"
    assert opened.local.folder == run / "kappa"
    assert settings.storage == store.storage


def test_each_run_has_credentials_of_its_own() -> None:
    assert credentials().keys() == {KEY, SECRET}
    assert credentials() != credentials()


def test_a_build_that_the_cluster_has_not_folded_is_found() -> None:
    builds = {1: "flights-1", 2: "flights-2"}

    assert replayed_there(["flights-1", "flights-2"], builds).held
    assert not replayed_there(["flights-1"], builds).held
