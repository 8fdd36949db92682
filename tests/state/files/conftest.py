"""Fixtures for tests of stores: each law is tested with each kind of store in every run."""

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
    """Returns a store of each kind."""
    return make_store(request.param, request, tmp_path)


@pytest.fixture
def store(object_store: ObjectStore, between: Between, tmp_path: Path) -> Store:
    """Returns a store in a bucket, behind a proxy."""
    return Store(object_store.new_root(), storage=between.storage, local=tmp_path / "local")


@pytest.fixture
def new_connections() -> None:
    """Drops idle connections of earlier tests, because they do not know this test's bucket."""
    reader_module._idle.clear()
