"""Tests of the lines of a step that takes a while, on a terminal and without one."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from kappa.commands.terminal import moving as shown
from kappa.commands.terminal.moving import PlainLines, moving


def test_without_a_terminal_a_line_is_due_after_two_seconds_and_then_every_five() -> None:
    lines = PlainLines()

    found = {tenths / 10: lines.line("comparing", tenths / 10) for tenths in range(130)}

    assert {at: line for at, line in found.items() if line is not None} == {
        2.0: "comparing (2 s)",
        7.0: "comparing (7 s)",
        12.0: "comparing (12 s)",
    }


def test_a_quick_step_says_nothing() -> None:
    said = io.StringIO()
    for terminal in (True, False):
        with moving("planning", console=Console(file=said, force_terminal=terminal)):
            pass

    assert said.getvalue() == ""


def test_a_long_step_says_what_it_does_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(shown, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(shown, "_NEXT_SECONDS", 0.0)
    said = io.StringIO()
    with moving("proving", console=Console(file=said, width=200)) as show:
        _wait_for(r"proving \(\d+ s\)\n", said)
        show("comparing table [delays] (2 of 5)")
        _wait_for(r"comparing table \[delays\] \(2 of 5\) \(\d+ s\)\n", said)


def test_a_step_for_terminals_writes_no_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that reads stderr gets the answer alone."""
    monkeypatch.setattr(shown, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(shown, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(shown, "_TERMINAL_SECONDS", 0.0)
    script, terminal = io.StringIO(), io.StringIO()
    lines = Console(file=script, width=80)
    with (
        moving("answering", console=lines, only_terminal=True),
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
