"""Alerts: delivered messages, waiting messages, and dead letters, which can be sent again."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form

app = Commands(
    text="The alerts of what serves: list them and their dead letters, send those again.",
)


@app.command("list")
def list_alerts(
    context: typer.Context,
    dead: Annotated[
        bool, typer.Option("--dead", help="the dead letters: messages that were given up")
    ] = False,
    output: As = Form.TABLE,
) -> None:
    """List the alerts: what was delivered, what waits, what was given up, and the last error.

    With --dead, list the messages that were given up, the oldest first, each with the reason.
    """
    from kappa.replay.status.alerts import alert_statuses, alerts_listing, dead_letters_listing

    here = here_of(context)
    found = alert_statuses(here.store)
    letters = ((each.name, letter) for each in found for letter in each.dead)
    print_listing(output, dead_letters_listing(letters) if dead else alerts_listing(found))


@app.command("retry")
def retry_dead_letters(
    context: typer.Context,
    alert: Annotated[
        str | None, typer.Argument(metavar="[ALERT]", show_default=False, help="those of one alert")
    ] = None,
    id_: Annotated[
        str | None,
        typer.Option("--id", help="the one with this message's id", show_default=False),
    ] = None,
    output: As = Form.TABLE,
) -> None:
    """Send dead letters again, each once: all, those of one alert, or one.

    The platform sends them, at once or when it is up. One that fails again stays a dead letter.
    """
    from kappa.replay.status.alerts import dead_letters_listing
    from kappa.serving.outlets.alerts.outbox import ask_for_dead_letters

    here = here_of(context)
    found = ask_for_dead_letters(here.store, alert, id_)
    print_listing(output, dead_letters_listing(found))
    if found and here.running is None:
        say("kappa is not up: they are sent when it is (kappa up -d)")
