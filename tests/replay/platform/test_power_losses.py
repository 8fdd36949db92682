"""A power loss at any moment destroys nothing that was acknowledged (I13).

The stories of test_crashes are played on a disk that loses unsynced data (support/power.py). Power
is lost at any failpoint, and at any sync. Then the platform starts again, its reader sees nothing
go back, and everything comes to the same end.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from crashing import Outage, World
from power import Disk
from shares import long_except
from test_crashes import STORIES, without_a_death

from kappa.state.store import Store

SEEDS = 2
LOSSES = 6


def played(story: str, root: Path, outage: Outage, draw: random.Random) -> tuple[World, Disk]:
    root.mkdir()
    disk = Disk(root, draw, outage.effect)

    class Powered(World):
        def after_death(self) -> None:
            disk.cut()
            self.store = Store(root)

    with disk.watching():
        return STORIES[story].play(Store(root), outage, Powered), disk


def lose_power(story: str, root: Path, seed: int) -> tuple[Outage, Disk]:
    draw = random.Random(f"{story} {seed}")
    _, passed = without_a_death(story)
    # Syncs are about as many as failpoints.
    at = {draw.randrange(1, 2 * sum(passed.values())) for _ in range(LOSSES)}
    outage = Outage(at)
    world, disk = played(story, root, outage, draw)
    assert world.summary() == without_a_death(story)[0], f"seed {seed}"
    return outage, disk


@pytest.mark.slow
@pytest.mark.parametrize("story", long_except(["kept in shape"], STORIES))
def test_wherever_power_is_lost_what_was_acknowledged_is_there(story: str, tmp_path: Path) -> None:
    outages, disks = zip(
        *(lose_power(story, tmp_path / str(seed), seed) for seed in range(SEEDS)), strict=True
    )

    # It was lost, and something with it.
    assert sum(len(outage.fired) for outage in outages) > LOSSES / 2
    assert sum(disk.lost for disk in disks)
    assert sum(disk.torn for disk in disks)


@pytest.mark.sweep
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", range(SEEDS, 40))
def test_power_is_lost_at_many_other_moments(story: str, seed: int, tmp_path: Path) -> None:
    lose_power(story, tmp_path / "root", seed)
