"""The session that the README shows works when it is pasted."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import TREE, Testbed

pytestmark = pytest.mark.jvm
# What a clone does first, and this test has behind it.
SET_UP = ("make setup", ". .venv/bin/activate")


def session() -> str:
    (found,) = [
        block
        for block in re.findall(
            r"```sh\n(.*?)```", (TREE / "README.md").read_text(encoding="utf-8"), re.DOTALL
        )
        if "kappa deploy" in block
    ]
    lines = found.splitlines()
    assert tuple(lines[: len(SET_UP)]) == SET_UP
    return "\n".join(lines[len(SET_UP) :])


def test_the_session_of_the_readme_works_when_pasted(tmp_path: Path) -> None:
    bed = Testbed(tmp_path / "project")
    shutil.copy(TREE / "pipelines" / "flights.py", bed.folder / "pipelines")
    kappa = tmp_path / "bin" / "kappa"
    kappa.parent.mkdir()
    kappa.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m cli "$@"\n', encoding="utf-8")
    kappa.chmod(0o755)
    environment = {
        **bed.environment,
        "PATH": f"{kappa.parent}:{bed.environment['PATH']}",
        "COLUMNS": "140",
    }
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", session()],
            cwd=bed.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{bed.logs()}"
        # One of two flights departed, 20 minutes late: by 15 minutes only the cancelled one is on time, by 30 both.
        # (What a diff shows is indented.)
        answers = [
            line.split() for line in done.stdout.splitlines() if line.startswith(("United ", "UA "))
        ]
        # The last one looks back at what was undone.
        assert [answer[-1] for answer in answers] == ["1", "2", "1", "2"]
        assert bed.pids() == []
    finally:
        bed.ensure_gone()
