"""Commands that a test types in its own process."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from kappa.commands.app import run_command
from kappa.commands.terminal import moving


class Ended(NamedTuple):
    """A command's exit code, answer and messages."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Kappa = Callable[..., Ended]


def typist(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kappa:
    """Returns a function that types a command in the folder of now.

    There is no terminal, nothing to read from stdin, and no line of progress: on a busy machine any
    step may take long enough for a line.
    """
    monkeypatch.setattr(moving, "_FIRST_SECONDS", 600.0)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def type_in(*arguments: str) -> Ended:
        code = run_command([*arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ended(code, said.out, said.err)

    return type_in
