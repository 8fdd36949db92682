"""Laws of a command that is ended: no process and no record of it is left where others look."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from house import HOUSE, SUPPORT

from kappa.base.process import process_id
from kappa.base.scratch import CHILD, delete_left_behind, left_behind, make_folder

pytestmark = [pytest.mark.slow]
# A command of the project's own file that asks a child as plan and deploy do.
ASKING = """
import sys
from pathlib import Path
import kappa.commands.app, kappa.commands.main as program
from kappa.base.settings import load_settings
from kappa.code import spark_child

spark_child.command_of = lambda _module, *_options: [sys.executable, "-m", "lasting_child"]

def run_command(arguments):
    settings = load_settings(Path(arguments[0]))
    try:
        spark_child.ask(
            settings, settings.project, "program", {"web": "web"}, seconds=lambda _left: 600,
            cut=lambda _name, _last: {}, more=lambda: {"records": ["a-record-of-theirs"]},
        )
    except KeyboardInterrupt:
        return 130

program.run_command = run_command
program.main()
"""


def all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_command_that_is_ended_leaves_no_record_and_no_child(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "kappa.toml").touch()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = subprocess.Popen(
        [sys.executable, "-c", ASKING, str(tmp_path)],
        env={
            **os.environ,
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join((str(HOUSE), str(SUPPORT))),
        },
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    while not (found := [path for path in all_files(temporary) if path.name == "ready.json"]):
        assert command.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = process_id(json.loads(found[0].read_text())["pid"])
    assert child is not None
    # Its own files are in the one folder, which nobody else may enter.
    assert any("a-record-of-theirs" in path.read_text() for path in all_files(temporary))
    (folder,) = temporary.iterdir()
    assert folder.name.startswith(CHILD)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    command.send_signal(number)
    code = command.wait(60)

    while child.alive():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if number is signal.SIGKILL:
        assert left_behind(temporary) == (folder,)
        # As the next plan, deploy or `kappa up` does.
        delete_left_behind(temporary)
    else:
        assert code == 130
    assert list(temporary.iterdir()) == []


def test_folders_of_processes_that_run_and_of_others_stay(tmp_path: Path) -> None:
    mine = make_folder(tmp_path, CHILD)
    (tmp_path / f"{CHILD}abc").mkdir()
    (tmp_path / f"{CHILD}999999999-1-0a1b2c3d").mkdir()

    make_folder(tmp_path, CHILD)

    assert mine.is_dir()
    assert (tmp_path / f"{CHILD}abc").is_dir()
    assert not (tmp_path / f"{CHILD}999999999-1-0a1b2c3d").exists()
