"""Starts and ends a child process that prints lines of JSON and exits when its input is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from kappa.base.errors import KappaError

_NAP_SECONDS = 0.05
_END_SECONDS = 90.0


class Child:
    """A process `python -m MODULE ARGUMENTS...`. Its last printed line can be read at any time."""

    def __init__(
        self, module: str, arguments: Sequence[str], *, environment: Mapping[str, str], folder: Path
    ) -> None:
        """Starts the process in its own session, so that Ctrl-C at the terminal does not end it."""
        self._name = module
        self._complaints = (folder / f"{module}.log").open("w+", encoding="utf-8")
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        self._last: dict[str, Any] | None = None
        assert self._process.stdout is not None
        self._listener = threading.Thread(
            target=self._listen, args=(self._process.stdout,), name=module, daemon=True
        )
        self._listener.start()

    @property
    def last(self) -> dict[str, Any] | None:
        """Returns the process's last line, or None before the first line.

        Raises KappaError if the process has exited.
        """
        if self._process.poll() is not None:
            raise self._died()
        return self._last

    def wait_until_it_speaks(self, patience_seconds: float) -> dict[str, Any]:
        """Waits until the process has printed a line, and returns the last printed line.

        Raises KappaError if the process prints nothing within `patience_seconds`, or if it exits.
        """
        deadline = time.monotonic() + patience_seconds
        while (line := self.last) is None:
            if time.monotonic() > deadline:
                raise KappaError(
                    f"{self._name} has printed nothing for {patience_seconds:.0f} seconds"
                )
            time.sleep(_NAP_SECONDS)
        return line

    def finish(self) -> tuple[int, dict[str, Any]]:
        """Closes the process's input and waits until it exits. Returns exit code and last line.

        Raises KappaError if the process does not exit within 90 seconds (after killing it), or if
        it has printed no line.
        """
        self._close_input()
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise KappaError(
                f"{self._name} did not end within {_END_SECONDS:.0f} seconds and was killed"
            ) from None
        self._listener.join()
        if self._last is None:
            raise self._died()
        return code, self._last

    def ensure_ended(self) -> None:
        """Kills the process if it still runs, and closes its files."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._listener.join()
        self._close_input()
        self._complaints.close()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                return

    def _listen(self, output: IO[str]) -> None:
        with output:
            for line in output:
                self._last = json.loads(line)

    def _died(self) -> KappaError:
        self._complaints.flush()
        # os.pread, since the child has the same file open, with its own place in it.
        lines = (
            os.pread(self._complaints.fileno(), 100_000, 0)
            .decode(errors="replace")
            .strip()
            .splitlines()
        )
        code, complaint = self._process.returncode, lines[-1] if lines else "it printed nothing"
        return KappaError(f"{self._name} ended with exit code {code}: {complaint}")
