"""The demo's story, in a short form of `make demo`, and with an interruption."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.__main__ import main
from demo.processes.family import ensure_gone, members

# Enough for the blizzard of 9 February to be among them.
SHORT = ["--flights", "40000", "--rate", "300"]


def test_a_root_in_a_bucket_is_for_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--root", "bucket"])

    with pytest.raises(SystemExit):
        main()


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "where",
    [[], ["--cluster"], ["--cluster", "--root", "bucket"]],
    ids=["alone", "cluster", "bucket"],
)
def test_all_of_it_holds_and_nothing_is_left(tmp_path: Path, where: list[str]) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "demo", *SHORT, *where],
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


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize(
    "where", [[], pytest.param(["--cluster"], marks=pytest.mark.sweep)], ids=["alone", "cluster"]
)
def test_an_interrupted_story_leaves_nothing_running(tmp_path: Path, where: list[str]) -> None:
    story = subprocess.Popen(
        [sys.executable, "-m", "demo", "--flights", "500", "--rate", "300", *where],
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
