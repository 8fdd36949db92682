"""Sinks: the progress of each sink."""

from __future__ import annotations

import time

import typer

from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing
from kappa.serving.query.render import Form


def sinks(context: typer.Context, output: As = Form.TABLE) -> None:
    """Show each sink: what it has sent, how far it is behind what serves, and its last error."""
    from kappa.serving.outlets.sinks.sink_status import sink_statuses, sinks_listing

    print_listing(output, sinks_listing(sink_statuses(here_of(context).store, time.time())))
