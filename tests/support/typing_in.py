"""Commands that a test runs in its own process."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from kappa.base.clock import now
from kappa.base.process import process_id
from kappa.commands.app import run_command
from kappa.commands.terminal import progress
from kappa.replay.status.run_records import Running, put_running
from kappa.state.store import Store


class Ended(NamedTuple):
    """A command's exit code, answer and messages."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def has(self, code: int, *messages: str, out: str | Iterable[str] = ()) -> Ended:
        """Asserts the exit code, and texts of the messages and of the answer. Returns itself."""
        assert self.code == code, self
        for text in messages:
            assert text in self.err, self
        for text in (out,) if isinstance(out, str) else out:
            assert text in self.out, self
        return self


Kappa = Callable[..., Ended]


def pretend_up(store: Store, settings: Mapping[str, str] | None = None) -> None:
    """Makes this process look like a supervisor that lives and does nothing."""
    me = process_id(os.getpid())
    assert me is not None
    put_running(store, Running(me.pid, me.born, "127.0.0.1:1", now(), settings=settings))


def typist(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Kappa:
    """Returns a function that runs a command in the current folder.

    There is no terminal, stdin is empty, and no progress line is printed: on a busy machine, any
    step may take long enough for such a line.
    """
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 600.0)
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def type_in(*arguments: str) -> Ended:
        code = run_command([*arguments])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ended(code, said.out, said.err)

    return type_in
