"""A child of the supervisor beside its jobs: started, started again where it dies, later each time, and ended. For the main thread alone (processes.py).

Read next: http_process.py and archiver_process.py, which say what runs and when.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kappa.base.process import ensure_session_gone, start_tied
from replay.run.processes import open_log

_BACK_OFF_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 30.0
# One that ran so long died of something else than the last time.
_WELL_SECONDS = 60.0
_NAP_SECONDS = 0.02


class Beside:
    """One such child, whether it runs or not."""

    def __init__(
        self,
        what: str,
        log: Path,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float],
        patience_seconds: float,
        nice: int = 0,
    ) -> None:
        """`what` names it to the operator, who is told by `say`; it may take `patience_seconds` to end, and others go before it by `nice`."""
        self._what = what
        self._log = log
        self._say = say
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._nice = nice
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = 0.0
        self._deaths = 0
        self._not_before = 0.0

    @property
    def pid(self) -> int | None:
        """Its process; None where it was not started, or was seen to end."""
        return None if self._process is None else self._process.pid

    def ended(self) -> int | None:
        """Its exit code, where it has ended since it was asked last."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        ensure_session_gone(self._process.pid)
        self._process = None
        return code

    def has_died(self, code: int) -> None:
        """It ended with this code, and should not have: it is started again a while later, each time a longer one."""
        self._deaths = 1 if self._clock() - self._begun_at >= _WELL_SECONDS else self._deaths + 1
        back_off = min(_LONGEST_BACK_OFF_SECONDS, _BACK_OFF_SECONDS * 2 ** (self._deaths - 1))
        self._not_before = self._clock() + back_off
        self._say(
            f"{self._what} ended with {code}, see {self._log}; it is started again in {back_off:g} s"
        )

    def may_start(self) -> None:
        """What it died of may be mended: it is started at once."""
        self._deaths, self._not_before = 0, 0.0

    def ensure_started(self, module: str, *arguments: str) -> None:
        """Starts it where it does not run, and has not died just now."""
        if self._process is None and self._clock() >= self._not_before:
            self._begun_at = self._clock()
            # -P: what lies in the user's folder must not be imported instead of a library of the same name.
            command = [sys.executable, "-P", "-m", module, *arguments]
            with open_log(self._log).open("ab") as output:
                self._process = start_tied(command, output=output, nice=self._nice)

    def end(self) -> None:
        """Asks it to end, waits, and kills it where it does not go."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = self._clock() + self._patience_seconds
        while self._process.poll() is None and self._clock() < deadline:
            time.sleep(_NAP_SECONDS)
        ensure_session_gone(self._process.pid)
        self._process.wait()
        self._process = None
