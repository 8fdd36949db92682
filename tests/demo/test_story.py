"""The story itself, in a short form of `make demo`, and with an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.processes.family import ensure_gone, members

pytestmark = pytest.mark.jvm
# Enough for the blizzard of 9 February to be among them.
SHORT = ["--flights", "40000", "--rate", "300"]


@pytest.mark.sweep
@pytest.mark.timeout(1800)
def test_all_of_it_holds_and_nothing_is_left(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "demo", *SHORT],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == 0, told.stdout[-6000:] + told.stderr[-2000:]
    assert "All of it held" in told.stdout
    # The folder that it made for itself is gone; the others are the JVM's, and not ours to judge.
    assert list(tmp_path.glob("kappa-demo-*")) == []


def test_an_interrupted_story_leaves_nothing_running(tmp_path: Path) -> None:
    story = subprocess.Popen(
        [sys.executable, "-m", "demo", "--flights", "500", "--rate", "300"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert story.stdout is not None
    for line in story.stdout:
        if "kappa plan" in line:
            break
    mark = next(tmp_path.glob("kappa-demo-*")).name
    running = members(mark)

    story.send_signal(signal.SIGINT)
    rest, _ = story.communicate(timeout=120)

    left = members(mark)
    ensure_gone(mark)
    assert running
    assert story.returncode == 130, rest
    assert left == ()
