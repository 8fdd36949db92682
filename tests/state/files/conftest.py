"""Fixtures of the tests of stores: here each law runs for each kind of store in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from between import Between
from object_store import ObjectStore
from stores import make_store

from kappa.serving.query.reader import reader as reader_module
from kappa.state.store import Store


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return make_store(request.param, request, tmp_path)


@pytest.fixture
def store(object_store: ObjectStore, between: Between, tmp_path: Path) -> Store:
    """A store in a bucket, behind a proxy."""
    return Store(object_store.new_root(), storage=between.storage, local=tmp_path / "local")


@pytest.fixture
def new_connections() -> None:
    """Ends idle connections: those of earlier tests know no bucket of this test."""
    reader_module._idle.clear()
