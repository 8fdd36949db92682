"""Laws of Spark's child processes: they report progress, and end if they hang or are abandoned."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from house import HOUSE, SUPPORT

from kappa.base.errors import KappaError
from kappa.base.process import process_id
from kappa.base.settings import load_settings
from kappa.base.temporary_folders import CHILD, delete_left_behind, left_behind, make_folder
from kappa.code import spark_child
from kappa.code.spark_child import BEGINS, PROGRESS, ask_program, one_child
from kappa.code.task import ENDED

# What the program of a spare does with each task, without Spark.
SPARE = f"""
import json, os, sys
from pathlib import Path
print("on stdout")
for line in sys.stdin:
    folder = Path(json.loads(line)["arguments"][0])
    request = json.loads((folder / "request.json").read_text())
    answers = dict()
    print("a warning of Spark", file=sys.stderr, flush=True)
    exec(request["first"])
    for name, does in request["pipelines"].items():
        print(f"{BEGINS}{{name}}", file=sys.stderr, flush=True)
        print("{PROGRESS}first of two", file=sys.stderr, flush=True)
        exec(does)
        print("{PROGRESS}second of two", file=sys.stderr, flush=True)
        answers[name] = dict(pid=os.getpid())
        (folder / "answer.json").write_text(json.dumps(answers))
    print("{ENDED}0", file=sys.stderr, flush=True)
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that asks such a child, and returns the answers and the messages."""
    (tmp_path / "kappa.toml").touch()
    settings = load_settings(tmp_path)
    monkeypatch.setattr(spark_child, "command_of", lambda *_: [sys.executable, "-c", SPARE])

    def ask_it(
        does: str = "", *, first: str = "", seconds: float = 60, **others: str
    ) -> tuple[Any, list[str]]:
        said: list[str] = []
        how = {
            "seconds": lambda left: seconds / left,
            "cut": lambda name, last: {"cut": name, "last": last},
            "say": said.append,
            "more": lambda: {"first": first},
        }
        answers = ask_program(settings, tmp_path, "program", {"web": does, **others}, **how)
        return answers if others else answers["web"], said

    ask_it.settings = settings  # type: ignore[attr-defined]
    return ask_it


def test_lines_of_progress_are_passed_on(asked: Any) -> None:
    assert asked()[1] == ["starts Spark", "first of two", "second of two"]


def test_the_last_other_line_is_in_the_error_about_a_child_without_an_answer(asked: Any) -> None:
    with pytest.raises(KappaError, match="no answer about web: a warning of Spark"):
        asked(first="sys.exit(3)")


@pytest.mark.slow
def test_a_child_that_never_begins_is_killed(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_child, "_START_SECONDS", 1.0)
    with pytest.raises(KappaError, match="no answer about web: it did not start within 1 s"):
        asked(first="import time; time.sleep(600)")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("does", "last"),
    [
        ("import time; time.sleep(600)", None),
        ("os._exit(3)", "a warning of Spark"),
        ("os.kill(os.getpid(), 11)", "a warning of Spark"),
        ("raise ValueError('x')", "ValueError: x"),
    ],
)
def test_pipeline_is_cut_by_name_alone(asked: Any, does: str, last: str | None) -> None:
    """If one pipeline takes too long, only that pipeline is cut off.

    The pipelines before it keep their answers, and another child answers for those after it.
    """
    answers, _ = asked(a=does, b="", seconds=6)

    assert answers["a"] == {"cut": "a", "last": last}
    assert answers["web"].keys() == answers["b"].keys() == {"pid"}
    assert answers["web"] != answers["b"]


def test_requests_of_one_block_have_one_child_and_others_have_one_each(asked: Any) -> None:
    with one_child(asked.settings):
        first, second = asked()[0]["pid"], asked()[0]["pid"]
    third = asked()[0]["pid"]

    assert first == second != third
    assert not Path(f"/proc/{first}").exists()
    assert not Path(f"/proc/{third}").exists()


def test_a_child_that_was_killed_between_requests_has_a_successor(asked: Any) -> None:
    with one_child(asked.settings):
        first = asked()[0]["pid"]
        os.kill(first, signal.SIGKILL)
        second, said = asked()
        with pytest.raises(KappaError, match="no answer about web: a warning of Spark"):
            asked(first="os._exit(3)")

    assert second["pid"] != first
    assert said[0] == "starts Spark"


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
        spark_child.ask_program(
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


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_ended_command_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """A command that was ended by a signal leaves no record and no child."""
    (tmp_path / "kappa.toml").touch()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    paths = {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join((str(HOUSE), str(SUPPORT)))}
    command = subprocess.Popen(
        [sys.executable, "-c", ASKING, str(tmp_path)],
        env={**os.environ, **paths},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
    )
    deadline = time.monotonic() + 60
    while not (found := [path for path in all_files(temporary) if path.name == "ready.json"]):
        assert command.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child = process_id(json.loads(found[0].read_text())["pid"])
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
