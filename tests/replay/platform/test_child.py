"""Laws of a child process: if it dies, it is started again, after a delay that grows.

It is started again at once if it ran well, or if the reason for its death may be gone.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kappa.replay.platform.child import ChildProcess


class Desk:
    """A supervisor that looks after one child, with a clock that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.child = ChildProcess(
            "the child",
            folder / "child.log",
            say=self.said.append,
            clock=lambda: self.now,
            patience_seconds=10.0,
        )

    def dies(self) -> None:
        """Starts the child, and waits until it has died."""
        self.child.ensure_started("json.tool", "--no-such-option")
        assert self.child.pid is not None, "it was not started"
        deadline = time.monotonic() + 60
        while (code := self.child.reap_exit_code()) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.child.has_died(code)

    def starts(self) -> bool:
        self.child.ensure_started("json.tool", "--no-such-option")
        return self.child.pid is not None


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_one_that_dies_is_started_again_later_each_time(desk: Desk, tmp_path: Path) -> None:
    for seconds, said in ((0.25, "0.2"), (0.5, "0.5"), (1, "1")):
        desk.dies()
        assert (
            desk.said[-1] == f"the child ended with 2, see {tmp_path / 'child.log'}; "
            f"it is started again in {said} s"
        )
        desk.now += seconds - 0.1
        assert not desk.starts()
        desk.now += 0.2
    assert "--no-such-option" in (tmp_path / "child.log").read_text(encoding="utf-8")


def test_one_that_ran_well_or_may_be_mended_is_started_as_after_its_first_death(desk: Desk) -> None:
    desk.dies()
    desk.now += 1
    desk.child.ensure_started("json.tool", "--no-such-option")
    desk.now += 100
    desk.dies()
    assert desk.said[-1].endswith("again in 0.2 s")

    desk.child.forget_deaths()

    desk.dies()
    assert desk.said[-1].endswith("again in 0.2 s")


def test_it_ends_when_it_is_asked_to(desk: Desk) -> None:
    desk.child.ensure_started("http.server", "--bind", "127.0.0.1", "0")
    desk.child.end()

    assert desk.child.pid is None
    desk.child.end()
    assert desk.said == []
