"""The HTTP server as a child of the supervisor, which imports nothing of HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable

from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.state.store import Store
from replay.children.child import ChildProcess

_LOG = "logs/http.log"
_PATIENCE_SECONDS = 10.0


class HttpProcess:
    """The child that serves HTTP, if `serve.listen` is set."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a server that does not run yet.

        `say` gets what the operator should read; `clock` gives seconds that only go forward.
        """
        self._settings = settings
        self._child = ChildProcess(
            "the HTTP server",
            store.path(_LOG),
            say=say,
            clock=clock,
            patience_seconds=_PATIENCE_SECONDS,
        )

    def ensure_running(self) -> None:
        """Starts it unless it runs, is not wanted, or has died just now."""
        if not self._settings.serve.listen:
            return
        if (code := self._child.ended()) is not None:
            self._child.has_died(code)
        self._child.ensure_started("replay.run.serve", *project_options(self._settings))

    def end(self) -> None:
        """Ends it."""
        self._child.end()
