"""The channel of commands: a program of the settings, with a message on its standard input.

It has received a message if it ends with 0. It runs without a shell, is killed if it takes too
long, and has no variable of Kappa's settings in its environment: secrets may be among them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO

from kappa.base.process import ensure_session_gone, start_tied
from kappa.serving.outlets.alerts.channel import RECEIVED, Attempted, Outcome
from kappa.serving.outlets.alerts.message import Message

_PREFIX = "KAPPA__"
_LONGEST_REASON = 200


class Program:
    """A receiver that is a program. Call it from a thread that lives as long as the process."""

    def __init__(self, name: str, command: Sequence[str], *, timeout_seconds: float) -> None:
        self._name = name
        self._command = list(command)
        self._timeout_seconds = timeout_seconds

    def send(self, message: Message) -> Attempted:
        """Runs the program, once."""
        if shutil.which(self._command[0]) is None:
            return self._failed(f"cannot be found: {self._command[0]}")
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(_PREFIX)
        }
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write(message.body.encode() + b"\n")
            given.seek(0)
            try:
                child = start_tied(
                    self._command, output=output, environment=environment, source=given.fileno()
                )
            except OSError as error:
                return self._failed(f"cannot be started: {error.strerror}")
            try:
                code = child.wait(self._timeout_seconds)
            except subprocess.TimeoutExpired:
                return self._failed(f"was ended after {self._timeout_seconds:g} s")
            finally:
                # What it has left behind, too.
                ensure_session_gone(child.pid)
                child.wait()
            if code == 0:
                return RECEIVED
            last = _last_line(output)
            return self._failed(f"ended with {code}" + (f": {last}" if last else ""))

    def _failed(self, why: str) -> Attempted:
        return Attempted(Outcome.AGAIN, f"command {self._name} {why}")


def _last_line(output: IO[bytes]) -> str:
    end = output.seek(0, os.SEEK_END)
    output.seek(max(0, end - 4_096))
    lines = output.read().decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return "".join(letter for letter in last if letter.isprintable())[:_LONGEST_REASON]
