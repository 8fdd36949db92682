"""Laws of crashes: killed at each failpoint, the platform reaches the same end (I7).

No reader ever notices a death. This file has the failpoints that need no JVM and no child process.
The others are in tests/engine/job/test_job.py, tests/e2e/test_rollouts.py,
tests/replay/platform/test_processes.py and tests/state/test_lock.py.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crashing import HOUR, Doom, LastingWorld, Story, World, ended_for_real, reach
from house import HOUSE, SUPPORT
from object_store import ObjectStore
from shares import long_except

from kappa.base.errors import Conflict
from kappa.replay.rollout.operator_requests import (
    abandon_rollout,
    ask_pause,
    ask_promote,
    ask_redrive,
    ask_resume,
    ask_undo,
    ask_verify,
)
from kappa.replay.rollout.pipeline_retirement import ask_retire
from kappa.replay.rollout.rollout import Phase
from kappa.replay.rollout.stage import stage_plan
from kappa.replay.rollout.state import State
from kappa.state.build import folder_of_build, read_birth
from kappa.state.kept_frontiers import read_kept_frontier
from kappa.state.lease import read_floor
from kappa.state.offsets import Offsets
from kappa.state.store import Store

# The failpoints that a story has to die at; it may die at others too.
FAILPOINTS = {
    "switched": [
        *("journal.before_switch_asked", "journal.after_switch_asked"),
        *("journal.before_caught_up", "journal.after_caught_up"),
        *("journal.before_verified", "journal.after_verified"),
        *("journal.before_verify_asked", "journal.after_verify_asked"),
        *("journal.before_promote_asked", "journal.after_promote_asked"),
        *("journal.before_held", "journal.after_held"),
        *("journal.before_released", "journal.after_released"),
        *("journal.before_served", "journal.after_served", "promote.before_append"),
        *("promote.before_acknowledge", "promote.after_acknowledge"),
        *("publisher.before_acknowledge", "publisher.after_acknowledge"),
        *("alignment.before_put", "alignment.after_put", "lease.before_put", "lease.after_put"),
        *("lease.before_release", "lease.after_release"),
        *("frontier.before_put", "frontier.after_put"),
    ],
    "ended without": [
        *("snapshot.before_file", "snapshot.after_file", "birth.before_put", "birth.before_copy"),
        *("birth.after_put", "stage.before_discard", "stage.after_discard"),
        *("journal.before_staged", "journal.after_staged"),
        *("journal.before_abandoned", "journal.after_abandoned"),
        *("journal.before_failed", "journal.after_failed"),
        *("journal.before_retired", "journal.after_retired"),
        *("retire.before_delete", "retire.after_delete"),
        *("table.before_create", "table.after_create", "leg.before_put", "leg.after_put"),
        *("stopped.before_put", "stopped.after_put"),
        *("stopped.before_delete", "stopped.after_delete"),
    ],
    "kept in shape": [
        *("job.before_first_commit", "table.before_commit", "table.after_commit"),
        *("job.between_tables", "job.before_frontier"),
        *("table.before_compact", "table.after_compact"),
        *("table.before_checkpoint", "table.after_checkpoint"),
        *("table.before_delete", "table.after_delete", "frontier.before_delete"),
        *("sums.before_join", "sums.after_join", "frontier.after_delete"),
        *("floor.before_put", "floor.after_put", "floor.before_delete", "floor.after_delete"),
        *("kept.before_put", "kept.after_put", "kept.before_delete", "kept.after_delete"),
        *("gc.before_delete", "gc.after_delete", "gc.before_rmdir", "gc.after_rmdir"),
    ],
    "branched": ["table.before_adopt", "table.after_adopt"],
    "overlaid": [
        *("birth.after_put", "journal.before_staged", "journal.after_staged"),
        *("journal.after_caught_up", "journal.after_verified", "promote.before_append"),
        *("journal.after_served", "journal.after_retired", "retire.after_delete"),
    ],
    "out of service": [
        *("journal.before_paused", "journal.after_paused"),
        *("journal.before_redrive_asked", "journal.after_redrive_asked"),
        *("journal.before_resumed", "journal.after_resumed"),
        *("journal.before_pipeline_retired", "journal.after_pipeline_retired"),
    ],
}
# So many slices of one record each leave files to join, a checkpoint, and versions to let go.
SLICES = 16
# Whoever dies there passes no release of that hold afterwards.
ALONE = ["publisher.after_acknowledge"]
PLAYS = [
    *((story, side) for story in FAILPOINTS for side in ("before", "after")),
    *(("switched", point) for point in ALONE),
]
EVERY = [(story, point) for story, points in FAILPOINTS.items() for point in points]


def serve_one(world: World) -> bool:
    world.log.ensure(16)
    if world.serves("one"):
        return True
    if not world.rollouts("one"):
        world.stage("one")
    return False


def promote_two_by_hand(world: World) -> bool:
    """Verifies twice, requests the promote, and holds twice.

    The controller lets the first hold expire.
    """
    world.slow = lambda rollout: rollout.attempts == 1
    if world.serves("two"):
        return True
    found = world.rollouts("two")
    if not found:
        world.log.ensure(21)
        world.stage("two", auto_promote=False)
    elif found[-1].waits and not found[-1].alignment_after:
        ask_verify(world.store, "ships")
    elif found[-1].waits:
        ask_promote(world.store, "ships")
    return False


def undo_to(world: World, version: str) -> bool:
    """Undoes once, so that `version` serves again."""
    if world.serves(version):
        return True
    if not world.state().active_rollouts:
        ask_undo(world.store, "ships")
    return False


def undo(world: World) -> bool:
    return undo_to(world, "one")


def redo(world: World) -> bool:
    return undo_to(world, "one/names")


def undo_while_the_live_job_is_dead(world: World) -> bool:
    world.slow, world.jobless = lambda _rollout: False, lambda _rollout: True
    return undo(world)


def abandon_two(world: World) -> bool:
    found = world.rollouts("two")
    if not found:
        world.stage("two", auto_promote=False)
    elif found[-1].active:
        abandon_rollout(world.store, "ships")
    return bool(found) and world.is_gone(found[-1])


def stage_three_with_a_plan_that_is_stale(world: World) -> bool:
    with contextlib.suppress(Conflict):
        stage_plan(world.store, world.plan("three", State()))
        return False
    return True


def let_four_fail(world: World) -> bool:
    found = world.rollouts("four")
    # After a death right behind the staging this goal begins here again.
    world.cursed = {rollout.version for rollout in found}
    if not found:
        world.stage("four")
        world.cursed = {world.rollouts("four")[-1].version}
    return bool(found) and found[-1].phase is Phase.FAILED and world.is_gone(found[-1])


def fold_many_small_slices(world: World) -> bool:
    if not world.shown[1].equals(world.log.end(["ships"])):
        return False
    world.log.ensure(min(world.log.count + 1, 16 + SLICES))
    return world.shown[1].equals(world.log.end(["ships"]))


def branch_two(world: World) -> bool:
    """Branches from an offset at which no frontier is kept.

    The code of the base folds the records between the kept frontier and that offset.
    """
    if world.serves("two"):
        return True
    if not world.shown[1].equals(world.log.end(["ships"])):
        return False
    if not world.rollouts("two"):
        if world.log.count < 24:
            world.log.ensure(24)
            return False
        plan = world.plan_branch("two", back=3)
        (step,) = plan.steps
        # The base is before the offset at which the branch begins its own fold.
        assert not step.branch.start.equals(Offsets.parse(step.branch.base.offsets))
        stage_plan(world.store, plan)
    return False


def service_records(world: World) -> list[str]:
    return [record.event.kind for record in world.state().service]


def pause_and_resume(world: World) -> bool:
    """Pauses; records that are produced in the pause are seen only after the pause.

    The pause also has a request for a redrive, which changes no state of the builds.
    """
    done = service_records(world)
    if "paused" not in done:
        ask_pause(world.store, "ships")
    elif "redrive_asked" not in done:
        ask_redrive(world.store, {"ships": {"ships": 1}})
    elif "resumed" not in done and not world.jobs:
        shown = world.shown
        world.log.ensure(20)
        world.look()
        assert world.shown == shown
        ask_resume(world.store, "ships")
    return "resumed" in done and world.shown[1].equals(world.log.end(["ships"]))


def retire(world: World) -> bool:
    ask_retire(world.store, "ships", kept_seconds=HOUR)
    return "ships" not in world.state().serving


def retire_for_good(world: World) -> bool:
    """Retires once more, and collects hours later, when an undo is no longer possible."""
    if service_records(world).count("pipeline_retired") < 2:
        ask_retire(world.store, "ships", kept_seconds=HOUR)
    elif not world.ahead:
        world.ahead = 3 * HOUR
        world.end()
        world.begin()
    elif all(world.is_gone(rollout) for rollout in world.state().rollouts):
        world.end()
        world.collect()
        world.check_collected()
        return True
    return False


def overlay_one(world: World) -> bool:
    """Deploys only a view: nothing is folded for it, and the job of the first build continues."""
    if world.serves("one/names"):
        return True
    world.log.ensure(20)
    if not world.rollouts("one/names"):
        world.stage("one/names")
    return False


def replay_two_beside_the_overlay(world: World) -> bool:
    if world.serves("two/names"):
        return True
    world.log.ensure(24)
    # Until then the tail of a candidate would have a batch, or have none, as deaths would have it.
    if world.shown[1].equals(world.log.end(["ships"])) and not world.rollouts("two/names"):
        world.stage("two/names")
    return False


def clean_up(world: World) -> bool:
    """Collects hours later, after the soak, including files that killed jobs have left."""
    if not world.ahead:
        world.ahead = 3 * HOUR
        world.end()
        world.begin()
        return False
    state = world.state()
    over = [each for each in state.rollouts if each.build not in state.serving.values()]
    if state.idle or not all(map(world.is_gone, over)):
        return False
    world.end()
    for name in ("tables/ships/part-cut-short.parquet", "spark/blockmgr/x"):
        world.store.put(f"{folder_of_build(state.serving['ships'])}/{name}", b"half a file")
    world.collect()
    world.check_collected()
    return True


OVERLAID = (serve_one, overlay_one, undo, redo, replay_two_beside_the_overlay, clean_up)
STORIES = {
    "switched": Story((serve_one, promote_two_by_hand, undo_while_the_live_job_is_dead, clean_up)),
    "ended without": Story(
        (serve_one, abandon_two, stage_three_with_a_plan_that_is_stale, let_four_fail, clean_up)
    ),
    "branched": Story((serve_one, branch_two, clean_up)),
    "overlaid": Story(OVERLAID),
    "out of service": Story((serve_one, pause_and_resume, retire, undo, retire_for_good)),
    "kept in shape": Story(
        (serve_one, fold_many_small_slices, clean_up),
        {"keep_every_seconds": 0.0, "keep_seconds": 0.0},
    ),
}


def points_of(passed: Iterable[str], side: str) -> dict[str, int]:
    """Returns the failpoints before (or after) all effects of a story, each with passing 1."""
    effects = [point for point in passed if not point.startswith("lock.")]
    return {point: 1 for point in effects if (".after_" in point) == (side == "after")}


@cache
def without_a_death(story: str) -> tuple[dict[str, object], dict[str, int]]:
    """Returns the end of a story without deaths, and how often it passes each failpoint."""
    with TemporaryDirectory() as root:
        doom = Doom()
        world = STORIES[story].play(Store(root), doom)
        return world.summary(), dict(doom.passed)


def killed_at(points: Mapping[str, int], story: str, root: Path) -> Doom:
    """Plays a story that dies at these passings of failpoints.

    Asserts that its end is the same as that of the story without deaths.
    """
    doom = Doom(points)
    world = STORIES[story].play(Store(root), doom)

    assert world.summary() == without_a_death(story)[0]
    return doom


# With and without an effect on disk the next steps differ: one run dies before all effects, and one
# after them.
@pytest.mark.slow
@pytest.mark.parametrize("side", long_except(["before"], ["before", "after"]))
@pytest.mark.parametrize("story", STORIES)
def test_killed_at_all_failpoints_it_ends_alike(story: str, side: str, tmp_path: Path) -> None:
    points = points_of(without_a_death(story)[1], side)

    doom = killed_at(points, story, tmp_path)

    assert {point for point in FAILPOINTS[story] if point in points} <= set(doom.fired)


# A share dies in the story that ends in a collection of all kinds.
@pytest.mark.long
@pytest.mark.parametrize(
    "story",
    [
        each if each == "kept in shape" else pytest.param(each, marks=pytest.mark.sweep)
        for each in STORIES
    ],
)
def test_killed_in_a_bucket_it_ends_alike(
    object_store: ObjectStore, story: str, tmp_path: Path
) -> None:
    def played(name: str, points: Mapping[str, int]) -> tuple[dict[str, object], Doom]:
        doom, storage = Doom(points), object_store.storage
        store = Store(object_store.new_root(), storage=storage, local=tmp_path / name)
        return STORIES[story].play(store, doom).summary(), doom

    wanted, passed = played("without", {})
    assert passed.passed.keys() >= set(FAILPOINTS[story])
    for side in ("before", "after"):
        points = points_of(passed.passed, side)

        found, doom = played(side, points)

        assert found == wanted
        assert {point for point in FAILPOINTS[story] if point in points} <= set(doom.fired)


@pytest.mark.slow
def test_branch_begins_where_planned(tmp_path: Path) -> None:
    world = World(Store(tmp_path), Doom())
    while not serve_one(world):
        world.round()
    # The frontier shown at the switch is kept.
    world.log.ensure(18)
    world.round()
    plan = world.plan_branch("two", back=0)
    (step,) = plan.steps
    for count in (20, 22):
        world.log.ensure(count)
        world.round()
    live = world.state().serving["ships"]
    assert read_floor(world.store, live) > step.branch.frontier.number
    assert read_kept_frontier(world.store, live, step.branch.frontier.number) is None

    stage_plan(world.store, plan)

    base = read_birth(world.store, world.rollouts("two")[-1].build).base
    assert base.offsets == step.branch.base.offsets
    assert base.frontier != step.branch.frontier.number
    while not world.serves("two"):
        world.round()
        world.look()
    world.end()


@pytest.mark.long
@pytest.mark.fault
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("story", "side"), PLAYS)
def test_killed_for_real_it_ends_alike(story: str, side: str, tmp_path: Path) -> None:
    """A process that plays the story is killed by SIGKILL, and the next process continues."""
    # Each is passed after those that a story passes first before it.
    points = [
        point
        for point in without_a_death(story)[1]
        if point in FAILPOINTS[story] and side_of(point) == side
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HOUSE), str(SUPPORT)])}
    command = [sys.executable, __file__, story, str(tmp_path), *points]

    subprocess.run(command, env=environment, check=True)

    assert pickle.loads((tmp_path / "end").read_bytes()) == without_a_death(story)[0]


@pytest.mark.slow
def test_every_failpoint_of_a_story_is_passed_in_it() -> None:
    assert all(
        set(points) <= without_a_death(story)[1].keys() for story, points in FAILPOINTS.items()
    )


@pytest.mark.sweep
@pytest.mark.parametrize(("story", "point"), EVERY)
def test_killed_at_one_failpoint_it_ends_alike(story: str, point: str, tmp_path: Path) -> None:
    passings = without_a_death(story)[1][point]
    for passing in sorted({1, (passings + 1) // 2, passings}):
        doom = killed_at({point: passing}, story, tmp_path / str(passing))

        assert doom.fired == [point]


def side_of(point: str) -> str:
    return point if point in ALONE else "after" if ".after_" in point else "before"


def play_on(story: Story, folder: Path) -> None:
    """Plays a story from the goal at which the process before this one died."""
    world = LastingWorld(folder, **story.settings)
    for number, goal in enumerate(story.goals):
        if (reached := folder / f"goal {number}").exists():
            continue
        reach(world, goal)
        reached.touch()
    world.end()
    (folder / "end").write_bytes(pickle.dumps(world.summary()))


def play_with_deaths(story: Story, folder: Path, points: list[str]) -> None:
    for point in points:
        code = ended_for_real(partial(play_on, story, folder), point)
        assert code == -signal.SIGKILL, (point, code)
    assert ended_for_real(partial(play_on, story, folder)) == 0


if __name__ == "__main__":
    play_with_deaths(STORIES[sys.argv[1]], Path(sys.argv[2]), sys.argv[3:])
