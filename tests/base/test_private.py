"""Laws of file modes: everything that Kappa keeps is private to its user.

A file that the user names has the modes of the user's own files.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from house import HOUSE
from served import DELAYS, ROWS_OF_DELAYS, Platform

from kappa.state.store import Store

pytestmark = pytest.mark.slow

# What the commands' own programs put below the root, they put as this one does.
PUTTING = """
import os, sys
import kappa.commands.main as program
from kappa.state.lock import Lock
from kappa.state.store import Store

def run_command(arguments):
    store = Store(arguments[0])
    store.put("leases/one.json", b"{}")
    with Lock(store.path("builds/b/lock"), what="b"):
        pass
    return 0

program.run_command = run_command
program.main()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def run(*command: str) -> None:
    subprocess.run(
        [sys.executable, *command],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        umask=0o022,
    )


def test_a_new_root_and_all_below_it_is_for_its_user_alone(tmp_path: Path) -> None:
    run("-c", PUTTING, str(tmp_path / "new" / "root"))

    made = [tmp_path / "new" / "root", *(tmp_path / "new" / "root").rglob("*")]
    assert len(made) > 4
    assert {mode(path) for path in made if path.is_dir()} == {0o700}
    assert {mode(path) for path in made if path.is_file()} == {0o600}


def test_a_new_root_is_closed_whatever_program_makes_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        Store(tmp_path / "new" / "root")
    finally:
        os.umask(before)

    assert mode(tmp_path / "new" / "root") == 0o700


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_file_that_the_user_names_has_the_users_own_mode(tmp_path: Path, form: str) -> None:
    (tmp_path / "kappa.toml").touch()
    Platform(Store(tmp_path / ".kappa")).serve("flights", {DELAYS: ROWS_OF_DELAYS})
    file = tmp_path / f"answer.{form}"

    run(
        str(HOUSE / "cli.py"),
        *("--project", str(tmp_path), "query", "from delays", "--out", str(file)),
    )

    assert mode(file) == 0o644
