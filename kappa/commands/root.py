"""Commands on the whole root of a project: copy and adopt."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import Quiet, here_of
from kappa.commands.terminal.output import say
from kappa.commands.terminal.progress import moving

app = Commands(text="Copy the root, which has all data of a project, or adopt a copy.")


@app.command("copy")
def copy(
    context: typer.Context,
    to: Annotated[str, typer.Argument(metavar="TO", help="a folder, or s3://BUCKET/PREFIX")],
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="take the root in a bucket over from another host, once that host is gone",
        ),
    ] = False,
    _quiet: Quiet = False,
) -> None:
    """Copy the project's root to another folder or bucket, while the platform is down.

    If a copy was interrupted, run the command again to continue the copy. The root itself is not
    changed.
    """
    from kappa.replay.platform.copy import copy_root

    here = here_of(context)
    with moving("copying") as show:
        copied = copy_root(
            *(here.settings, here.store, to),
            take_over=take_over,
            on_progress=lambda done, of: show(f"copying, object {done} of {of}"),
        )
    say(f"{copied.url} has all of {here.store.url}: {copied.objects} objects")
    say(f'now set in kappa.toml: root = "{to}"')
    say("then kappa up; of two copies of a root only one may ever be up")


@app.command("adopt")
def adopt(
    context: typer.Context,
    send: Annotated[
        bool,
        typer.Option(
            "--send",
            help="let its sinks, alerts and pulled sources run: the first root sends no more",
        ),
    ] = False,
) -> None:
    """Make a copied root an independent root. Until then, no process can change the copy.

    The copy gets a new id. Without --send, its sinks, alerts and pulled sources do not run.
    """
    from kappa.replay.platform.copy import adopt_copy as adopt_root
    from kappa.state.root import SENDS_NOT

    store = here_of(context).store
    root = adopt_root(store, sends=send)
    say(f"{store.url} is root {root.id}, adopted from root {root.adopted_from}")
    say("kappa up continues from it" if root.sends else f"kappa up continues from it; {SENDS_NOT}")
