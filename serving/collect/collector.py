"""The collector: a process without a JVM that receives events over the network.

    python -m kappa.serving.collect.collector --project DIR --root ROOT --bootstrap HOST:PORT

The collector answers when the broker has acknowledged the events. `kappa up` runs the collector if
`[collect]` names topics, and `kappa collect` runs only the collector. Acknowledged events are in
Kafka's log, even if the process is killed. The exit code is 130 if the collector was asked to stop
(SIGTERM).
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import uvicorn

from kappa.base.errors import ExitCode, KappaError, UsageError
from kappa.base.log_lines import write_log_line
from kappa.base.program import run_program
from kappa.base.settings import Settings, load_settings
from kappa.base.units import parse_memory
from kappa.kafka.client import Log
from kappa.kafka.client_options import client_options
from kappa.serving.access.accounts import Accounts
from kappa.serving.collect.app import CollectorApp
from kappa.serving.collect.app_state import CollectorMeans, CollectorStand
from kappa.serving.collect.callers import Callers
from kappa.serving.collect.datagrams import datagrams_at
from kappa.serving.collect.declared_topics import DeclaredTopics
from kappa.serving.collect.pulled.source import sources_of
from kappa.serving.collect.pulled.tls import ensure_readable
from kappa.serving.collect.single_event import EventProtocol, SingleEvents
from kappa.serving.collect.spool import Spool
from kappa.serving.http.address import guarded_address, listening_at
from kappa.serving.http.bounds import Bounds
from kappa.serving.http.connection_limits import PatientServer, fitting, uvicorn_settings
from kappa.serving.http.token import WaitingLine
from kappa.state.root import SENDS_NOT, lock_of, own_root
from kappa.state.store import Store, open_store

LOCK = "run/collector.lock"
SPOOL = "collector/spool"
_GRACE_SECONDS = 5
_ANY_TOKEN = "-" * 16


def collect(
    settings: Settings,
    store: Store,
    bootstrap_servers: str,
    *,
    listen: str | None = None,
    say: Callable[[str], None],
) -> None:
    """Receives events until this process is asked to stop.

    `listen` replaces the address in the settings, and `say` gets messages for the operator. Raises
    UsageError if `collect.topics` names no topic, or a topic that is not declared. Raises
    SettingsError if other machines could send events without a token, or if the declaration of a
    pulled source is not valid. Raises Conflict if the port is taken, or if another collector of
    this root runs.
    """
    chosen = settings.collect
    if not chosen.topics:
        raise UsageError(
            "no topic is to be collected",
            hint='name some in kappa.toml: [collect] topics = ["..."]',
        )
    # The guard is decided below, for each caller.
    address = guarded_address(listen or chosen.listen, _ANY_TOKEN)
    bounds = fitting(Bounds())
    accounts = Accounts.of(settings, store.local.folder)
    callers = Callers(chosen, address.host, WaitingLine(bounds.wrong_seconds), accounts)
    declared = DeclaredTopics(settings.project, chosen.topics, pull=chosen.pull, say=say)
    log = Log(bootstrap_servers, client_options(settings))
    for name, pull in chosen.pull.items():
        if pull.ca is not None:
            ensure_readable(pull.ca, f"collect.pull.{name}.ca")
    root = own_root(store)
    sources = sources_of(chosen, min(log.largest_record, parse_memory(chosen.queue_bytes)))
    if sources and root is not None and not root.sends:
        say(f"nothing is pulled: {SENDS_NOT}")
        sources = []
    with (
        lock_of(store, LOCK, what="the collector"),
        listening_at(address, command="kappa collect") as listening,
        ExitStack() as resources,
    ):
        address = replace(address, port=listening.getsockname()[1])
        datagrams = _datagram_socket(chosen.udp, resources)
        spool = _open_spool(store.local.path(SPOOL), parse_memory(chosen.spool))
        stand = CollectorStand(
            CollectorMeans(*(chosen, log, declared, callers, spool, sources, store, say))
        )
        single = SingleEvents(stand, parse_memory(chosen.body_bytes))
        config = uvicorn.Config(
            CollectorApp(stand, bounds, datagrams),
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_SECONDS,
            # Each message of a websocket is an event.
            **{
                **uvicorn_settings(bounds, type("Taking", (EventProtocol,), {"single": single})),
                "ws_max_size": log.largest_record,
                "loop": "uvloop",
                # Nobody is admitted by an address.
                "proxy_headers": False,
            },
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            # Uvicorn ends by these signals, and then raises them again for this earlier handler.
            signal.signal(number, lambda *_: None)
        say(
            f"events are taken at {address.url}/collect/TOPIC, for {', '.join(chosen.topics)}, "
            f"{_from_whom(settings, accounts)}"
        )
        PatientServer(config).run(sockets=[listening])
        if stand.failure:
            raise KappaError(
                f"the collector could not go on: {stand.failure}",
                hint="kappa up starts the collector again; or: kappa collect",
            )


def _open_spool(folder: Path, most_bytes: int) -> Spool:
    try:
        return Spool(folder, most_bytes)
    except OSError as error:
        raise KappaError(
            f"the spool {folder} cannot be used: {error.strerror or error}",
            hint="see whether the disk is full or the folder may be written",
        ) from error


def _datagram_socket(listen: str, resources: ExitStack) -> socket.socket | None:
    if not listen:
        return None
    return resources.enter_context(datagrams_at(guarded_address(listen, _ANY_TOKEN)))


def _from_whom(settings: Settings, accounts: Accounts) -> str:
    tokens = ("tokens of the role collect",) * accounts.takes_events()
    names = ", ".join((*settings.collect.sources, *tokens))
    return f"from {names}" if names else "from this machine"


def main(arguments: list[str] | None = None) -> int:
    """Runs the program, and returns the exit code. The output of the program is its log."""

    def work(given: argparse.Namespace) -> ExitCode:
        settings = load_settings(given.project, root=given.root)
        collect(
            settings,
            open_store(settings),
            given.bootstrap,
            say=write_log_line,
        )
        return ExitCode.INTERRUPTED

    return run_program("kappa.serving.collect.collector", work, arguments, bootstrap=str)


if __name__ == "__main__":
    sys.exit(main())
