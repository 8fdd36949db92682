"""The command that looks for damage below the root, and repairs it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from typing import Annotated

import typer

from commands.terminal.moving import moving
from commands.terminal.options import As, Yes, here_of
from commands.terminal.output import ask_consent, print_listing, say
from kappa.base.errors import ExitCode
from serving.query.render import Form, Listing


def doctor(
    context: typer.Context,
    repair: Annotated[
        bool, typer.Option("--repair", help="move aside what is said to be moved; asks first")
    ] = False,
    yes: Yes = False,
    output: As = Form.TABLE,
) -> None:
    """Look for damaged records and files, and say what follows from each.

    Exit code 1 if anything is damaged and was not repaired. A repair deletes nothing.
    """
    from kappa.state.store import DAMAGED
    from replay.doctor.examine import examine, set_aside
    from replay.doctor.repair import repair as move_aside

    store = here_of(context).store
    with moving("reading all records"):
        found = examine(store, now=time.time())
    if output is Form.TABLE:
        for number, each in enumerate(found, 1):
            sys.stdout.write("".join(f"{line}\n" for line in each.lines(number)))
    else:
        print_listing(
            output,
            Listing(
                ("what", "follows", "names", "then", "hint"),
                tuple(tuple(asdict(each).values()) for each in found),
            ),
        )
    kept = set_aside(store)
    if kept:
        say(f"{kept} files that were moved aside are kept in {store.path(DAMAGED)}")
    if not found:
        say("nothing is damaged")
        return
    moves = [each for each in found if each.names]
    if repair and moves:
        ask_consent(
            "doctor --repair",
            yes=yes,
            question="move these files aside?",
            what="this moves records aside",
            undone="nothing was moved",
        )
        for path in move_aside(store, moves):
            say(f"moved to {path}")
    if not repair and moves:
        say("hint: kappa down, then kappa doctor --repair: it does this, and keeps what it moves")
    if not repair or len(moves) < len(found):
        raise typer.Exit(ExitCode.FAILED)
