"""Children that are given the broker's address: the courier and the collector.

A program that knows another address is ended, and begins anew. The archiver is one of them
(archiver_process.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kappa.base.program import project_options
from kappa.base.settings import Settings
from kappa.replay.platform.child import ChildProcess
from kappa.serving.outlets.outlet import served_outlets
from kappa.state.root import own_root
from kappa.state.store import Store

_LOOK_SECONDS = 0.5
# Both may be killed at any time: the courier continues after what its topics have, and what the
# collector has acknowledged is in the log.
_COURIER_PATIENCE_SECONDS = 2.0
_COLLECTOR_PATIENCE_SECONDS = 15.0


class ChildAtBroker:
    """A child program that is given the project, the root, and the broker's address."""

    def __init__(self, child: ChildProcess, module: str, settings: Settings) -> None:
        self._child = child
        self._module = module
        self._settings = settings
        self._bootstrap_servers = ""

    def ensure_running(self, bootstrap_servers: str, *, wanted: bool) -> None:
        """Starts it if it is wanted, unless it runs or has died just now."""
        if bootstrap_servers != self._bootstrap_servers:
            self._child.end()
            self._bootstrap_servers = bootstrap_servers
        if wanted:
            self._child.ensure_started(
                self._module, *project_options(self._settings), "--bootstrap", bootstrap_servers
            )


class CourierProcess:
    """The child that runs sinks and alerts, if a serving build has any."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a courier that does not run yet; one of a root that may not send never does.

        `say` gets what the operator should read; `clock` gives seconds that only go forward.
        """
        self._store = store
        root = own_root(store)
        self._may_send = root is None or root.sends
        self._clock = clock
        self._child = ChildProcess(
            "the courier",
            store.local.path("logs/courier.log"),
            say=say,
            clock=clock,
            patience_seconds=_COURIER_PATIENCE_SECONDS,
        )
        self._at_broker = ChildAtBroker(self._child, "kappa.serving.outlets.courier", settings)
        self._look_at = 0.0
        self._is_wanted = False

    def ensure_running(self, bootstrap_servers: str) -> None:
        """Starts it unless it runs, is not wanted, or has died just now.

        Once it runs it stays: it ends each sink and alert by itself.
        """
        self._child.reap()
        if not self._is_wanted and self._clock() >= self._look_at:
            self._look_at = self._clock() + _LOOK_SECONDS
            self._is_wanted = self._may_send and bool(served_outlets(self._store))
        self._at_broker.ensure_running(bootstrap_servers, wanted=self._is_wanted)

    def end(self) -> None:
        """Ends it: the next one continues after what its topics have."""
        self._child.end()


class CollectorProcess:
    """The child that takes events over the network, if `[collect]` names topics."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a collector that does not run yet, as a courier is made."""
        self._is_wanted = bool(settings.collect.topics)
        self._child = ChildProcess(
            "the collector",
            store.local.path("logs/collector.log"),
            say=say,
            clock=clock,
            patience_seconds=_COLLECTOR_PATIENCE_SECONDS,
        )
        self._at_broker = ChildAtBroker(self._child, "kappa.serving.collect.collector", settings)

    def ensure_running(self, bootstrap_servers: str) -> None:
        """Starts it unless it runs, is not wanted, or has died just now."""
        self._child.reap()
        self._at_broker.ensure_running(bootstrap_servers, wanted=self._is_wanted)

    def end(self) -> None:
        """Ends it, once what is on its way is acknowledged."""
        self._child.end()
