"""The courier: a process without a JVM that runs sinks and alerts of serving builds.

python -m kappa.serving.outlets.courier --project DIR --root ROOT --bootstrap HOST:PORT

The courier finds sinks and alerts in the journal and in the records of builds, and runs no user
code. Each outlet has its own thread, so an outlet that waits does not delay other outlets. After a
kill, the next courier continues from the stored positions and documents. The exit code is 130 if
the courier was asked to stop (SIGTERM).
"""

from __future__ import annotations

import argparse
import sys
import threading
import traceback
from collections.abc import Sequence

from kappa.base.errors import ExitCode, KappaError
from kappa.base.log_lines import Level, write_log_line
from kappa.base.process import set_by_sigterm
from kappa.base.program import run_program
from kappa.base.settings import Settings, load_settings
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.serving.outlets.alerts.delivery import AlertOutlet
from kappa.serving.outlets.outlet import MakeOutlet, Outlet, served_outlets
from kappa.serving.outlets.sinks.sink_outlet import SinkContext, SinkOutlet
from kappa.serving.outlets.sinks.sink_status import LOCK
from kappa.serving.query.reader.reader import Limits
from kappa.state.root import lock_of, own_root
from kappa.state.store import Store, open_store

_LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 10.0
# The longest wait for a thread at the end: a broker that is away holds a thread up no longer.
_PATIENCE_SECONDS = 30.0


class Courier:
    """Runs the outlets of the serving builds, each in its own thread."""

    def __init__(self, store: Store, makers: Sequence[MakeOutlet]) -> None:
        """Stores `makers`, the functions that create outlets, one for each kind of outlet.

        The argument of such a function is the full name of an outlet, such as `sink
        carrier-delays`. A function returns None for an outlet of another kind.
        """
        self._store = store
        self._makers = makers
        self._threads: dict[str, threading.Thread] = {}

    def run(self, stop: threading.Event) -> None:
        """Runs outlets until `stop` is set, and then waits up to 30 s for each outlet's thread.

        While it runs, the courier starts the outlets of builds that begin to serve.
        """
        told = ""
        while not stop.is_set():
            try:
                self.start_outlets(stop)
                told = ""
            except (KappaError, OSError) as error:
                if str(error) != told:
                    told = str(error)
                    write_log_line(told, Level.ERROR)
            stop.wait(_LOOK_SECONDS)
        for thread in self._threads.values():
            thread.join(_PATIENCE_SECONDS)

    def start_outlets(self, stop: threading.Event) -> None:
        """Starts each outlet of the serving builds that does not run yet."""
        for part in served_outlets(self._store):
            thread = self._threads.get(part)
            if thread is None or not thread.is_alive():
                outlet = next(filter(None, (make(part) for make in self._makers)), None)
                if outlet is not None:
                    self._start_outlet(part, outlet, stop)

    def _start_outlet(self, part: str, outlet: Outlet, stop: threading.Event) -> None:
        def run_outlet() -> None:
            try:
                outlet.run(stop)
            except Exception:  # noqa: BLE001  # others go on; this one is told of and begins again
                write_log_line(traceback.format_exc(), Level.ERROR)
                stop.wait(_AGAIN_SECONDS)

        thread = threading.Thread(target=run_outlet, name=part, daemon=True)
        self._threads[part] = thread
        thread.start()


def outlet_makers(settings: Settings, store: Store, bootstrap_servers: str) -> Sequence[MakeOutlet]:
    """Returns two functions that create outlets: one for sinks, and one for alerts."""
    root = own_root(store)
    means = SinkContext(
        store,
        Log(bootstrap_servers, client_options(settings)),
        settings.changes.sinks_keep_seconds,
        Limits.of(settings.verify, store),
        writer="" if root is None else root.writer,
        before=frozenset(("", root.adopted_from) if root is not None and root.writer else ()),
    )

    def make_sink(part: str) -> Outlet | None:
        kind, _, topic = part.partition(" ")
        return SinkOutlet(means, topic) if kind == "sink" else None

    def make_alert(part: str) -> Outlet | None:
        kind, _, name = part.partition(" ")
        return AlertOutlet(store, settings, name) if kind == "alert" else None

    return make_sink, make_alert


def main(arguments: list[str] | None = None) -> int:
    """Runs the courier with the given options, and returns the exit code.

    The exit code is 130 if the courier was asked to stop.
    """
    stop = set_by_sigterm()

    def run_courier(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        store = open_store(settings)
        with lock_of(store, LOCK, what="the courier"):
            Courier(store, outlet_makers(settings, store, given.bootstrap)).run(stop)
        return ExitCode.INTERRUPTED

    return run_program("kappa.serving.outlets.courier", run_courier, arguments, bootstrap=str)


if __name__ == "__main__":
    sys.exit(main())
