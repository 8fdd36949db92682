"""Commands that are killed by SIGKILL at their failpoints, and repeated (I7)."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest
from collecting import until
from crashing import Doom, World
from house import HOUSE
from programs import run_python
from typing_in import pretend_up

from kappa.replay.status.doctor.scrub import scrub_root
from kappa.serving.query.query import answer_query
from kappa.state.build import folder_of_build
from kappa.state.lease import sorted_leases
from kappa.state.store import Store

pytestmark = [pytest.mark.long, pytest.mark.fault]

FAILPOINTS = {
    # In the order in which a collection passes them.
    "gc": [
        *("lock.before_hold", "lock.after_hold"),
        *("floor.before_put", "floor.after_put", "floor.before_delete", "floor.after_delete"),
        *("kept.before_put", "kept.after_put", "kept.before_delete", "kept.after_delete"),
        *("gc.before_delete", "gc.after_delete", "gc.before_rmdir", "gc.after_rmdir"),
    ],
    # Once files of tables are gone.
    "next gc": ["sums.before_join", "sums.after_join"],
    "undo": ["journal.before_switch_asked", "journal.after_switch_asked"],
    "promote": ["journal.before_promote_asked", "journal.after_promote_asked"],
    "verify": ["journal.before_verify_asked", "journal.after_verify_asked"],
    "pause": ["journal.before_paused", "journal.after_paused"],
    "resume": ["journal.before_resumed", "journal.after_resumed"],
    "abandon": ["journal.before_abandoned", "journal.after_abandoned"],
    "retire": ["journal.before_pipeline_retired", "journal.after_pipeline_retired"],
    "query": ["lease.before_put", "lease.after_put", "lease.before_release", "lease.after_release"],
}
# These wait until the platform has done what they ask for.
WAITS = {"verify", "promote", "undo"}
SHIPS = "select count(*) as n from ships"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(Store(tmp_path / "root"), Doom(), keep_every_seconds=0.0)
    made.serve("one", 16)
    return made


def kappa(world: World, *command: str, fail: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command, which dies at the failpoint `fail` if one is given."""
    project = world.store.folder.parent / "project"
    project.mkdir(exist_ok=True)
    (project / "kappa.toml").touch()
    return run_python(
        *("-P", "-m", "cli", "--root", world.store.folder, *command),
        folder=project,
        PYTHONPATH=str(HOUSE),
        KAPPA_FAIL=f"{fail}:kill" if fail else "",
        KAPPA__ROLLOUT__LEASE_SECONDS="1",
        KAPPA__HISTORY__KEEP_SECONDS="0",
    )


def killed(world: World, point: str, *command: str) -> None:
    died = kappa(world, *command, fail=point)
    assert died.returncode == -signal.SIGKILL, (point, died.stdout, died.stderr)
    assert f"failpoint {point}: killed" in died.stderr


def test_queries_and_collections_leave_nothing_that_the_next_collection_leaves(
    world: World,
) -> None:
    world.serve("two", 20)
    shown = answer_query(world.store, SHIPS).rows
    assert kappa(world, "gc").returncode == 0
    for point in FAILPOINTS["next gc"]:
        killed(world, point, "gc")
        assert answer_query(world.store, SHIPS).rows == shown
    world.serve("three", 24)
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
    world.serve("two", 20)
    # This process is the supervisor, which acts between commands.
    pretend_up(world.store)
    for command, *more in (
        ("verify",),
        ("promote", "--yes"),
        ("undo", "--yes"),
        ("abandon",),
        ("pause",),
        ("resume",),
        ("retire", "--yes"),
    ):
        if command in {"verify", "abandon"}:
            bring_on(world, "three" if command == "verify" else "four")
        before = world.state()
        first, then = FAILPOINTS[command]
        killed(world, first, command, "ships", *more)
        assert world.state() == before
        killed(world, then, command, "ships", *more)
        decided = world.state()
        assert decided.last == before.last + 1
        # What is done already is not done again.
        kappa(world, command, "ships", *more, *(("--timeout", "0") if command in WAITS else ()))
        assert world.state() == decided
        if command in WAITS:
            bring_on(world)


def bring_on(world: World, version: str | None = None) -> None:
    """Stages `version`, if given, and runs the platform until a rollout waits for a yes."""
    world.begin()
    if version is not None:
        world.stage(version, auto_promote=False)
    while any(not each.waits for each in world.state().active_rollouts):
        world.round()
    world.end()
