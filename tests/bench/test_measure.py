"""A command's cost includes its whole process tree, with orphans; nothing of it remains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import measure
import pytest

pytestmark = pytest.mark.slow

BURN = "import time\nwhile time.process_time() < {seconds}: pass"
# A child that outlives who started it.
ORPHANED = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {BURN.format(seconds=0.3)!r}])
"""


def measured(folder: Path, *command: str, seconds: float = 60) -> dict[str, Any]:
    subprocess.run(
        [
            sys.executable,
            measure.__file__,
            str(folder / "took.json"),
            str(folder / "output.log"),
            str(seconds),
            *command,
        ],
        check=True,
    )
    found: dict[str, Any] = json.loads((folder / "took.json").read_text())
    return found


def test_the_cpu_of_a_child_that_outlives_its_parent_is_counted(tmp_path: Path) -> None:
    found = measured(tmp_path, sys.executable, "-c", ORPHANED)

    assert (found["code"], found["timed_out"]) == (0, False)
    assert found["cpu"] >= 0.3


def test_the_cpu_of_children_that_nobody_waits_for_is_counted(tmp_path: Path) -> None:
    """CPU time of children for which nobody waits is counted; PySpark's workers are such children.

    The kernel adds their CPU time to no parent.
    """
    # With nobody to be waited for, waitpid waits until all have ended.
    ignoring = f"""
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    exec({BURN.format(seconds=1.0)!r})
    os._exit(0)
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    pass
"""

    found = measured(tmp_path, sys.executable, "-c", ignoring)

    assert found["code"] == 0
    assert found["cpu"] >= 0.7


def test_memory_is_the_most_that_all_had_at_once(tmp_path: Path) -> None:
    # It holds its memory until the next sample, however busy the machine is: the sampler waits
    # after each.
    holding = """
import os, re, time
from pathlib import Path

def looks():
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\\s+(\\d+)", status, re.M)[1])

held = b"x" * 200_000_000
begun = looks()
while looks() < begun + 3:
    time.sleep(0.01)
"""

    found = measured(tmp_path, sys.executable, "-c", holding)

    assert 200_000_000 <= found["rss"] < 400_000_000


def test_what_a_command_says_and_how_it_ends_is_kept(tmp_path: Path) -> None:
    assert (
        measured(tmp_path, sys.executable, "-c", "print('here'); raise SystemExit(3)")["code"] == 3
    )
    assert (tmp_path / "output.log").read_text() == "here\n"
    assert measured(tmp_path, str(tmp_path / "nobody"))["code"] == 127
    assert "nobody" in (tmp_path / "output.log").read_text()


def test_who_takes_too_long_is_ended_with_his_children(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hanging = (
        "import pathlib, subprocess; child = subprocess.Popen(['sleep', '600'], "
        f"start_new_session=True); pathlib.Path({str(note)!r}).write_text(str(child.pid)); "
        "child.wait()"
    )

    found = measured(tmp_path, sys.executable, "-c", hanging, seconds=4)

    assert found["timed_out"]
    assert not Path(f"/proc/{note.read_text()}").exists()
