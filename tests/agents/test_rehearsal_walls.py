"""The walls of a rehearsal, tested with hostile programs instead of a rehearsal; without a JVM."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kappa.agents import trial_run
from kappa.base.errors import KappaError
from kappa.serving.query.sandbox.confine import available_layers

pytestmark = pytest.mark.skipif(
    "landlock" not in available_layers(), reason="not run: this machine confines no program"
)

CONFINED = """
import json, os, pathlib, resource, signal, sys
folder = pathlib.Path(sys.argv[1])
from kappa.serving.query.sandbox.confine import confine_program
confine_program(json.loads({readable!r}), [str(folder), "/dev/null"])
"""
ANSWER = '{"seconds": 1.0, "pipelines": [], "refusals": []}'


def run_hostile(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> Any:
    """Runs code within the walls, as the server runs a rehearsal; returns what the server reads."""
    program = folder / "hostile.py"
    program.write_text(
        CONFINED.format(readable=json.dumps(trial_run._readable())) + code, encoding="utf-8"
    )
    monkeypatch.setattr(
        trial_run, "command_of", lambda _, scratch: [sys.executable, str(program), scratch]
    )
    (folder / "scratch").mkdir()
    return trial_run._run(folder / "scratch")


def test_the_server_follows_no_link_of_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that replaces its files with links to a secret learns nothing of the secret."""
    secret = tmp_path / "secret.txt"
    secret.write_text("token = CANARY\n", encoding="utf-8")
    hostile = f"""
for name in ("output", "answer.json"):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to({str(secret)!r})
print("I am done")
sys.stdout.flush()
os._exit(3)
"""

    with pytest.raises(KappaError) as told:
        run_hostile(monkeypatch, tmp_path, hostile)

    assert "CANARY" not in f"{told.value.message} {told.value.hint}"
    assert "I am done" in told.value.message


@pytest.mark.parametrize(
    "put",
    [
        "os.mkfifo(folder / 'answer.json')",
        "(folder / 'answer.json').mkdir()",
        "(folder / 'answer.json').symlink_to('/dev/zero')",
        "(folder / 'answer.json').write_text('[' * 100_000)",
        "(folder / 'answer.json').write_text('{\"seconds\": NaN}')",
        "(folder / 'answer.json').write_bytes(b'\\xff')",
    ],
)
def test_an_answer_that_is_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str
) -> None:
    """Whatever a program leaves instead of its answer, the server neither waits nor fails."""
    with pytest.raises(KappaError, match="gave no answer|has another form"):
        run_hostile(monkeypatch, tmp_path, put)


def test_a_rehearsal_changes_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rehearsal changes no limits or cores of other processes.

    If memory is short, the rehearsal is killed first.
    """
    hostile = f"""
other, refusals = {os.getpid()}, 0
for act in (
    lambda: resource.prlimit(other, resource.RLIMIT_CORE, (0, 0)),
    lambda: os.sched_setaffinity(other, os.sched_getaffinity(other)),
    lambda: os.sched_setscheduler(other, os.SCHED_BATCH, os.sched_param(0)),
):
    try:
        act()
    except PermissionError:
        refusals += 1
# Its own it may change, and read.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.prlimit(os.getpid(), resource.RLIMIT_CORE)
os.sched_setaffinity(0, os.sched_getaffinity(0))
told = [str(refusals), pathlib.Path("/proc/self/oom_score_adj").read_text().strip()]
answer = {{"pipeline": "web", "plan": told, "topics": [], "sample": [], "tables": []}}
answer = {{"seconds": 1.0, "refusals": [], "pipelines": [{{**answer, "unchanged": True}}]}}
(folder / "answer.json").write_text(json.dumps(answer))
"""

    found = run_hostile(monkeypatch, tmp_path, hostile)

    assert found["pipelines"][0]["plan"] == ["3", "1000"]


def test_no_process_outlives_a_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has left its parent, its session and its environment is ended too."""
    hostile = """
if not os.fork():
    os.setsid()
    if not os.fork():
        # Of no use to whoever looks for children, sessions or variables.
        (folder / "pid").write_text(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
import time
while not (folder / "pid").exists() or not (folder / "pid").read_text():
    time.sleep(0.01)
os._exit(3)
"""

    with pytest.raises(KappaError, match="gave no answer"):
        run_hostile(monkeypatch, tmp_path, hostile)

    left = int((tmp_path / "scratch" / "pid").read_text())
    assert not Path(f"/proc/{left}").exists()


def test_a_rehearsal_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small files are limited too, and the answer names the limit that was exceeded."""
    monkeypatch.setattr(trial_run, "_MOST_BYTES", 8 << 20)
    hostile = """
import time
for number in range(100_000):
    (folder / str(number)).write_bytes(bytes(1 << 20))
    time.sleep(0.1)
"""

    with pytest.raises(KappaError, match="wrote more than"):
        run_hostile(monkeypatch, tmp_path, hostile)

    assert sum(each.stat().st_size for each in (tmp_path / "scratch").iterdir()) < 64 << 20
