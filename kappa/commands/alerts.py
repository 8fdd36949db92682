"""Commands on alerts: list their messages and dead letters, and send dead letters again.

A dead letter is a message that Kappa could not deliver and has given up.
"""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form

app = Commands(
    text="List the alerts and their dead letters, and send dead letters again.",
)


@app.command("list")
def list_alerts(
    context: typer.Context,
    dead: Annotated[
        bool, typer.Option("--dead", help="the dead letters: messages that were given up")
    ] = False,
    output: As = Form.TABLE,
) -> None:
    """List the alerts: messages delivered, waiting and given up, and the last error.

    With --dead, list the dead letters (the messages that were given up), the oldest first, each
    with the reason.
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
        str | None, typer.Argument(metavar="[ALERT]", help="the letters of one alert")
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="the letter with this message id")] = None,
    output: As = Form.TABLE,
) -> None:
    """Send dead letters again, once each: all of them, those of one alert, or a single one.

    The platform sends the letters at once, or as soon as the platform is up. If sending a letter
    fails again, the letter is kept.
    """
    from kappa.replay.status.alerts import dead_letters_listing
    from kappa.serving.outlets.alerts.outbox import ask_for_dead_letters

    here = here_of(context)
    found = ask_for_dead_letters(here.store, alert, id_)
    print_listing(output, dead_letters_listing(found))
    if found and here.running is None:
        say("kappa is not up: they are sent when it is (kappa up -d)")
