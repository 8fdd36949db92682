"""Fixtures of the tests of stores: here each law runs for each kind of store in every run."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import make_store

from kappa.state.store import Store


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store of each kind."""
    return make_store(request.param, request, tmp_path)
