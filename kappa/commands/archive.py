"""Commands on archives of topics: show their states, and compare them with the topics."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.base.units import count_of
from kappa.commands.terminal.help import Commands
from kappa.commands.terminal.options import As, Quiet, here_of
from kappa.commands.terminal.output import print_listing
from kappa.commands.terminal.progress import moving
from kappa.serving.query.render import Form

app = Commands(
    text="Show the archives of topics with archive=True, and compare them with the topics."
)


@app.command("status")
def archive_status(context: typer.Context, output: As = Form.TABLE) -> None:
    """Show each archive: its range of offsets, its lag behind its topic, and what stops it."""
    from kappa.replay.status.archive import archive_listing
    from kappa.replay.status.archive import archive_status as look

    here = here_of(context)
    log = here.log() if here.bootstrap_servers else None
    print_listing(output, archive_listing(look(here.settings, here.store, here.topics, log)))


@app.command("verify")
def verify_archives(
    context: typer.Context,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="the archive of one topic")
    ] = None,
    _quiet: Quiet = False,
    output: As = Form.TABLE,
) -> None:
    """Check archives for gaps and duplicates, and compare them with their topics.

    The command decodes the records again that the topics still have. Exit code 4 if anything
    differs.
    """
    from kappa.base.errors import VerificationFailed
    from kappa.replay.status.archive import checked_listing
    from kappa.replay.status.archive import verify_archives as check
    from kappa.tables.archive import folder

    here = here_of(context)
    with moving("comparing archives with their topics") as show:
        found = []
        for each in check(here.settings, here.store, here.topics, here.log(), topic):
            found.append(each)
            show(
                "comparing archives with their topics: "
                f"{count_of(len(found), 'partition')} done, the last of {each.topic}"
            )
    print_listing(output, checked_listing(found))
    wrong = [each for each in found if each.found.wrong is not None]
    if wrong:
        where = f"topic {wrong[0].topic} partition {wrong[0].found.partition}"
        kept = here.store.address(folder(wrong[0].topic, wrong[0].fingerprint))
        hint = f"move {kept} away, and it is made again from what the topic has"
        raise VerificationFailed(
            f"the archive of {where} is not what it should be: {wrong[0].found.wrong}", hint=hint
        )
