"""The archiver as a child of the supervisor, while a topic may be archived.

It starts again if it dies or if the project's files change. What a project declares is known only
by running its files, which a supervisor never does. So the word in a file is enough to try, and a
child that finds no archived topic ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kappa.base.process import LOW_PRIORITY
from kappa.base.settings import Settings
from kappa.code.sources import Sources
from kappa.replay.platform.at_broker import ChildAtBroker
from kappa.replay.platform.child import ChildProcess
from kappa.state.store import Store

LOG = "archiver"
# It may be killed at any time and continues after what it has committed. The supervisor waits
# for its end, and does nothing else meanwhile.
_PATIENCE_SECONDS = 1.0
_LOOK_SECONDS = 5.0

# The project's files that may declare topics, and when each was changed.
_Files = Mapping[Path, int]


class ArchiverProcess:
    """The child that archives topics, if the project's files may declare any."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes an archiver that does not run yet.

        `say` gets what the operator should read; `clock` gives seconds that only go forward.
        """
        self._settings = settings
        self._clock = clock
        self._child = ChildProcess(
            "the archiver",
            store.local.path(f"logs/{LOG}.log"),
            say=say,
            clock=clock,
            patience_seconds=_PATIENCE_SECONDS,
            # The job that keeps tables fresh goes before it.
            nice=LOW_PRIORITY,
        )
        self._at_broker = ChildAtBroker(self._child, "kappa.engine.archive.archiver", settings)
        self._files: _Files = {}
        self._wanted = False
        self._look_at = 0.0

    def ensure_running(self, bootstrap_servers: str) -> None:
        """Starts it unless it runs, is not wanted, or has died just now.

        Ends one that knows older files or another broker.
        """
        if (code := self._child.ended()) is not None:
            if code == 0:
                # No topic is archived, and none will be until the files change.
                self._wanted = False
            else:
                self._child.has_died(code)
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_SECONDS
            self._look()
        self._at_broker.ensure_running(bootstrap_servers, wanted=self._wanted)

    def end(self) -> None:
        """Ends it: the next one continues after what it has committed."""
        self._child.end()

    def _look(self) -> None:
        try:
            found = Sources(self._settings.project).changed_at()
        except OSError:
            # A folder went away while it was listed: the next look sees what is there then.
            return
        if found == self._files:
            return
        self._files = found
        self.end()
        self._wanted = any(_says_archive(path) for path in found)
        self._child.forget_deaths()


def _says_archive(path: Path) -> bool:
    try:
        return b"archive" in path.read_bytes()
    except OSError:
        return False
