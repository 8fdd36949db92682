"""The HTTP server's own process: `kappa serve`, or a child of the supervisor.

It is a process beside the supervisor: whatever a request does to it, rollouts continue. It joins
what serving/http, replay/http and replay/page have. As a program it is that child.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from kappa.base.errors import Conflict, ExitCode, KappaError, SettingsError
from kappa.base.process import process_id
from kappa.base.program import run_program
from kappa.journal.journal import Journal
from kappa.state.store import Store
from replay.http import api
from replay.look.desk import Desk
from replay.look.here import Here
from replay.page import routes
from replay.status.running import SERVED, RunningServer, put_served
from serving.http import events
from serving.http.gate import Bounds
from serving.http.http import make_app
from serving.http.patience import PatientServer, fitting, uvicorn_settings
from serving.http.snapshots import Snapshots
from serving.http.stand import Stand
from serving.sandbox import confine
from serving.sandbox.question import Allowance
from serving.sandbox.sandbox import Sandbox

# What listens to events never ends by itself.
_GRACE_SECONDS = 2
# By guessing, at whatever rate a network has, none so long is found.
_SHORTEST_TOKEN = 16


def serve(
    here: Here,
    *,
    listen: str | None = None,
    token: str | None = None,
    say: Callable[[str], None],
    any_port: bool = False,
) -> None:
    """Serves until this process is asked to end. `any_port`: if the port is taken, use another.

    Raises SettingsError if it would listen to other machines without a token, and Conflict if the
    port is taken.
    """
    settings, store = here.settings, here.store
    token = token or settings.serve.token or None
    host, port = _place(listen or settings.serve.listen)
    _ensure_guarded(host, token)
    listening = _listening(host, port, any_port=any_port)
    with listening, Sandbox(Allowance.of(settings.serve)) as sandbox:
        stand = Stand(
            store,
            sandbox,
            Snapshots(store, lease_seconds=here.lease_seconds),
            here.lease_seconds,
            lambda: _unready(store),
        )
        desk, bounds = Desk(here), fitting(Bounds())
        app = make_app(
            stand,
            token=token,
            bounds=bounds,
            routers=(events.router, api.router, *routes.ROUTERS),
            state={"desk": desk, "pulse": desk.pulse},
        )
        config = uvicorn.Config(
            app, timeout_graceful_shutdown=_GRACE_SECONDS, **uvicorn_settings(bounds)
        )
        url = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        me = process_id(os.getpid())
        assert me is not None, "this process is there"
        put_served(store, RunningServer(me.pid, me.born, url))
        say(
            f"HTTP at {url}, its API at {url}/api/v1, "
            f"{'with a token' if token else 'for this machine'}; queries are kept in by "
            f"{', '.join(('the parser', 'DuckDB', *confine.layers()))}"
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            # Uvicorn ends by them, and then raises them again for the earlier handler: this one.
            signal.signal(number, lambda *_: None)
        # In a thread, so that the start does not wait; the first query finds a process ready.
        threading.Thread(target=sandbox.start, name="sandbox", daemon=True).start()
        try:
            PatientServer(config).run(sockets=[listening])
        finally:
            with suppress(KappaError):
                store.delete(SERVED)


def _place(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(
            f"{listen!r} is no place to listen at",
            hint="give host and port, such as 127.0.0.1:8717",
        )
    return host, int(port)


def _ensure_guarded(host: str, token: str | None) -> None:
    try:
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = False
    if token is not None and len(token) < _SHORTEST_TOKEN:
        raise SettingsError(
            f"the token has {len(token)} characters, and a short one can be guessed",
            hint=f"take one of {_SHORTEST_TOKEN} at least, that nobody chose: openssl rand -hex 32",
        )
    if not local and token is None:
        raise SettingsError(
            f"at {host} other machines could ask, and there is no token to tell who may",
            hint="give one: KAPPA__SERVE__TOKEN=..., or --token; or listen at 127.0.0.1",
        )


def _listening(host: str, port: int, *, any_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        if any_port and port:
            return _listening(host, 0, any_port=False)
        raise Conflict(
            f"nothing can listen at {host}:{port}: {error.strerror}",
            hint="give another place: kappa serve --listen 127.0.0.1:0 takes any port that is free",
        ) from error


def _unready(store: Store) -> tuple[str, ...]:
    try:
        Journal(store).last_served()
    except KappaError as error:
        return (error.message,)
    return ()


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, whose output is its log; returns its exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        here = Here(given.project, given.root)
        serve(here, say=lambda text: print(text, flush=True), any_port=True)
        return ExitCode.OK

    return run_program("replay.run.serve", work, arguments)


if __name__ == "__main__":
    sys.exit(main())
