"""Followers of tables and sinks have exactly the served rows, whatever happens (I12).

There are a hundred promotes and undos between different builds, with a live producer. A process is
killed in each switch. `KAPPA_STORY_SWITCHES` and `KAPPA_STORY_SEED` configure a run.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from story import SETTINGS, story
from story_shop import FIRST
from testbed import platform
from victims import BROKER, CANDIDATE, COMMAND, CONSUMER, COURIER, HTTP, LIVE, SUPERVISOR

SWITCHES = int(os.environ.get("KAPPA_STORY_SWITCHES", "100"))
SEED = int(os.environ.get("KAPPA_STORY_SEED", str(random.SystemRandom().randrange(10_000))))
# tests/e2e/test_exact_switch.py is the short form that CI runs: this one took it six minutes.
pytestmark = [pytest.mark.jvm, pytest.mark.sweep, pytest.mark.fault]
VICTIMS = (HTTP, COURIER, LIVE, CANDIDATE, BROKER, CONSUMER, COMMAND, SUPERVISOR)


def play(folder: Path, switches: int, *, victims: int) -> None:
    """Kills this many victims in each switch, and each kind of victim once in a round.

    A round begins with a deploy. Its other switches are undos, if rows differ.
    """
    print(f"\nKAPPA_STORY_SEED={SEED} KAPPA_STORY_SWITCHES={switches}", flush=True)
    draw, began, done = random.Random(SEED), time.monotonic(), 0
    with (
        platform(folder / "shop", SETTINGS, listen="127.0.0.1:0", shop=FIRST) as bed,
        story(bed, SEED, folder) as told,
    ):
        while done < switches:
            round_ = draw.sample(VICTIMS, len(VICTIMS))
            with told.producing():
                for first in range(0, len(round_), victims)[: switches - done]:
                    told.switch(round_[first : first + victims], is_first=not first)
                    done += 1
            told.rest()
            print(f"{(time.monotonic() - began) / 60:.1f} min: {done} switches", flush=True)
        print(told.end(), flush=True)


def test_each_consumer_has_what_is_served_while_each_process_is_killed(tmp_path: Path) -> None:
    play(tmp_path, len(VICTIMS) // 2, victims=2)


@pytest.mark.timeout(60 * (SWITCHES + 30))
def test_each_consumer_has_what_is_served_through_a_hundred_switches(tmp_path: Path) -> None:
    play(tmp_path, SWITCHES, victims=1)
