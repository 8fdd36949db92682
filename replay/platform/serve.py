"""The process of the HTTP server: `kappa serve`, or a child of the HTTP supervisor.

The server runs in a separate process from the platform's supervisor, so that rollouts continue even
if a request crashes the server. This module combines the routes of serving/http and replay/page in
one application. Run as a program, this module is the child of the HTTP supervisor.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import uvicorn

from kappa.base.errors import Conflict, ExitCode, KappaError
from kappa.base.program import error_text, run_program
from kappa.replay.page import api, routes
from kappa.replay.platform.messages import failure, message_printer
from kappa.replay.status.context import ProjectContext
from kappa.replay.status.run_records import RunningServer, ensure_served, ensure_unserved, served_at
from kappa.replay.status.status_cache import SharedLooks
from kappa.serving.access.accounts import Accounts
from kappa.serving.http import changes, events
from kappa.serving.http.address import HttpAddress, ensure_guarded, guarded_address, listening_at
from kappa.serving.http.app_state import Stand
from kappa.serving.http.bounds import Bounds
from kappa.serving.http.connection_limits import PatientServer, fitting, uvicorn_settings
from kappa.serving.http.http import make_app
from kappa.serving.http.open_streams import OpenStreams
from kappa.serving.http.page.render import ProjectPlace
from kappa.serving.http.snapshots import Snapshots
from kappa.serving.outlets.changes.follower_registry import ChangeHub
from kappa.serving.postgres.server import PostgresServer, tls_context
from kappa.serving.query.reader.reader import Limits
from kappa.serving.query.sandbox import confine
from kappa.serving.query.sandbox.question import Allowance
from kappa.serving.query.sandbox.sandbox import Sandbox
from kappa.state.files.bucket import ANSWERING, with_patience
from kappa.state.journal.journal import Journal
from kappa.state.store import Store

if TYPE_CHECKING:
    from kappa.agents.server import AgentsOverHttp

# Responses that take longer are cut short.
_GRACE_SECONDS = 2


def serve_alone(
    here: ProjectContext,
    *,
    listen: str | None = None,
    token: str | None = None,
    say: Callable[[str], None],
) -> None:
    """Serves HTTP without an HTTP supervisor, until this process is asked to end.

    `listen` and `token` override the settings. `say` prints a message for the operator. Raises
    SettingsError if other machines could reach the server and no token is required. Raises Conflict
    if another process uses the port.
    """
    accounts = _accounts_of(here, token)
    address = guarded_address(
        listen or here.settings.serve.listen, accounts.token, named=accounts.is_guarded
    )
    with listening_at(address) as listening:
        address = replace(address, port=listening.getsockname()[1])
        me = RunningServer.of_process(os.getpid(), address.url)
        if served_at(here.store) is None:
            ensure_served(here.store, me)
        try:
            _serve_at(address, listening, here, accounts=accounts, say=say)
        finally:
            with suppress(KappaError):
                ensure_unserved(here.store, me)


def _serve_kept(here: ProjectContext, host: str, listening: socket.socket) -> None:
    """Serves HTTP at a socket that the HTTP supervisor has opened.

    The process of the HTTP supervisor is recorded as the server process.
    """
    accounts = _accounts_of(here, None)
    ensure_guarded(host, accounts.token, named=accounts.is_guarded)
    address = HttpAddress(host, listening.getsockname()[1])
    ensure_served(here.store, RunningServer.of_process(os.getppid(), address.url))
    _serve_at(address, listening, here, accounts=accounts, say=message_printer(sys.stdout))


def _serve_at(
    address: HttpAddress,
    listening: socket.socket,
    here: ProjectContext,
    *,
    accounts: Accounts,
    say: Callable[[str], None],
) -> None:
    settings, store = here.settings, here.store
    with (
        with_patience(ANSWERING),
        Sandbox(Allowance.of(settings.serve)) as sandbox,
        ExitStack() as ending,
    ):
        stand = Stand(
            store,
            sandbox,
            Snapshots(store, lease_seconds=here.lease_seconds),
            here.lease_seconds,
            lambda: _unready_reasons(store),
        )
        desk, bounds, streams = SharedLooks(here), fitting(Bounds()), OpenStreams()
        hub = ChangeHub(
            store,
            lease_seconds=here.lease_seconds,
            keep_seconds=settings.changes.keep_seconds,
            limits=Limits.of(settings.verify, store),
        )
        app = make_app(
            stand,
            accounts=accounts,
            bounds=bounds,
            beside=_postgres_server(here, sandbox, accounts=accounts, ending=ending, say=say),
            mounted=_agents(here, ending) if settings.agents.http else None,
            routers=(events.router, changes.router, api.router, *routes.ROUTERS),
            state={
                "desk": desk,
                "pulse": desk.change_marker,
                "counts": routes.open_counts,
                "changes": hub,
                "streams": streams,
                "place": ProjectPlace(
                    settings.project.name, settings.root_url, socket.gethostname()
                ),
            },
        )
        config = uvicorn.Config(
            app, timeout_graceful_shutdown=_GRACE_SECONDS, **uvicorn_settings(bounds)
        )
        say(
            f"HTTP at {address.url}, its API at {address.url}/api/v1, for "
            f"{'clients with a token' if accounts.is_guarded else 'this machine'}; "
            "queries are kept in by "
            f"{', '.join(('the parser', 'DuckDB', *confine.available_layers()))}"
        )
        server = PatientServer(config, streams.end)
        for number in (signal.SIGTERM, signal.SIGINT):
            # Uvicorn sets the same handler once it runs, and then raises the signals again for the
            # earlier handler. A signal that comes before that ends the server, too.
            signal.signal(number, server.handle_exit)
        # In threads, so that the start does not wait: the first query finds a process, and the
        # first page finds the looks of a large project.
        threading.Thread(target=sandbox.start_processes, name="sandbox", daemon=True).start()
        threading.Thread(target=desk.look_ahead, name="looks").start()
        server.run(sockets=[listening])


def _accounts_of(here: ProjectContext, token: str | None) -> Accounts:
    return Accounts.of(here.settings, here.store.local.folder, token=token)


def _agents(here: ProjectContext, ending: ExitStack) -> AgentsOverHttp:
    """Returns the HTTP application for agents (assistants that use MCP).

    The application's processes end when `ending` is closed.
    """
    from kappa.agents.server import open_desk, serve_over_http  # noqa: PLC0415  # the SDK is an extra

    return serve_over_http(ending.enter_context(open_desk(here)))


def _postgres_server(
    here: ProjectContext,
    sandbox: Sandbox,
    *,
    accounts: Accounts,
    ending: ExitStack,
    say: Callable[[str], None],
) -> tuple[AbstractAsyncContextManager[None], ...]:
    """Returns the Postgres server, ready to run, or () if the settings do not give its address.

    The result is a tuple of one context manager, which runs the server. If the server cannot be
    created, a message reports the reason, the result is (), and HTTP is served anyway.
    """
    wanted = here.settings.serve.postgres
    if not wanted.listen:
        return ()
    try:
        address = guarded_address(wanted.listen, accounts.token, named=accounts.is_guarded)
        tls = tls_context(wanted.certificate, wanted.key)
        listening = ending.enter_context(listening_at(address))
    except Conflict as error:
        why = f"{error.message} (see serve.postgres.listen)"
        say(failure(f"nothing serves Postgres clients: {why}"))
        return ()
    except KappaError as error:
        say(failure(f"nothing serves Postgres clients: {error_text(error)}"))
        return ()
    server = PostgresServer(
        here.store, sandbox, accounts=accounts, lease_seconds=here.lease_seconds, tls=tls
    )
    host, port = address.host, listening.getsockname()[1]
    say(f"Postgres clients connect to {host}:{port}{' by TLS' if tls else ''}")
    return (server.running(listening),)


def _unready_reasons(store: Store) -> tuple[str, ...]:
    try:
        Journal(store).last_served()
    except KappaError as error:
        return (error.message,)
    return ()


def main(arguments: list[str] | None = None) -> int:
    """Runs the server as a program that prints log lines. Returns the exit code."""

    def work(given: argparse.Namespace) -> ExitCode:
        with socket.socket(fileno=given.socket) as listening:
            # The socket is for this process alone, not for the processes of queries.
            listening.set_inheritable(False)
            _serve_kept(ProjectContext(given.project, given.root), given.host, listening)
        return ExitCode.OK

    return run_program("kappa.replay.platform.serve", work, arguments, host=str, socket=int)


if __name__ == "__main__":
    sys.exit(main())
