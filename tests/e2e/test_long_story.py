"""Followers of tables and sinks have exactly what was served, whatever happens (I12).

A hundred promotes and undos between builds that differ, with a live producer; in each of them a
process is killed. `KAPPA_STORY_SWITCHES` and `KAPPA_STORY_SEED` are those of a run.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest
from story import SETTINGS, story
from story_shop import FIRST
from testbed import platform
from victims import BROKER, CANDIDATE, COMMAND, CONSUMER, COURIER, HTTP, LIVE, SUPERVISOR

SWITCHES = int(os.environ.get("KAPPA_STORY_SWITCHES", "100"))
SEED = int(os.environ.get("KAPPA_STORY_SEED", str(random.SystemRandom().randrange(10_000))))
pytestmark = [pytest.mark.jvm, pytest.mark.fault]
EACH = (HTTP, COURIER, LIVE, BROKER, CONSUMER, COMMAND)
ALSO = (SUPERVISOR, CANDIDATE, CONSUMER, COURIER)


def play(folder: Path, switches: int, victims: tuple[str, ...]) -> None:
    """Deploys once in each round of victims, and undoes otherwise; then all is compared."""
    print(f"\nKAPPA_STORY_SEED={SEED} KAPPA_STORY_SWITCHES={switches}", flush=True)
    draw, began, done = random.Random(SEED), time.monotonic(), 1
    with (
        platform(folder / "shop", SETTINGS, listen="127.0.0.1:0", shop=FIRST) as bed,
        story(bed, SEED, folder) as told,
    ):
        with told.producing():
            told.deploy()
        while done < switches:
            round_ = draw.sample(victims, min(len(victims), switches - done))
            with told.producing():
                for victim in round_:
                    act = told.undo if victim != round_[0] or done == 1 else told.deploy
                    act(partial(told.kill_soon, victim))
            told.rest()
            done += len(round_)
            print(f"{(time.monotonic() - began) / 60:.1f} min: {done} switches", flush=True)
        print(told.end(), flush=True)


# It takes what a third of all other end-to-end tests do.
@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_each_consumer_has_what_is_served_while_each_process_is_killed(tmp_path: Path) -> None:
    play(tmp_path, 1 + len(EACH), EACH)


@pytest.mark.sweep
@pytest.mark.timeout(60 * (SWITCHES + 30))
def test_each_consumer_has_what_is_served_through_a_hundred_switches(tmp_path: Path) -> None:
    play(tmp_path, SWITCHES, (*EACH, *ALSO))
