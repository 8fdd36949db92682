"""A failing disk: each error is a message, nothing is half done, and all heals (I9, I10).

The stories of test_crashes are played while calls of the operating system fail at random. A process
that meets an error ends, as a job does. Everything comes to the same end once the faults are over.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from crashing import Doom, Goal, World, reach
from faulty import Faults
from shares import long_except
from test_crashes import STORIES, without_a_death

from kappa.base.errors import Broken, KappaError
from kappa.state.store import Store

SHARE = 0.01
# Faults end, or no story would.
ROUNDS = 60


class Faulty(World):
    """The platform on a disk whose calls fail."""

    faults: Faults
    rounds = 0

    def round(self) -> None:
        self.rounds += 1
        self.faults.on = self.rounds < ROUNDS
        super().round()


def typed_again(goal: Goal) -> Goal:
    """Returns a goal whose command is run again after an error."""

    def act(world: World) -> bool:
        try:
            return goal(world)
        except Broken:
            raise
        except (KappaError, OSError) as error:
            told(error)
            return False

    act.__name__ = goal.__name__
    return act


def told(error: Exception) -> None:
    """Asserts that the error is a sentence with a file below the root and the system's reason."""
    assert isinstance(error, KappaError), repr(error)
    assert "could not" in error.message, error.message
    assert error.hint


def play(story: str, root: Path, seed: int) -> tuple[World, Faults]:
    root.mkdir()
    faults = Faults(root, random.Random(f"{story} {seed}"), SHARE)

    class Ours(Faulty):
        def round(self) -> None:
            try:
                super().round()
            except Broken:
                raise
            except (KappaError, OSError) as error:
                told(error)
                # All its memory is gone.
                faults.on = False
                self.end()
                self.begin()

        def look(self) -> None:
            with faults.over():
                super().look()

        def ensure_verifying(self, rollout: int) -> str | None:
            # It concludes nothing of a disk that fails, and the rollout ends: kappa retry.
            with faults.over():
                return super().ensure_verifying(rollout)

    doom = Doom()
    with faults.injected():
        faults.on = False
        Ours.faults = faults
        world = Ours(Store(root), doom, **STORIES[story].settings)  # type: ignore[arg-type]
        faults.on = True
        for goal in STORIES[story].goals:
            reach(world, typed_again(goal))
        faults.on = False
        with suppress(KappaError):
            world.end()
    return world, faults


@pytest.mark.slow
@pytest.mark.parametrize("story", long_except(["kept in shape"], STORIES))
def test_whichever_calls_fail_it_comes_to_the_same_end(story: str, tmp_path: Path) -> None:
    struck = 0
    for seed in range(2):
        world, faults = play(story, tmp_path / str(seed), seed)
        assert world.summary() == without_a_death(story)[0], f"seed {seed}"
        struck += faults.count
    assert struck


@pytest.mark.sweep
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("seed", range(2, 40))
def test_other_calls_fail(story: str, seed: int, tmp_path: Path) -> None:
    world, _ = play(story, tmp_path / "root", seed)
    assert world.summary() == without_a_death(story)[0]
