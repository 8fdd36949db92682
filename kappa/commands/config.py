"""The command `kappa config`: shows the project's settings, and where each is set."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, here_of
from kappa.commands.terminal.output import print_listing, say
from kappa.serving.query.render import Form, Listing

app = Commands(text="Show the settings of the project, and where each comes from.")


@app.command("show")
def show_config(
    context: typer.Context,
    origin: Annotated[
        bool,
        typer.Option(
            "--origin", help="also the line of kappa.toml, the variable or the flag that decides"
        ),
    ] = False,
    output: As = Form.TABLE,
) -> None:
    """List all settings with their values; values of secrets are hidden.

    A setting in kappa.toml is marked if it has changed since the running platform started: the
    platform uses the new value after the next kappa up.
    """
    from kappa.base.settings import setting_origins
    from kappa.replay.status.run_records import restart_text, settings_since_start

    here = here_of(context)
    since_start = settings_since_start(here.settings)
    rows = tuple(
        (each.name, each.value, each.origin, each.name in since_start)
        for each in setting_origins(here.settings, root=here.root_flag)
    )
    beside = () if origin else ("origin",)
    unchanged = () if since_start else ("changed_since_start",)
    columns = ("setting", "value", "origin", "changed_since_start")
    print_listing(output, Listing(columns, rows, wide=frozenset((*beside, *unchanged))))
    if since_start:
        say(restart_text(since_start))
