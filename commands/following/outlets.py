"""Sinks: how far each is."""

from __future__ import annotations

import time

import typer

from commands.terminal.options import As, here_of
from commands.terminal.output import print_listing
from serving.query.render import Form


def sinks(context: typer.Context, output: As = Form.TABLE) -> None:
    """Show each sink: what it has sent, how far it is behind what serves, and its last error."""
    from serving.courier.sink_status import sink_statuses, sinks_listing

    print_listing(output, sinks_listing(sink_statuses(here_of(context).store, time.time())))
