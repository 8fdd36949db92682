"""Laws of the family: descendants of a marked process are found in any session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from demo.processes.child import Child
from demo.processes.family import MARK, ensure_gone, members, wait_until_gone

GRANDCHILD = (
    "import subprocess, sys, time; own = 'import time; print(flush=True); time.sleep(60)'; "
    "subprocess.Popen([sys.executable, '-c', own], start_new_session=True, "
    "stdout=subprocess.PIPE).stdout.readline(); print('ready', flush=True); time.sleep(60)"
)


def test_children_and_their_children_are_found_and_can_be_seen_gone() -> None:
    mark = f"test-{os.getpid()}"
    child = subprocess.Popen(
        [sys.executable, "-c", GRANDCHILD],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"

    found = members(mark)
    ensure_gone(mark)

    assert len(found) == 2
    assert all(member.resident > 0 for member in found)
    assert wait_until_gone(mark, patience_seconds=0) == ()
    child.wait()
    child.stdout.close()


def test_strangers_are_not_found() -> None:
    assert members("a mark that nobody carries") == ()


def test_a_child_ends_with_its_input_and_its_last_words_are_heard(tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(
        "import sys\nprint('{\"n\": 1}', flush=True)\nsys.stdin.read()\n"
        "print('{\"n\": 2}', flush=True)\n",
        encoding="utf-8",
    )
    child = Child("talker", [], environment=dict(os.environ), folder=tmp_path)

    first = child.wait_until_it_speaks(30)
    code, last = child.finish()
    child.ensure_ended()

    assert (first, code, last) == ({"n": 1}, 0, {"n": 2})
