"""The HTTP server seen from the supervisor: a child that is started, started again where it dies, and ended; and where it is served.

Nothing of HTTP is imported here: a supervisor, and a command that asks where the server is, need none of it. Read next: serve.py.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from kappa.process import ProcessId, ensure_session_gone, start_tied
from kappa.settings import Settings
from kappa.store import Store
from replay.processes import open_log

SERVED = "run/http.json"
_LOG = "logs/http.log"
_BACK_OFF_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 30.0
_PATIENCE_SECONDS = 10.0
_NAP_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Served:
    """The server that runs now, and where."""

    pid: int
    born: str
    url: str
    format: int = 1


def served_at(store: Store) -> str | None:
    """The URL of the root's server, or None where none runs."""
    document = store.get_json(SERVED)
    found = None if document is None else Served(**document)
    return found.url if found is not None and ProcessId(found.pid, found.born).alive() else None


class HttpProcess:
    """The supervisor's child that serves; started again, later each time, where it dies. For the main thread alone (processes.py)."""

    def __init__(self, store: Store, settings: Settings, *, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`say` is told what the operator should read; `clock` gives seconds that only go forward."""
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._deaths = 0
        self._not_before = 0.0

    def ensure_running(self) -> None:
        """Starts it where it does not run, is wanted, and has not died just now."""
        if not self._settings.serve.listen:
            return
        if self._process is not None and (code := self._process.poll()) is not None:
            ensure_session_gone(self._process.pid)
            self._deaths, self._process = self._deaths + 1, None
            back_off = min(_LONGEST_BACK_OFF_SECONDS, _BACK_OFF_SECONDS * 2 ** (self._deaths - 1))
            self._not_before = self._clock() + back_off
            self._say(f"the HTTP server ended with {code}, see {self._store.path(_LOG)}; it is started again in {back_off:g} s")
        if self._process is None and self._clock() >= self._not_before:
            # -P: what lies in the user's folder must not be imported instead of a library of the same name.
            command = [sys.executable, "-P", "-m", "replay.serve", "--project", str(self._settings.project), "--root", self._settings.root_url]
            with open_log(self._store.path(_LOG)).open("ab") as output:
                self._process = start_tied(command, output=output)

    def end(self) -> None:
        """Asks it to end, waits, and kills it where it does not go."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = self._clock() + _PATIENCE_SECONDS
        while self._process.poll() is None and self._clock() < deadline:
            time.sleep(_NAP_SECONDS)
        ensure_session_gone(self._process.pid)
        self._process.wait()
        self._process = None
