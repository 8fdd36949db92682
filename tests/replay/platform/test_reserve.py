"""A full disk: the reserve is given up, and created again once there is space (I9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.state import disk_space
from kappa.state.disk_space import DiskReserve, why_jobs_rest
from kappa.state.store import Store

MB = 1_000_000


class Machine:
    """A disk whose free space a test sets."""

    def __init__(self, folder: Path) -> None:
        self.free = 500 * MB
        self.said: list[str] = []
        self.file = folder / "reserve"
        self.reserve = DiskReserve(
            Store(folder), 4 * MB, say=self.said.append, free=lambda: self.free
        )


def test_it_is_given_up_when_the_disk_is_full_and_made_again_with_space(tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    assert machine.reserve.ensure_space()
    assert machine.file.stat().st_size == 4 * MB
    assert machine.file.stat().st_blocks * 512 >= 4 * MB
    assert machine.reserve.full_disk_text == ""

    machine.free = 3 * MB
    assert not machine.reserve.ensure_space()
    assert not machine.file.exists()
    assert "the disk is full: 3.0 MB are free, and jobs run again once 8.0 MB" in machine.said[-1]
    # What it gave up is no space for those who write much.
    machine.free = 7 * MB
    assert not machine.reserve.ensure_space()
    assert "7.0 MB are free" in machine.reserve.full_disk_text

    machine.free = 9 * MB
    assert machine.reserve.ensure_space()
    assert machine.file.exists()
    assert machine.said[-1] == "the disk has space again: jobs go on"
    assert len(machine.said) == 2


def test_none_is_kept_where_none_is_wanted(tmp_path: Path) -> None:
    reserve = DiskReserve(Store(tmp_path), 0, say=print, free=lambda: 0)

    assert reserve.ensure_space()
    assert not (tmp_path / "reserve").exists()


def test_reserve_is_seen_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is reported only once the reserve is gone, and only if a reserve is kept."""
    store = Store(tmp_path)
    DiskReserve(store, MB, say=print).ensure_space()
    assert why_jobs_rest(store, MB) == ""

    monkeypatch.setattr(disk_space, "free_bytes", lambda _store: 0)
    assert why_jobs_rest(store, MB) == ""
    (tmp_path / "reserve").unlink()
    assert "the disk is full: 0 B are free" in why_jobs_rest(store, MB)
    # No supervisor that is up keeps one.
    assert why_jobs_rest(store, 0) == ""
