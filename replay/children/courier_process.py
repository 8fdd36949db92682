"""The courier as a child of the supervisor, while a serving build has sinks or alerts."""

from __future__ import annotations

import time
from collections.abc import Callable

from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.state.store import Store
from replay.children.child import ChildProcess
from serving.courier.outlet import served_outlets

LOG = "courier"
# It may be killed at any time and continues after what its topics have.
_PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 0.5


class CourierProcess:
    """The child that runs sinks and alerts, if any is served."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a courier that does not run yet.

        `say` gets what the operator should read; `clock` gives seconds that only go forward.
        """
        self._store = store
        self._settings = settings
        self._clock = clock
        self._child = ChildProcess(
            "the courier",
            store.path(f"logs/{LOG}.log"),
            say=say,
            clock=clock,
            patience_seconds=_PATIENCE_SECONDS,
        )
        self._bootstrap_servers = ""
        self._look_at = 0.0
        self._is_wanted = False

    def ensure_running(self, bootstrap_servers: str) -> None:
        """Starts it unless it runs, is not wanted, or has died just now.

        Once it runs it stays: it ends each sink and alert by itself.
        """
        if (code := self._child.ended()) is not None:
            self._child.has_died(code)
        if bootstrap_servers != self._bootstrap_servers:
            self.end()
            self._bootstrap_servers = bootstrap_servers
        if not self._is_wanted and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_SECONDS
            self._is_wanted = bool(served_outlets(self._store))
        if self._is_wanted:
            self._child.ensure_started(
                "serving.courier.courier",
                *project_options(self._settings),
                *("--bootstrap", bootstrap_servers),
            )

    def end(self) -> None:
        """Ends it: the next one continues after what its topics have."""
        self._child.end()
