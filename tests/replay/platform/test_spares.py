"""Laws of the supervisor's spares: one waits, a taken spare is replaced, and none is left."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from house import SUPPORT

from kappa.base.process import process_id
from kappa.base.program import command_of
from kappa.base.settings import load_settings
from kappa.code.spark_child import ask_program, one_child
from kappa.code.task import SPARES, spare_sockets
from kappa.replay.platform import child
from kappa.replay.platform.child import ChildProcess, end_all
from kappa.replay.platform.spares import Spares
from kappa.state.store import Store

pytestmark = pytest.mark.slow


class Desk:
    """A supervisor that looks after spares without Spark, with a clock that the test sets."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        (folder / "kappa.toml").write_text(f"[engine]\nspares = {count}\n", encoding="utf-8")
        self.settings = load_settings(folder)
        self.store = Store(self.settings.root_url)
        self.now = 0.0
        self.said: list[str] = []
        self.jobs: list[ChildProcess] = []
        self.how = {"say": self.said.append, "clock": lambda: self.now}
        self.spares = Spares(self.store, self.settings, **self.how)

    def wait(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not what():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)

    def ready(self) -> list[int]:
        """Returns the process ids of the spares that accept requests."""
        return sorted(int(each.name.partition("-")[0]) for each in spare_sockets(self.at))

    def begun(self) -> list[int]:
        """Returns the process ids of the spares that were started and not taken."""
        return [each.pid for each in self.spares._free]  # no door shows them

    @property
    def at(self) -> Path:
        return self.store.path(SPARES)

    def wait_ready(self, count: int = 1) -> list[int]:
        def are_ready() -> bool:
            self.spares.ensure_ready()
            return len(self.ready()) == count

        self.wait(are_ready)
        return self.ready()

    def job(self, name: str) -> ChildProcess:
        log, spares = self.folder / f"{name}.log", self.spares.hand_over
        made = ChildProcess(f"job {name}", log, patience_seconds=10.0, hand_over=spares, **self.how)
        made.start("spare_program", str(self.folder / f"{name}.json"))
        self.jobs.append(made)
        return made

    def asks(self) -> int:
        """Asks as a command does. Returns the id of the process that answers."""
        asked = (self.settings, self.folder, "spare_program", {"web": "web"})
        limits = {"seconds": lambda _left: 60, "cut": lambda _name, last: {"last": last}}
        answer = ask_program(*asked, **limits)
        return int(answer["web"]["pid"])

    def answer(self, name: str) -> int:
        place = self.folder / f"{name}.json"
        self.wait(place.exists)
        return json.loads(place.read_text())["pid"]


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def command(module: str, *options: str) -> list[str]:
        spare = module == "kappa.engine.children.spare"
        return command_of("plain_spare" if spare else module, *options)

    monkeypatch.setattr(child, "command_of", command)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SUPPORT), *os.sys.path]))  # type: ignore[attr-defined]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[int], Desk]]:
    begun: list[Desk] = []

    def begin_one(count: int) -> Desk:
        begun.append(Desk(tmp_path, count))
        return begun[-1]

    yield begin_one
    for each in begun:
        end_all(each.jobs)
        each.spares.end()


@pytest.fixture
def desk(begin: Callable[[int], Desk]) -> Desk:
    return begin(1)


def test_each_job_has_a_process_of_its_own_and_another_spare_waits(desk: Desk) -> None:
    (first,) = desk.wait_ready()
    job = desk.job("one")

    assert job.pid == first == desk.answer("one")
    (second,) = desk.wait_ready()
    # Its successor is handed over, too; without one a process is started.
    assert desk.job("two").pid == second == desk.answer("two")
    assert desk.job("three").pid == desk.answer("three") not in {first, second}
    desk.wait(lambda: job.reap_exit_code() == 0)
    assert "it finds" in (desk.folder / "one.log").read_text()


def test_a_job_need_not_wait_until_a_spare_is_ready(desk: Desk) -> None:
    desk.spares.ensure_ready()

    job = desk.job("one")

    assert job.pid == desk.answer("one")
    assert desk.ready() == []


def test_one_that_a_command_has_taken_is_replaced_and_is_no_jobs(desk: Desk) -> None:
    (first,) = desk.wait_ready()

    with one_child(desk.settings):
        assert desk.asks() == first
        (second,) = desk.wait_ready()
        assert desk.job("one").pid == second != first
        assert desk.asks() == first
    desk.wait(lambda: process_id(first) is None)
    desk.spares.ensure_ready()
    # The third alone has a folder.
    assert len([*desk.at.glob("*/")]) == 2


def test_one_that_a_command_is_done_with_at_the_next_look_has_not_died(desk: Desk) -> None:
    (first,) = desk.wait_ready()

    with one_child(desk.settings):
        assert desk.asks() == first
    desk.wait(lambda: process_id(first) is None)
    desk.spares.ensure_ready()

    assert desk.said == []
    assert desk.wait_ready() != [first]


def test_one_that_dies_is_replaced_later_each_time(desk: Desk) -> None:
    for seconds in (0.25, 0.5):
        (pid,) = desk.wait_ready()
        os.kill(pid, 9)
        desk.wait(lambda: desk.spares.ensure_ready() or len(desk.said) > 0)  # type: ignore[func-returns-value]
        assert desk.said.pop() == f"a spare ended, see {desk.store.path('logs/spare.log')}"
        assert list(desk.at.glob("*/")) == []
        desk.now += seconds - 0.1
        desk.spares.ensure_ready()
        assert list(desk.at.glob("*/")) == []
        desk.now += 0.2


def test_spare_of_other_libraries_is_replaced(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = desk.wait_ready()
    monkeypatch.setattr("kappa.replay.platform.spares.libraries_digest", lambda: "others")

    desk.wait(lambda: desk.spares.ensure_ready() or desk.ready() not in ([], [old]))  # type: ignore[func-returns-value]

    assert process_id(old) is None


def test_of_those_that_end_nothing_is_left(begin: Callable[[int], Desk]) -> None:
    desk = begin(2)
    ready = desk.wait_ready(2)

    desk.spares.end()

    assert [process_id(pid) for pid in ready] == [None, None]
    assert not desk.at.exists()


def test_a_second_spare_boots_once_the_first_is_warm(begin: Callable[[int], Desk]) -> None:
    """The second spare starts only when the first is warm, because two would slow each other."""
    desk = begin(2)
    desk.spares.ensure_ready()
    (first,) = desk.begun()
    os.kill(first, signal.SIGSTOP)
    assert desk.ready() == []

    desk.spares.ensure_ready()
    assert desk.begun() == [first]
    os.kill(first, signal.SIGCONT)

    assert first in desk.wait_ready(2)


def test_without_spares_each_start_is_a_process_of_its_own(begin: Callable[[int], Desk]) -> None:
    desk = begin(0)
    desk.spares.ensure_ready()

    assert not desk.at.exists()
    assert desk.job("one").pid == desk.answer("one")
