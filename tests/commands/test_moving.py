"""Tests of the progress lines of a slow step, on a terminal and without one."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from kappa.commands.terminal import progress as shown
from kappa.commands.terminal.output import set_quiet
from kappa.commands.terminal.progress import PlainLines, moving


def test_without_a_terminal_a_state_has_one_line() -> None:
    lines = PlainLines()

    def text(seconds: float) -> str:
        return "planning: starts Spark" if seconds < 9 else f"slicing {int(seconds)} of 1,300"

    found = {tenths / 10: lines.line(text(tenths / 10), tenths / 10) for tenths in range(130)}

    assert {at: line for at, line in found.items() if line is not None} == {
        2.0: "planning: starts Spark",
        9.0: "slicing 9 of 1,300",
    }


def test_nothing_is_shown_of_a_quiet_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.01)
    said = io.StringIO()
    set_quiet(True)
    try:
        with moving("planning", console=Console(file=said)) as show:
            show("planning: starts Spark")
            time.sleep(0.1)  # ten looks
    finally:
        set_quiet(False)

    assert said.getvalue() == ""


def test_a_quick_step_says_nothing() -> None:
    said = io.StringIO()
    for terminal in (True, False):
        with moving("planning", console=Console(file=said, force_terminal=terminal)):
            pass

    assert said.getvalue() == ""


def test_a_long_step_says_what_it_does_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(shown, "_FIRST_SECONDS", 0.0)
    said = io.StringIO()
    with moving("proving", console=Console(file=said, width=200)) as show:
        _wait_for(r"proving\n", said)
        show("comparing table [delays] (2 of 5)")
        _wait_for(r"comparing table \[delays\] \(2 of 5\)\n", said)


def test_a_step_for_terminals_writes_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that reads stderr gets no progress lines."""
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(shown, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(shown, "_TERMINAL_SECONDS", 0.0)
    script, terminal = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", script)
    with (
        moving("answering", on_terminal=True),
        moving("answering", console=Console(file=terminal, force_terminal=True, width=80)),
    ):
        _wait_for(r"answering", terminal)

    assert script.getvalue() == ""


def test_on_a_terminal_the_line_moves_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(shown, "_TERMINAL_SECONDS", 0.0)
    said = io.StringIO()
    with moving("proving", console=Console(file=said, force_terminal=True, width=80)) as show:
        _wait_for(r"proving \(\d+ s\)", said)
        show("10 of 20 records")
        _wait_for(r"10 of 20 records \(\d+ s\)", said)

    assert said.getvalue().endswith("\x1b[2K")


def _wait_for(pattern: str, said: io.StringIO) -> None:
    deadline = time.monotonic() + 60
    while not re.search(pattern, said.getvalue()):
        assert time.monotonic() < deadline, said.getvalue()
        time.sleep(0.01)
