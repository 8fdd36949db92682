"""The archiver seen from the supervisor: a child that runs where a topic may be archived, and is started again where it dies or the project's files change.

What a project declares is known only by running its files, which a supervisor never does: the word in a file is enough to try,
and a child that finds no archived topic ends. Read next: kappa/engine/archiver.py.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kappa.process import ensure_session_gone, start_tied
from kappa.settings import Settings
from kappa.sources import Sources
from kappa.store import Store
from replay.processes import open_log

LOG = "archiver"
_BACK_OFF_SECONDS = 1.0
_LONGEST_BACK_OFF_SECONDS = 30.0
# It may be killed at any time, and goes on from what it has committed; and everything else of the supervisor's waits meanwhile.
_PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 5.0
_NAP_SECONDS = 0.02
# The job that keeps tables fresh goes before it.
_NICE = 5

# The project's files that may declare topics, and when each was changed.
_Files = Mapping[Path, int]


class ArchiverProcess:
    """The supervisor's child that archives topics; started again, later each time, where it dies. For the main thread alone (processes.py)."""

    def __init__(self, store: Store, settings: Settings, *, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`say` is told what the operator should read; `clock` gives seconds that only go forward."""
        self._store = store
        self._settings = settings
        self._say = say
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._bootstrap_servers = ""
        self._files: _Files = {}
        self._wanted = False
        self._deaths = 0
        self._not_before = 0.0
        self._look_at = 0.0

    def ensure_running(self, bootstrap_servers: str) -> None:
        """Starts it where it does not run, is wanted, and has not died just now; ends one that knows an older project or another broker."""
        self._reap()
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_SECONDS
            self._look()
        if bootstrap_servers != self._bootstrap_servers:
            self.end()
            self._bootstrap_servers = bootstrap_servers
        if self._process is None and self._wanted and self._clock() >= self._not_before:
            where = ("--project", str(self._settings.project), "--root", self._settings.root_url, "--bootstrap", bootstrap_servers)
            # -P: what lies in the user's folder must not be imported instead of a library of the same name.
            command = [sys.executable, "-P", "-m", "kappa.engine.archiver", *where]
            with open_log(self._path).open("ab") as output:
                self._process = start_tied(command, output=output, nice=_NICE)

    def end(self) -> None:
        """Asks it to end, waits, and kills it where it does not go: it goes on from what it has committed."""
        if self._process is None:
            return
        self._process.terminate()
        deadline = self._clock() + _PATIENCE_SECONDS
        while self._process.poll() is None and self._clock() < deadline:
            time.sleep(_NAP_SECONDS)
        ensure_session_gone(self._process.pid)
        self._process.wait()
        self._process = None

    @property
    def _path(self) -> Path:
        return self._store.path(f"logs/{LOG}.log")

    def _reap(self) -> None:
        if self._process is None or (code := self._process.poll()) is None:
            return
        ensure_session_gone(self._process.pid)
        self._process = None
        if code == 0:
            # No topic is archived, and none will be until the files change.
            self._wanted = False
            return
        self._deaths += 1
        back_off = min(_LONGEST_BACK_OFF_SECONDS, _BACK_OFF_SECONDS * 2 ** (self._deaths - 1))
        self._not_before = self._clock() + back_off
        self._say(f"the archiver ended with {code}, see {self._path}; it is started again in {back_off:g} s")

    def _look(self) -> None:
        try:
            found = _changed_at(Sources(self._settings.project).python_files())
        except OSError:
            # A folder went away while it was listed: the next look sees what is there then.
            return
        if found == self._files:
            return
        self._files = found
        self.end()
        self._wanted = any(_says_archive(path) for path in found)
        self._deaths, self._not_before = 0, 0.0


def _changed_at(paths: Iterable[Path]) -> _Files:
    found = {}
    for path in paths:
        try:
            found[path] = path.stat().st_mtime_ns
        except OSError:
            # It is being replaced: the next look sees it.
            continue
    return found


def _says_archive(path: Path) -> bool:
    try:
        return b"archive" in path.read_bytes()
    except OSError:
        return False
