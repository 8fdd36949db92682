"""Stores of each kind, for tests of behaviour that all stores share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.state.store import Store

if TYPE_CHECKING:
    from object_store import ObjectStore


def make_store(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """Returns a new store on the disk, below `folder`, or in a bucket of the run's S3 server."""
    if kind == "disk":
        return Store(folder / "röot")
    running: ObjectStore = request.getfixturevalue("object_store")
    return Store(running.new_root(), storage=running.storage, local=folder / "local")
