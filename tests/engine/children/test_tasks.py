"""Laws of a spare: it takes one command's tasks or one job, and leaves nothing for the next."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from house import SUPPORT

from kappa.base.process import ensure_session_gone, start_tied
from kappa.code.task import ENDED, Task, socket_name, spare_socket, spare_sockets

pytestmark = pytest.mark.slow


class Process:
    """A spare that was started, and the requests to it."""

    def __init__(self, project: Path, module: str, with_door: str = "yes") -> None:
        self.project = project
        (project / "kappa.toml").touch()
        self.spares = project / "spares"
        self.own = self.spares / ("own" * 40)
        self.own.mkdir(parents=True)
        self.log = project / "spare.log"
        self.guest = socket.socket(socket.AF_UNIX)
        with self.log.open("ab") as output:
            self.process = start_tied(
                [
                    *(sys.executable, "-P", "-m", module, "--project", str(project)),
                    *("--root", str(project / "root"), "--folder", str(self.own)),
                    *("--door", with_door),
                ],
                output=output,
                environment={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([*sys.path, str(SUPPORT)]),
                },
                source=subprocess.PIPE,
            )

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not what():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    @property
    def door(self) -> Path:
        return spare_socket(self.spares, self.process.pid)

    def opened(self) -> socket.socket:
        self.wait(self.door.exists)
        self.guest.close()
        comes = self.guest = socket.socket(socket.AF_UNIX)
        with socket_name(self.door) as name:
            comes.connect(name)
        return comes

    def hand_over(self, task: Task) -> None:
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), task.line)

    def answer(self, place: Path) -> Any:
        self.wait(place.exists)
        return json.loads(place.read_text())


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def begin_one(*arguments: str) -> Process:
        begun.append(Process(tmp_path, *arguments))
        return begun[-1]

    yield begin_one
    for each in begun:
        ensure_session_gone(each.process.pid)
        each.guest.close()
        with each.process:
            each.process.kill()


def told(comes: socket.socket) -> list[str]:
    """Reads the output for a command, up to the end of its task."""
    lines: list[str] = []
    with comes.makefile("r") as says, suppress(ConnectionResetError):
        for line in says:
            if line.startswith(ENDED):
                return [*lines, line.strip()]
            lines.append(line.strip())
    return lines


def test_a_job_gets_the_whole_process_and_its_own_log(
    tmp_path: Path, begin: Callable[..., Process]
) -> None:
    spare = begin("plain_spare")
    answer, log = tmp_path / "answer.json", tmp_path / "job.log"
    log.write_text("before\n")

    spare.hand_over(Task("spare_program", (str(answer), "fails"), log=str(log)))

    found = spare.answer(answer)
    assert spare.process.wait(60) == 7
    assert log.read_text() == f"before\nit finds {spare.process.pid}\n"
    assert found["input"] == ""
    assert found["title"].endswith(f"-m spare_program {answer} fails")
    assert not spare.door.exists()


def test_a_command_has_its_tasks_run_in_one_process_as_if_they_were_its_own(
    tmp_path: Path, begin: Callable[..., Process]
) -> None:
    spare = begin("plain_spare")
    comes = spare.opened()
    first, second = tmp_path / "first.json", tmp_path / "second.json"

    for answer in (first, second):
        task = Task(
            "spare_program",
            (str(answer),),
            environment=(("MOOD", answer.stem),),
            folder=str(tmp_path),
        )
        comes.sendall(task.line)
        assert told(comes) == [f"it finds {spare.process.pid}", f"{ENDED}0"]

    assert list(spare_sockets(spare.spares)) == []
    assert spare.answer(first)["mood"] == "first"
    assert spare.answer(second)["mood"] == "second"
    assert spare.answer(second)["folder"] == str(tmp_path)
    comes.close()
    assert spare.process.wait(60) == 0
    # It is nobody else's meanwhile.
    with pytest.raises(BrokenPipeError):
        spare.hand_over(Task("spare_program", (str(tmp_path / "third.json"),), log="third.log"))


def test_it_ends_with_who_waits_for_it(tmp_path: Path, begin: Callable[..., Process]) -> None:
    spare = begin("plain_spare")
    comes = spare.opened()
    comes.sendall(Task("spare_program", (str(tmp_path / "a.json"), "wait")).line)
    spare.answer(tmp_path / "a.json")

    comes.close()

    assert spare.process.wait(60) == 0


def test_a_job_that_was_handed_over_first_is_not_lost_to_a_command(
    tmp_path: Path, begin: Callable[..., Process]
) -> None:
    spare = begin("plain_spare")
    spare.wait(spare.door.exists)
    spare.process.send_signal(19)
    spare.hand_over(
        Task("spare_program", (str(tmp_path / "job.json"),), log=str(tmp_path / "job.log"))
    )
    comes = spare.opened()
    spare.process.send_signal(18)

    spare.answer(tmp_path / "job.json")
    # The command is told nothing, and has its child started elsewhere.
    assert told(comes) == []


@pytest.mark.long
@pytest.mark.jvm
def test_of_one_task_no_trace_is_in_the_session_of_the_next(
    tmp_path: Path, begin: Callable[..., Process]
) -> None:
    spare = begin("kappa.engine.children.spare")
    comes = spare.opened()
    found = []
    for name in ("first", "second"):
        answer = tmp_path / f"{name}.json"
        comes.sendall(Task("spare_program", (str(answer), "spark")).line)
        told(comes)
        found.append({**spare.answer(answer), "title": ""})

    first, second = found
    assert first == second
    assert (first["views"], first["functions"]) == ([], False)
    assert (first["ansi"], first["utc"]) == ("true", "UTC")
    # What warmed it up has left nothing either.
    assert not (spare.own / "warm-up").exists()


def test_a_spare_yields_until_a_task_waits() -> None:
    """A job that takes a booting spare does not boot with the low priority of a spare."""
    group = Path("/proc/self/autogroup")
    if not group.exists():
        pytest.skip("this kernel does not group processes by session")
    script = (
        "import time; from pathlib import Path\n"
        "from kappa.base.process import yielding_to_others\n"
        "from kappa.engine.children.spare import Tasks, _calling_when_asked\n"
        f"def niceness(): return Path({str(group)!r}).read_text().split()[-1]\n"
        "with yielding_to_others(3) as stop, _calling_when_asked(Tasks(None), stop):\n"
        "    print(niceness(), flush=True)\n"
        "    while niceness() != '0': time.sleep(0.02)\n"
    )
    spare = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    with spare:
        assert spare.stdout is not None
        assert spare.stdout.readline() == "3\n"
        assert spare.poll() is None
        spare.communicate("a task\n", timeout=60)
    assert spare.returncode == 0
