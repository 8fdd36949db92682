"""A checkpoint of a table's log is complete or does not exist, wherever power is lost (law 16)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from commits import make_commits
from power import Disk

from kappa.state.build import table_path
from kappa.state.store import Store
from kappa.tables.checkpoint import ensure_checkpoint
from kappa.tables.file_list import ensure_read
from kappa.tables.stored_table import open_table
from kappa.tables.vacuum import delete_unneeded
from kappa.tables.versions import files, list_of

SEEDS = 10


class EndedError(Exception):
    """Stands for the end of the process, by a kill or a power loss."""


def ending_at(sync: int) -> Callable[[], None]:
    """Returns a function that ends the process at the sync with this number."""
    numbers = itertools.count(1)

    def end() -> None:
        if next(numbers) == sync:
            raise EndedError

    return end


# From the first folder that is made to the last name that is synced.
@pytest.mark.slow
@pytest.mark.parametrize("sync", range(1, 26, 2))
def test_a_table_opens_after_any_power_loss(tmp_path: Path, sync: int) -> None:
    for seed in range(SEEDS):
        root = tmp_path / str(seed)
        make_commits(Store(root, syncs=False), "b", "t", 3)
        disk = Disk(root, random.Random(seed), ending_at(sync))
        store = Store(root)
        path = table_path(store, "b", "t")
        with disk.watching():
            try:
                ensure_checkpoint(store, path, 2, None)
            except EndedError:
                disk.cut()

        for version in (2, 3):
            assert len(files(path, version, None)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sync", range(8, 13))
def test_a_killed_process_checkpoint_lasts(tmp_path: Path, sync: int) -> None:
    for seed in range(SEEDS):
        root = tmp_path / str(seed)
        make_commits(Store(root, syncs=False), "b", "t", 3)
        disk = Disk(root, random.Random(seed), ending_at(sync))
        path = table_path(Store(root), "b", "t")
        with disk.watching():
            with suppress(EndedError):
                ensure_checkpoint(Store(root), path, 3, None)
            disk.before_sync = lambda: None
            # The next process, which knows nothing of the first.
            delete_unneeded(Store(root), path, 3, (), vouched=None)
            disk.cut()

        assert len(files(path, 3, None)) == 1


@pytest.mark.parametrize("named", ["link", "elsewhere/../real"])
def test_a_root_behind_a_link_keeps_the_files_that_it_needs(tmp_path: Path, named: str) -> None:
    """A root behind a link keeps its needed files, although delta-rs resolves links in names."""
    (tmp_path / "real").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = Store(tmp_path / named)
    make_commits(store, "b", "t", 3)
    table = open_table(table_path(store, "b", "t"))

    delete_unneeded(store, table.path, table.version, (), vouched=None)

    found = list_of(table.path, 3, None)
    ensure_read(found, table.path, table.files())
    assert [*map(Path.resolve, map(Path, found.at(table.path)))] == [*map(Path, table.files())]
    assert all(Path(file).exists() for file in table.files())
