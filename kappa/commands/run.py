"""Commands that start and stop the platform or parts of it, and `gc`, which deletes garbage."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from kappa.commands.terminal.options import As, Quiet, Yes, here_of
from kappa.commands.terminal.output import ask_consent, print_listing, say
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form

if TYPE_CHECKING:
    from kappa.replay.rollout import garbage


def up(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="in the background; returns when it is ready")
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="take a root in a bucket over from another host, once that host is gone",
        ),
    ] = False,
    _quiet: Quiet = False,
) -> None:
    """Start the platform: broker, jobs, controller and HTTP.

    No broker is started if kappa.toml names a Kafka cluster. Each build has a job of its own. If
    the root is in a bucket, only one host may run the platform.
    """
    here = here_of(context)
    if not detach:
        from kappa.replay.platform.supervisor import run_platform

        run_platform(here.settings, take_over=take_over)
        return
    from kappa.replay.platform.http_port import PORT, read_kept_port
    from kappa.replay.platform.start import ensure_detached, fetch_jars
    from kappa.replay.status.run_records import restart_text, served_at, settings_since_start

    # The supervisor has no terminal, where a bar could show how far the jars are.
    jars = fetch_jars(here.settings) if here.running is None else None
    with moving("starting") as show:
        started = ensure_detached(here.settings, show, take_over=take_over)
    url = served_at(here.store)
    say(
        f"kappa is up: process {started.pid}, Kafka at "
        f"{started.bootstrap_servers}{f', HTTP at {url}' if url else ''}"
    )
    # A platform that was up already has the settings of its start.
    if changed := settings_since_start(here.settings):
        say(restart_text(changed))
    kept = read_kept_port(here.store.local.path(PORT)) if url else None
    if kept is not None and kept.text:
        say(kept.text)
    if jars is not None and here.settings.engine.spares:
        from kappa.engine.spark.cds import archives_to_make

        # The supervisor makes them once a spare is warm.
        if archives_to_make(jars):
            say(
                "the class archives of Spark and Kafka are made in the background, once: "
                "then they start in half the time"
            )


def down(context: typer.Context, _quiet: Quiet = False) -> None:
    """Stop the platform. All data are kept.

    If a platform was killed and its HTTP server still runs, this command also stops the HTTP
    server. It does not stop a `kappa serve`.
    """
    from kappa.replay.platform import supervisor

    settings = here_of(context).settings
    with moving("ending"):
        was_up = supervisor.end_platform(settings)
        served = supervisor.end_left_server(settings)
    left = "; the HTTP server that one had left is ended" if served else ""
    say("kappa is down" if was_up else f"kappa was not up{left}")


def serve(
    context: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="the address, in place of serve.listen; port 0: any free port",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            help="each request must send this token; other users cannot see KAPPA__SERVE__TOKEN",
        ),
    ] = None,
) -> None:
    """Serve HTTP alone, without the rest of the platform. `kappa up` serves HTTP, too.

    The server answers queries of untrusted clients, and serves the page.
    """
    from kappa.base.process import name_process
    from kappa.replay.platform.serve import serve_alone as serve_http

    if token:
        # Any program of this machine sees command lines, also a file of an agent in a rehearsal.
        name_process(lambda shown: shown.replace(token, "*" * len(token)))
    serve_http(here_of(context), listen=listen, token=token, say=say)


def collect(
    context: typer.Context,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="the address, in place of collect.listen; port 0: any free port",
        ),
    ] = None,
) -> None:
    """Collect events from the network, without the rest of the platform.

    `kappa up` collects events, too, if kappa.toml names topics in [collect].
    """
    from kappa.serving.collect.collector import collect as collect_events

    here = here_of(context)
    servers = here.log().bootstrap_servers
    collect_events(here.settings, here.store, servers, listen=listen, say=say)


def mcp(context: typer.Context) -> None:
    """Serve an AI agent that uses the Model Context Protocol, on stdin and stdout.

    The agent reads tables, plans changes and rehearses them. Before a change serves, the agent must
    ask you for a yes; agents.may in kappa.toml lists the acts that need no yes. This command needs
    kappa[mcp].
    """
    from kappa.agents.server import open_desk, run_on_stdio

    with open_desk(here_of(context)) as desk:
        run_on_stdio(desk)


def gc(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only list what would be deleted")
    ] = False,
    yes: Yes = False,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Delete data that are not needed: retired builds, unreferenced files, expired leases.

    On a terminal, the command first shows what it would delete, and asks. Running jobs delete the
    unneeded files of their own builds.
    """
    from kappa.replay.rollout import garbage
    from kappa.replay.status.listings import gc_listing

    here = here_of(context)

    def collect(act: Callable[..., tuple[garbage.Garbage, ...]]) -> tuple[garbage.Garbage, ...]:
        with moving("looking for what nothing needs") as show:
            return act(
                here.store,
                keep_seconds=here.settings.history.keep_seconds,
                now=time.time(),
                temp=here.settings.verify.temp,
                on_build=lambda number, of: show(
                    f"looking for what nothing needs: build {number} of {of}"
                ),
            )

    asks = not (dry_run or yes) and output is Form.TABLE and sys.stdin.isatty()
    if asks:
        wanted = collect(garbage.find_garbage)
        print_listing(output, gc_listing(wanted, done=False))
        if not any(each.count for each in wanted):
            return
        ask_consent("gc", yes=False, question="delete these?", undone="nothing was deleted")
    found = collect(garbage.find_garbage if dry_run else garbage.collect_garbage)
    listing = gc_listing(found, done=not dry_run)
    print_listing(
        output,
        listing,
        document={
            "dry_run": dry_run,
            "bytes": sum(each.bytes for each in found),
            "found": listing.row_objects(),
        },
    )
