"""The keeper of HTTP as a child of the supervisor, which imports no server.

The keeper (replay/platform/keeper.py) outlives a supervisor that was killed. Its lock names it, so
the next supervisor, or `kappa down`, finds and ends it. A `kappa serve` has no such lock.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable

from kappa.base.errors import SettingsError
from kappa.base.process import kill_and_see_gone, send_signal
from kappa.base.program import error_text, project_options
from kappa.base.settings import Settings
from kappa.replay.platform.child import ChildProcess
from kappa.replay.platform.socket_door import socket_handed_over
from kappa.replay.status.running import DOOR, KEEPER
from kappa.serving.http.address import HttpAddress, guarded_address
from kappa.state.lock import holding_process
from kappa.state.store import Store

_LOG = "logs/http.log"
# Its server has 10 s to end.
_PATIENCE_SECONDS = 15.0
_NAP_SECONDS = 0.02


class HttpProcess:
    """The child that keeps HTTP served, if `serve.listen` is set."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Makes a keeper that does not run yet.

        `say` gets what the operator should read; `clock` gives seconds that only go forward.
        """
        self._store = store
        self._settings = settings
        self._say = say
        self._address = _address(settings, say)
        # The socket of an earlier supervisor's keeper, until this one's has it.
        self._handed: socket.socket | None = None
        self._child = ChildProcess(
            "the keeper of HTTP",
            store.local.path(_LOG),
            say=say,
            clock=clock,
            patience_seconds=_PATIENCE_SECONDS,
            outlives=True,
        )

    def ensure_running(self) -> None:
        """Starts it unless it runs, is not wanted, or has died just now.

        Ends an earlier supervisor's first: its settings and its code may be old. Its socket is
        taken over before, so clients wait meanwhile.
        """
        self._child.reap()
        if self._child.pid is not None:
            return
        door = self._store.local.path(DOOR)
        if self._address is not None and self._handed is None:
            self._handed = socket_handed_over(door, self._address)
        if ensure_no_keeper(self._store):
            self._say("the HTTP server that an earlier kappa has left is ended")
        if self._address is not None:
            handed = -1 if self._handed is None else self._handed.fileno()
            self._child.inherits = () if handed < 0 else (handed,)
            self._child.ensure_started(
                "kappa.replay.platform.keeper",
                *project_options(self._settings),
                *("--host", self._address.host, "--port", str(self._address.port)),
                *(
                    "--lock",
                    str(self._store.local.path(KEEPER)),
                    "--log",
                    str(self._store.local.path(_LOG)),
                ),
                *("--door", str(door), "--socket", str(handed)),
            )
        self._let_go(is_over=False)

    def end(self) -> None:
        """Ends it, and with it the server."""
        self._let_go(is_over=True)
        self._child.end()
        ensure_no_keeper(self._store)

    def _let_go(self, *, is_over: bool) -> None:
        """Closes the socket that was handed over, once the keeper has it or it `is_over`."""
        if self._handed is not None and (is_over or self._child.pid is not None):
            self._handed.close()
            self._handed = None


def ensure_no_keeper(store: Store) -> bool:
    """Ends the keeper of this root and waits until it is gone. Returns False if there was none."""
    keeper = holding_process(store.local.path(KEEPER))
    if keeper is None:
        return False
    send_signal(keeper, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while keeper.alive() and time.monotonic() < deadline:
        time.sleep(_NAP_SECONDS)
    # Its server dies with it.
    kill_and_see_gone(keeper)
    return True


def _address(settings: Settings, say: Callable[[str], None]) -> HttpAddress | None:
    if not settings.serve.listen:
        return None
    try:
        return guarded_address(settings.serve.listen, settings.serve.token or None)
    except SettingsError as error:
        say(f"nothing serves HTTP: {error_text(error)}")
        return None
