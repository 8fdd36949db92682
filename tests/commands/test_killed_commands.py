"""Commands that are killed by SIGKILL at their failpoints, and typed again (I7)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from collecting import until
from crashing import Doom, World
from house import HOUSE

from kappa.replay.status.doctor.scrub import scrub_root
from kappa.serving.query.query import answer_query
from kappa.state.build import folder_of_build
from kappa.state.lease import sorted_leases
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.fault]

FAILPOINTS = {
    "gc": [
        *("lock.before_hold", "lock.after_hold"),
        *("gc.before_delete", "gc.after_delete", "gc.before_rmdir", "gc.after_rmdir"),
    ],
    "pause": ["journal.before_paused", "journal.after_paused"],
    "resume": ["journal.before_resumed", "journal.after_resumed"],
    "abandon": ["journal.before_abandoned", "journal.after_abandoned"],
    "retire": ["journal.before_pipeline_retired", "journal.after_pipeline_retired"],
    "query": ["lease.before_put", "lease.after_put", "lease.before_release", "lease.after_release"],
}
SHIPS = "select count(*) as n from ships"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(Store(tmp_path / "root"), Doom())
    made.serve("one", 16)
    return made


def kappa(world: World, *command: str, fail: str = "") -> subprocess.CompletedProcess[str]:
    """Types a command, which dies at a failpoint if one is named."""
    project = world.store.folder.parent / "project"
    project.mkdir(exist_ok=True)
    (project / "kappa.toml").touch()
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", "--root", str(world.store.folder), *command],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": str(HOUSE),
            "KAPPA_FAIL": f"{fail}:kill" if fail else "",
            "KAPPA__ROLLOUT__LEASE_SECONDS": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def killed(world: World, point: str, *command: str) -> None:
    died = kappa(world, *command, fail=point)
    assert died.returncode == -signal.SIGKILL, (point, died.stdout, died.stderr)
    assert f"failpoint {point}: killed" in died.stderr


def test_queries_and_collections_leave_nothing_that_the_next_collection_leaves(
    world: World,
) -> None:
    shown = answer_query(world.store, SHIPS).rows
    live = folder_of_build(world.state().serving["ships"])
    for point in FAILPOINTS["query"]:
        killed(world, point, "query", SHIPS)
        assert answer_query(world.store, SHIPS).rows == shown
    for point in FAILPOINTS["gc"]:
        world.store.put(f"{live}/spark/blockmgr/x", b"half a file")
        killed(world, point, "gc")
        assert answer_query(world.store, SHIPS).rows == shown

    # A collection leaves leases for ten seconds after their end.
    until(lambda: not sorted_leases(world.store, time.time())[0], "the end of the leases")
    again = kappa(world, "gc")

    assert again.returncode == 0, again.stderr
    assert (world.store.names(f"{live}/spark"), world.store.names("leases")) == ((), ())
    assert scrub_root(world.store).bad == ()
    assert answer_query(world.store, SHIPS).rows == shown


def test_a_decision_is_in_the_journal_once_or_not_at_all(world: World) -> None:
    world.begin()
    world.stage("two", auto_promote=False)
    world.end()
    for command, more in (
        ("abandon", ()),
        ("pause", ()),
        ("resume", ()),
        ("retire", ("--yes",)),
    ):
        before = world.state()
        first, then = FAILPOINTS[command]
        killed(world, first, command, "ships", *more)
        assert world.state() == before
        killed(world, then, command, "ships", *more)
        decided = world.state()
        assert decided.last == before.last + 1
        # What is done already is not done again.
        kappa(world, command, "ships", *more)
        assert world.state() == decided
