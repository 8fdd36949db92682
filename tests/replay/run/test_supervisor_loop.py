"""The supervisor's loop: an error of the machine ends neither the loop nor the jobs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kappa.base.errors import Broken
from kappa.state.store import Store
from replay.rollout.state import State
from replay.run.supervisor import _loop


class Ticks:
    """A controller whose ticks raise these errors in turn, and then end the loop."""

    def __init__(self, *errors: Exception) -> None:
        self.state = State()
        self.waits: dict[int, str] = {}
        self.to_end = False
        self.errors = list(errors)

    def tick(self) -> State:
        if self.errors:
            raise self.errors.pop(0)
        self.to_end = True
        return self.state


def run_loop(folder: Path, ticks: Ticks) -> list[str]:
    """Runs the loop over children that are all well, and returns its messages."""
    said: list[str] = []
    well = SimpleNamespace(
        bootstrap_servers="localhost:9092",
        ensure_running=lambda *_: None,
        ensure_jobs=lambda *_, **__: None,
        report=lambda *_: None,
    )
    _loop(Store(folder.as_uri()), well, ticks, well, (well, well), well, said.append, ticks)
    return said


def test_an_error_of_the_machine_is_reported_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    full = OSError(11, "Resource temporarily unavailable")

    said = run_loop(tmp_path, Ticks(full, full))

    assert [line for line in said if "Resource" in line] == [str(full)]


def test_what_is_broken_ends_the_loop(tmp_path: Path) -> None:
    with pytest.raises(Broken):
        run_loop(tmp_path, Ticks(Broken("the journal has a gap")))
